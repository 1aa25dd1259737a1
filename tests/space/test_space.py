"""Space files: what they hold, and one clear line about each way to write them wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import pytest
import yaml
from rule_cases import thin_space
from samples import ARCHS, RULES, archs, device, shipped

from gemm_tuner.core.architecture import Architecture
from gemm_tuner.core.errors import EXIT_INPUT, UserError
from gemm_tuner.core.workload import workload_of
from gemm_tuner.gemm import axes as gemm_axes
from gemm_tuner.gemm.config import UNUSED
from gemm_tuner.space import space
from gemm_tuner.system.documents import dump_yaml

Edit = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize("arch", ARCHS)
def test_the_names_of_a_frame_are_those_of_its_configurations(arch: str) -> None:
    configs = thin_space(arch).configs
    sample = configs.sample(500, random_state=0)
    expected = [config.name for config in space.configs_of(sample)]
    assert space.names(sample).tolist() == expected
    assert [config.name for config in space.configs_of(sample.iloc[:20])] == expected[:20]


@pytest.mark.parametrize("arch", archs("sm_90", "gfx942"))
def test_a_frame_is_the_product_of_the_axes_without_repetition(arch: str) -> None:
    file = space.load(RULES / f"space_{arch}.yaml", arch)
    configs = shipped(arch).configs
    families = configs["family"].to_numpy()
    expected, absent = 0, workload_of("gemm").absent(file.families)  # those of an extra that is not installed
    for family, family_axes in file.families.items():
        if family in absent:
            continue
        rows = families == family
        for axis, values in family_axes.items():
            assert set(configs[axis].to_numpy()[rows].tolist()) == set(values), (family, axis)
        assert rows.sum() == prod(map(len, family_axes.values()))
        expected += rows.sum()
    assert len(configs) == expected == len(set(shipped(arch).names))
    assert file.device.target.arch == arch


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_the_rows_of_a_frame_are_in_the_order_of_the_axes(arch: str) -> None:
    candidates = thin_space(arch)
    absent = {} if arch == "gfx942" else dict.fromkeys(gemm_axes.AMD_AXES, 0)
    expected = (
        {**absent, "family": family, **dict(zip(of_family, values, strict=True))}
        for family, of_family in candidates.axes.items()
        for values in product(*of_family.values())
    )
    assert candidates.configs.to_dict("records") == list(expected)


def test_axes_that_a_family_is_silent_on_are_at_their_defaults() -> None:
    configs = shipped("sm_90").configs
    tiles = configs[configs["family"] == "gemm_tile"]
    for axis in gemm_axes.OPTIONAL_AXES:
        assert set(tiles[axis]) == {UNUSED[axis]}
    assert set(configs["PROGRAMS_PER_SM"]) == {0, 1, 2}


def test_the_shipped_architectures() -> None:
    assert space.known_archs(RULES) == list(ARCHS)


def axes(change: dict[str, Any]) -> Edit:
    return lambda document: document["families"]["gemm_tile"].update(change)


def about_device(change: dict[str, Any]) -> Edit:
    return lambda document: document["device"].update(change)


BAD = {
    "unknown axis": (axes({"BLOCK_SIZE_X": [16]}), ["gemm_tile", "BLOCK_SIZE_X", "did you mean"]),
    "AMD axis on NVIDIA": (axes({"kpack": [1]}), ["gemm_tile", "kpack"]),
    "missing axis": (lambda d: d["families"]["gemm_tile"].pop("SPLIT_K"), ["gemm_tile", "lacks SPLIT_K"]),
    "not a power of two": (axes({"BLOCK_SIZE_M": [16, 48]}), ["BLOCK_SIZE_M holds 48", "each a power of two"]),
    "no third of a power of two": (axes({"BLOCK_SIZE_N": [96, 80]}), ["BLOCK_SIZE_N holds 80", "or three times one"]),
    "three is no power of two": (axes({"num_warps": [3]}), ["num_warps holds 3", "each a power of two"]),
    "flag of 2": (axes({"STREAM_B": [0, 2]}), ["STREAM_B holds 2", "from 0 to 1"]),
    "axis of long ago": (axes({"LAST_ARRIVER": [0]}), ["gemm_tile", "LAST_ARRIVER"]),
    "empty list": (axes({"num_warps": []}), ["num_warps is empty"]),
    "value twice": (axes({"num_stages": [2, 3, 2]}), ["num_stages holds 2 twice"]),
    "true for 1": (axes({"SPLIT_K": [True]}), ["SPLIT_K holds true"]),
    "text": (axes({"SPLIT_K": ["1"]}), ["SPLIT_K holds '1'"]),
    "a mapping in a list": (axes({"SPLIT_K": [{"a": 1}]}), ["SPLIT_K holds a mapping"]),
    "fraction": (axes({"num_stages": [2.0]}), ["num_stages holds 2.0"]),
    "zero": (axes({"GROUP_SIZE_M": [0]}), ["GROUP_SIZE_M holds 0"]),
    "no list": (axes({"GROUP_SIZE_M": 8}), ["GROUP_SIZE_M is 8"]),
    "huge value": (axes({"SPLIT_K": [10**9]}), ["SPLIT_K holds 1000000000", "65536"]),
    "huge product": (axes({a: list(range(1, 200)) for a in ("GROUP_SIZE_M", "SPLIT_K", "num_stages")}),
                     ["configurations", "at most 5000000"]),
    "axes are a list": (lambda d: d["families"].update(gemm_tile=[1]), ["gemm_tile", "not a mapping"]),
    "no families": (lambda d: d.update(families={}), ["families"]),
    "families missing": (lambda d: d.pop("families"), ["families"]),
    "family of another form": (lambda d: d.update(families={"gemm tile": {}}), ["'gemm tile'"]),
    "extra section": (lambda d: d.update(extra=1), ["device and families"]),
    "no facts": (lambda d: d.pop("architecture"), ["architecture", "not a mapping"]),
    "fact missing": (lambda d: d["architecture"].pop("tma"), ["architecture", "lacks tma"]),
    "fact unknown": (lambda d: d["architecture"].update(tmem=True), ["unknown key", "tmem"]),
    "unknown instructions": (lambda d: d["architecture"].update(matrix="hmma"), ["matrix is 'hmma'", "tcgen05"]),
    "instructions of AMD": (lambda d: d["architecture"].update(matrix="mfma"), ["matrix is mfma", "cuda"]),
    "fact is a number": (lambda d: d["architecture"].update(tma=1), ["tma is 1", "true, false"]),
    "no chiplets": (lambda d: d["architecture"].update(chiplets=0), ["chiplets is 0"]),
    "fp8 of another kind": (lambda d: d["architecture"].update(fp8="fnuz"), ["fp8_e4m3", "fp8 is fnuz"]),
    "GPUs as a list": (lambda d: d.update(gpus=["H200"]), ["gpus", "{H200: 232448}"]),
    "GPU without a limit": (lambda d: d.update(gpus={"H200": None}), ["gpus", "H200 is"]),
    "GPU of two words": (lambda d: d.update(gpus={"RTX 5090": 1}), ["gpus", "RTX 5090", "letters and digits"]),
    "unknown backend": (about_device({"backend": "metal"}), ["backend is 'metal'", "cuda, hip"]),
    "backend of another architecture": (about_device({"backend": "hip"}), ["backend is hip", "sm_90", "--arch"]),
    "device key missing": (lambda d: d["device"].pop("l2_bytes"), ["device", "lacks l2_bytes"]),
    "device key unknown": (about_device({"l2_byte": 1}), ["l2_byte", "did you mean l2_bytes"]),
    "device key of another type": (about_device({7: 1}), ["unknown key 7"]),
    "no device": (lambda d: d.pop("device"), ["device", "not a mapping"]),
    "device is text": (lambda d: d.update(device="H200"), ["device", "'H200'"]),
    "negative limit": (about_device({"num_sms": -1}), ["num_sms is -1", "above 0"]),
    "limit is a fraction": (about_device({"warp_size": 32.5}), ["warp_size is 32.5", "integer"]),
    "limit is true": (about_device({"num_sms": True}), ["num_sms is true"]),
    "infinite speed": (about_device({"dram_gbps": float("inf")}), ["dram_gbps is inf"]),
    "name is a number": (about_device({"name": 5}), ["name is 5"]),
    "no rates": (about_device({"matmul_tflops": {}}), ["matmul_tflops"]),
    "rate of 400 digits": (about_device({"matmul_tflops": {"bf16": 10**400}}), ["matmul_tflops of 'bf16' is 1000"]),
    "limit of 400 digits": (about_device({"num_sms": 10**400}), ["num_sms is 1000", "below 2^53"]),
    "rate of no type": (about_device({"matmul_tflops": {1: 5.0}}), ["matmul_tflops has the key 1"]),
    "name of two lines": (about_device({"name": "H200\n\x1b[31m"}), ["name is 'H200\\n", "one line"]),
    "families too many": (lambda d: d.update(families={f"f{i}": {} for i in range(65)}), ["65 families", "at most 64"]),
    "families too large together": (
        lambda d: d.update(families={f: {a: list(range(1, 1 + {"num_stages": 2000, "SPLIT_K": 2000}.get(a, 1)))
                                         for a in gemm_axes.AXES[:7]} for f in ("a", "b")}),
        ["has 8000000 configurations", "at most 5000000"]),
    "rate is text": (about_device({"matmul_tflops": {"bf16": "fast"}}), ["matmul_tflops of 'bf16' is 'fast'"]),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "words"), BAD.values(), ids=list(BAD))
def test_a_bad_space_file_is_named_with_its_key(tmp_path: Path, edit: Edit, words: list[str]) -> None:
    document = yaml.safe_load((RULES / "space_sm_90.yaml").read_text())
    edit(document)
    path = tmp_path / "mine.yaml"
    path.write_text(dump_yaml(document) if "inf" not in str(document) else yaml.safe_dump(document))
    with pytest.raises(UserError) as caught:
        space.load(path, "sm_90")
    message = caught.value.one_line()
    assert caught.value.exit_status == EXIT_INPUT
    assert [word for word in [str(path), *words] if word not in message] == []


def test_an_axis_of_all_values_is_read_at_once(tmp_path: Path) -> None:
    """Each value was once looked for in all before it: 2 * 10^9 comparisons."""
    document = yaml.safe_load((RULES / "space_sm_90.yaml").read_text())
    single = {axis: values[:1] for axis, values in document["families"]["gemm_tile"].items()}
    values = list(range(1, gemm_axes.HIGHEST + 1))
    document["families"] = {"gemm_tile": {**single, "num_stages": values}}
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps(document))
    assert len(space.frame(space.load(path, "sm_90"))) == gemm_axes.HIGHEST
    document["families"]["gemm_tile"]["num_stages"] = [*values, 1]
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="num_stages holds 1 twice"):
        space.load(path, "sm_90")


def test_an_axis_given_twice_and_a_list_for_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = (RULES / "space_sm_90.yaml").read_text()
    path.write_text(re.sub("( +)SPLIT_K: .*", r"\1SPLIT_K: [1]\n\1SPLIT_K: [2]", text))
    with pytest.raises(UserError, match="SPLIT_K"):
        space.load(path, "sm_90")
    path.write_text("- 1\n")
    with pytest.raises(UserError, match="is no space file"):
        space.load(path, "sm_90")


def test_an_unknown_architecture_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'gfx1'.*gfx90a, gfx942.*sm_80.*--space"):
        space.space_path(RULES, "gfx1")
    with pytest.raises(UserError, match=r"no space_\*.yaml"):
        space.space_path(tmp_path, "sm_90")


# What the issue says of each, and the guides of its maker; chiplets: dies with an L2 of their own.
FACTS = {
    "sm_80": Architecture("mma"),
    "sm_86": Architecture("mma"),
    "sm_89": Architecture("mma", fp8="ocp"),
    "sm_90": Architecture("wgmma", tma=True, clusters=True, fp8="ocp"),
    "sm_100": Architecture("tcgen05", tma=True, clusters=True, fp8="ocp"),
    "sm_103": Architecture("tcgen05", tma=True, clusters=True, fp8="ocp"),
    "sm_120": Architecture("mma", tma=True, clusters=True, fp8="ocp"),
    "gfx90a": Architecture("mfma"),
    "gfx942": Architecture("mfma", fp8="fnuz", chiplets=8),
    "gfx950": Architecture("mfma", fp8="ocp", chiplets=8),
    "gfx1100": Architecture("wmma"),
    "gfx1201": Architecture("wmma", fp8="ocp"),
}
KIB = 1024
# Shared memory of a block and threads of a warp.
LIMITS = {
    "sm_86": (99 * KIB, 32), "sm_89": (99 * KIB, 32), "sm_103": (227 * KIB, 32), "sm_120": (99 * KIB, 32),
    "gfx1100": (64 * KIB, 32), "gfx1201": (64 * KIB, 32), "gfx942": (64 * KIB, 64),
}  # fmt: skip


@pytest.mark.parametrize("arch", FACTS)
def test_the_facts_of_an_architecture(arch: str) -> None:
    found = device(arch)
    assert found.target.facts == FACTS[arch]
    if arch in LIMITS:
        assert (found.shared_memory_bytes, found.target.warp_size) == LIMITS[arch]


@pytest.mark.parametrize("arch", ARCHS)
def test_the_axes_use_what_the_architecture_has(arch: str) -> None:
    """Chiplets where there are some, and warp specialisation where warp groups multiply tiles that TMA loads."""
    families, facts = space.load(space.space_path(RULES, arch), arch).families, device(arch).target.facts
    chiplets = {n for axes in families.values() for n in axes["NUM_XCDS"]}
    assert max(chiplets) == facts.chiplets
    specialised = any(1 in axes["WARP_SPECIALIZE"] for axes in families.values())
    assert specialised == (facts.tma and facts.by_warp_groups)


def test_a_relative_serves_an_architecture_without_a_file() -> None:
    assert space.space_path(RULES, "sm_87").name == "space_sm_86.yaml"
    note = space.stand_in_note(RULES, "sm_87")
    assert "sm_87" in note and "sm_86" in note and "\n" not in note
    assert space.stand_in_note(RULES, "sm_86") == ""
    # What is compiled for stays what it is.
    assert space.load(space.space_path(RULES, "sm_87"), "sm_87").device.target.arch == "sm_87"
