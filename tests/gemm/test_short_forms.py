"""Short forms tell as much as the names that they stand for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rule_cases import thin_space
from samples import archs, config
from screens import TUNED, choices_of

from gemm_tuner.core.labels import Labels, label, labels, legend
from gemm_tuner.gemm.config import AMD_NAME_PARTS, FAMILY_NAME_PARTS, NAME_PARTS
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.gemm.short_forms import short_config, whole_names
from gemm_tuner.gemm.workload import WORKLOAD
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.launch.plan import VENDOR
from gemm_tuner.space.space import configs_of

SIZE = GemmProblem(4096, 4096, 4096)
SCALED = GemmProblem(4096, 4096, 4096, "fp8_e4m3", "fp8_e4m3", "bf16", layout_b=Layout.COL, scaling="block")


@pytest.mark.parametrize("arch", archs("sm_90", "gfx942"))
def test_no_two_configurations_of_a_space_have_the_same_short_form(arch: str) -> None:
    names = [one.name for one in configs_of(thin_space(arch).configs)]
    assert len({short_config(name) for name in names}) == len(set(names))


def test_the_short_form_of_a_configuration() -> None:
    tile = config(BLOCK_SIZE_M=128, BLOCK_SIZE_N=256, BLOCK_SIZE_K=64, GROUP_SIZE_M=8, num_warps=8, num_stages=3)
    assert short_config(tile.name) == "tile 128x256x64 gm8 w8 s3"
    assert "sk4" in short_config(replace(tile, SPLIT_K=4).name).split()
    own = replace(tile, family="my_own").name
    assert short_config(own).startswith("my_own 128x256x64 ")
    for other in (VENDOR, "", "gemm_tile", "[bold]_BM1"):
        assert short_config(other) == other


@pytest.mark.parametrize("arch", archs("sm_90", "gfx942"))
def test_a_short_form_leads_back_to_its_configuration(arch: str) -> None:
    names = {one.name for one in configs_of(thin_space(arch).configs)}
    assert all(names & {*whole_names(short_config(name))} == {name} for name in names)
    for other in ("", "tile", "tile 128x256x64", "tile 128x256 gm8 w8 s3", next(iter(names))):
        assert whole_names(other) == ()


def test_the_legend_explains_every_part_of_a_short_form() -> None:
    every = config(**{field: 4 for field, _ in (*NAME_PARTS, *FAMILY_NAME_PARTS, *AMD_NAME_PARTS)})
    family, tile, *parts = short_config(every.name).split()
    words = WORKLOAD.config_legend.replace(",", "").replace(":", "").split()
    assert (family, tile) == ("tile", "4x4x4")
    for part in parts:
        short = part.removesuffix("4")
        assert any(word.rstrip("0123456789") == short for word in words), part
    assert {field for field, _ in (*FAMILY_NAME_PARTS, *AMD_NAME_PARTS)} <= set(words)


PROBLEMS = [
    SIZE,
    SCALED,
    replace(SIZE, m=64),
    replace(SIZE, layout_b=Layout.COL),
    replace(SIZE, dtype_c="fp32"),
    replace(SIZE, dtype_a="fp8_e5m2", dtype_b="fp8_e4m3"),
    replace(SIZE, batch=4),
    replace(SIZE, alpha=0.1),
    replace(SIZE, alpha=0.1000001),
    replace(SIZE, beta=0.5),
    replace(SIZE, bias=True),
    replace(SIZE, activation="gelu"),
    replace(SIZE, dtype_a="fp32", dtype_b="fp32", dtype_c="fp32", precision="tf32"),
    replace(SIZE, dtype_a="int8", dtype_b="int8", dtype_c="int32"),
    replace(SCALED, scaling="row_col"),
]


def test_sizes_of_several_kinds_are_labelled_in_one_table() -> None:
    """As of a results file into which kernels of a user were tuned, too."""
    kernel = KernelProblem("copy", "0" * 12, ())
    assert labels([SIZE, kernel]) == Labels("", {SIZE: label(SIZE), kernel: label(kernel)})


def test_no_two_sizes_have_the_same_label() -> None:
    assert len(set(labels(PROBLEMS).of.values())) == len(PROBLEMS)
    assert len({label(problem) for problem in PROBLEMS}) == len(PROBLEMS)


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.stem)
def test_what_all_sizes_share_is_said_once(path: object) -> None:
    problems = [choice.problem for choice in choices_of(path)]  # type: ignore[arg-type]
    named = labels(problems)
    assert len(set(named.of.values())) == len(problems)
    assert problems[0].dtype_a in named.common
    assert max(map(len, named.of.values())) <= 22


def test_labels_of_one_and_of_several_sizes() -> None:
    assert label(SIZE) == "4096x4096x4096 bf16 nn"
    assert label(SCALED) == "4096x4096x4096 fp8_e4m3 nt scale_block"
    biased = replace(SIZE, m=1, bias=True)
    named = labels([SIZE, biased])
    assert (named.common, named.of) == ("bf16 nn", {SIZE: "4096x4096x4096", biased: "1x4096x4096 bias"})
    assert label(KernelProblem("copy", "0" * 12, ())) == "copy"
    assert labels([]).of == {}


def test_the_legend_explains_what_occurs() -> None:
    assert list(legend([SIZE, SCALED])) == ["nn", "nt", "scale_block"]
    assert all(legend(PROBLEMS).values())


def test_cases_of_a_kernel_are_told_by_its_name_and_by_a_hash_only_where_two_specs_of_it_meet() -> None:
    small = KernelProblem("softmax", "0123456789ab", (("rows", 8), ("dtype", "fp16")))
    large, other = small.with_case((("rows", 64), ("dtype", "fp16"))), replace(small, sha="ba9876543210")
    assert label(small) == "softmax rows=8 dtype=fp16"
    named = labels([small, large])
    assert named.common == "softmax"
    assert named.of == {small: "rows=8 dtype=fp16", large: "rows=64 dtype=fp16"}
    assert len(set(labels([small, large, other]).of.values())) == 3
