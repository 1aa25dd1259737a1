"""Sizes from lists, from ROCm's tuned lists and from flags; results files are in test_results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from samples import load_sizes
from size_lists import CONFIG, ROCM, ROCM_LIST, SIZE, load

from gemm_tuner.cli.size_flags import one_size
from gemm_tuner.gemm.config import UNUSED, KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.store.sizes import SizeEntry
from gemm_tuner.system.documents import dump_yaml

ROOT = Path(__file__).resolve().parents[2]
ROW, COL = Layout.ROW, Layout.COL


def problem(path: Path, **keys: object) -> GemmProblem:
    (entry,) = load(path, [{**SIZE, **keys}])
    assert entry.config is None
    return entry.problem


def test_an_entry_with_a_size_only_takes_the_defaults(path: Path) -> None:
    assert problem(path) == GemmProblem(16, 32, 64, "bf16", "bf16", "bf16", ROW, ROW)
    defaults = Defaults("fp16", "fp16", "fp32", COL, ROW, bias=True)
    (entry,) = load(path, [SIZE], defaults)
    assert entry.problem == GemmProblem(16, 32, 64, "fp16", "fp16", "fp32", COL, ROW, bias=True)


def test_an_entry_overrides_the_defaults(path: Path) -> None:
    defaults = Defaults("fp16", "fp16", "fp32", COL, COL, bias=True)
    keys = {"dtype": "bf16", "layout_a": "row", "rowMajorB": "T", "bias": False}
    (entry,) = load(path, [{**SIZE, **keys}], defaults)
    assert entry.problem == GemmProblem(16, 32, 64)


@pytest.mark.parametrize(
    ("value", "layout"), [("T", ROW), ("N", COL), (True, ROW), (False, COL)], ids=["T", "N", "true", "false"]
)
@pytest.mark.parametrize("operand", ["A", "B"])
def test_rocm_layouts(path: Path, operand: str, value: object, layout: Layout) -> None:
    found = problem(path, **{f"rowMajor{operand}": value})
    assert (found.layout_a if operand == "A" else found.layout_b) is layout
    assert (found.layout_b if operand == "A" else found.layout_a) is ROW


def test_own_layouts_types_and_bias(path: Path) -> None:
    assert problem(path, layout_a="col", layout_b="row").layout_a is COL
    assert problem(path, layout_a="row", layout_b="col").layout_b is COL
    found = problem(path, dtype_a="fp16", dtype_b="fp16", dtype_c="fp32")
    assert (found.dtype_a, found.dtype_b, found.dtype_c) == ("fp16", "fp16", "fp32")
    found = problem(path, dtype="fp32")
    assert (found.dtype_a, found.dtype_b, found.dtype_c) == ("fp32", "fp32", "fp32")
    assert (problem(path, bias=True).bias, problem(path, bias=False).bias) == (True, False)


def test_batch_epilogue_scales_and_precision(path: Path) -> None:
    keys: dict[str, Any] = {"batch": 65535, "activation": "silu", "alpha": 2, "beta": -0.5, "bias": True}
    assert problem(path, **keys) == GemmProblem(16, 32, 64, **keys)
    assert problem(path, dtype="fp32", precision="tf32").precision == "tf32"
    assert problem(path, dtype="fp8_e4m3", scaling="block").scaling == "block"
    assert isinstance(problem(path, alpha=2).alpha, float)
    assert not problem(path, beta=0).reads_c
    assert problem(path, beta=-0.0).key == problem(path).key
    defaults = Defaults(**keys)
    (silent, plain) = load(path, [SIZE, {**SIZE, "batch": 1, "activation": "none", "alpha": 1, "beta": 0}], defaults)
    assert silent.problem == GemmProblem(16, 32, 64, **keys)
    assert plain.problem == GemmProblem(16, 32, 64, bias=True)


@pytest.mark.parametrize(
    ("keys", "dtype_c"),
    [
        ({"dtype": "fp16"}, "fp16"),
        ({"dtype_a": "fp32", "dtype_b": "fp32"}, "fp32"),
        ({"dtype": "fp8_e4m3"}, "bf16"),
        ({"dtype": "fp8_e5m2_fnuz", "scaling": "tensor"}, "bf16"),
        ({"dtype_a": "fp8_e4m3", "dtype_b": "fp8_e5m2"}, "bf16"),
        ({"dtype": "int8"}, "int32"),
        ({"dtype": "int8", "bias": True, "batch": 2}, "int32"),
        ({"dtype": "int8", "scaling": "row_col"}, "bf16"),
        ({"dtype": "int8", "alpha": 0.5}, "bf16"),
        ({"dtype": "int8", "beta": 1}, "bf16"),
        ({"dtype": "int8", "activation": "relu"}, "bf16"),
        ({"dtype_a": "int8", "dtype_b": "int8", "dtype_c": "fp16"}, "fp16"),
    ],
)
def test_the_type_of_c_follows_from_a_and_the_epilogue(path: Path, keys: dict[str, Any], dtype_c: str) -> None:
    assert problem(path, **keys).dtype_c == dtype_c


def test_a_type_of_c_on_the_command_line_holds_where_the_entry_names_no_types(path: Path) -> None:
    rows = [SIZE, {**SIZE, "dtype": "fp16"}, {**SIZE, "dtype_a": "int8", "dtype_b": "int8"}]
    found = [entry.problem.dtype_c for entry in load(path, rows, Defaults(dtype_c="fp32"))]
    assert found == ["fp32", "fp16", "fp32"]


def test_the_limits_of_a_dimension_are_in(path: Path) -> None:
    assert problem(path, M=1, N=2**31 - 1) == GemmProblem(1, 2**31 - 1, 64)


def test_rocms_tuned_list(path: Path) -> None:
    tuned, plain = load(path, ROCM_LIST)
    assert tuned.problem == GemmProblem(4864, 4096, 4096, layout_b=COL)
    assert tuned.config == KernelConfig(
        "gemm_tile", 256, 256, 64, 8, 1, 8, 2, waves_per_eu=0, matrix_instr_nonkdim=16, kpack=1
    )
    assert plain == SizeEntry(GemmProblem(1, 2, 3, layout_a=COL), None)


def test_configs_and_their_defaults(path: Path) -> None:
    def config(**row: object) -> KernelConfig | None:
        (entry,) = load(path, [{**SIZE, **row}])
        return entry.config

    assert config(**CONFIG) == KernelConfig("gemm_tile", 128, 256, 64, 8, 2, 8, 3)
    short = {key: value for key, value in CONFIG.items() if key not in ("GROUP_SIZE_M", "SPLIT_K")}
    assert config(**short) == KernelConfig("gemm_tile", 128, 256, 64, 1, 1, 8, 3)
    assert config(**CONFIG, **ROCM) == KernelConfig("gemm_tile", 128, 256, 64, 8, 2, 8, 3, **ROCM)
    assert config(**CONFIG, family="gemm_other") == KernelConfig("gemm_other", 128, 256, 64, 8, 2, 8, 3)
    used = {"EPILOGUE_SUBTILE": 4, "PROGRAMS_PER_SM": 2, "WARP_SPECIALIZE": 1, "NUM_XCDS": 8}
    assert config(**CONFIG, **used, STREAM_B=1) == KernelConfig(
        "gemm_tile", 128, 256, 64, 8, 2, 8, 3, **used, STREAM_B=1
    )
    thirds = {**CONFIG, "BLOCK_SIZE_N": 192, "EPILOGUE_SUBTILE": 3}
    assert config(**thirds) == KernelConfig("gemm_tile", 128, 192, 64, 8, 2, 8, 3, EPILOGUE_SUBTILE=3)
    assert config(**CONFIG, **UNUSED) == config(**CONFIG)
    assert config(**{**CONFIG, "BLOCK_SIZE_M": 1}) == KernelConfig("gemm_tile", 1, 256, 64, 8, 2, 8, 3)
    assert config(**CONFIG, waves_per_eu=0, schedule_hint="none") == config(**CONFIG)
    # AMD options without kpack: Triton's default, so that the canonical name shows them.
    assert config(**CONFIG, waves_per_eu=2) == KernelConfig(
        "gemm_tile", 128, 256, 64, 8, 2, 8, 3, waves_per_eu=2, kpack=1
    )


def test_the_first_of_equal_problems_is_kept_and_the_others_counted(path: Path) -> None:
    rows = [{**SIZE, **CONFIG}, SIZE, {**SIZE, "M": 5}, {**SIZE, "bias": False}]
    path.write_text(dump_yaml(rows))
    sizes = load_sizes(path, Defaults())
    assert sizes.duplicates == 2
    assert sizes.path == path
    assert [entry.problem.m for entry in sizes.entries] == [16, 5]
    assert sizes.entries[0].config is not None


def test_the_example_loads_and_shows_every_size_key() -> None:
    example = ROOT / "examples" / "sizes.yaml"
    sizes = load_sizes(example, Defaults())
    assert len(sizes.entries) == 3
    assert all(max(entry.problem.m, entry.problem.n, entry.problem.k) <= 1024 for entry in sizes.entries)
    text = example.read_text()
    for key in ("dtype", "dtype_a", "dtype_c", "layout_a", "layout_b", "rowMajorA", "rowMajorB", "bias"):
        assert f"{key}: " in text


def test_one_size() -> None:
    defaults = Defaults("fp16", "fp16", "fp32", COL, ROW, bias=True)
    expected = GemmProblem(1, 2, 3, "fp16", "fp16", "fp32", COL, ROW, bias=True)
    assert one_size(1, 2, 3, defaults) == SizeEntry(expected, None)
