"""Kernels compiled for every architecture without its GPU.

``make test`` compiles a 15th of the work of sm_90 and gfx942 and a 24th of each other architecture's, another
part for each; ``make test-all`` the rest.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import triton
from work import ARCHS, Work, compile_work, config_for, refusals, space_of

from gemm_tuner.core.records import Device, Status
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import ACTIVATIONS, SCALINGS, GemmProblem, Layout
from gemm_tuner.languages.triton.binary import cuobjdump_path

ROW, COL = Layout.ROW, Layout.COL
BF16 = GemmProblem(4096, 4096, 4096)
FLAT = replace(BF16, n=3)
LAYOUTS = tuple(itertools.product((ROW, COL), (ROW, COL)))
FAMILIES = ("gemm_tile", "gemm_persistent", "gemm_split_k", "gemm_stream_k", "gemm_packed", "gemv")
# Triton 3.6 does not compile any warp-specialised kernel here for Blackwell.
SPECIALISING = ("wgmma",) if triton.__version__.startswith("3.6.") else ("wgmma", "tcgen05")
WITH_ALL_TYPES = ("sm_90",)  # in every family
SAME_AS_FP32 = (("tf32", "gemv"),)  # no matrix unit


def small_config(device: Device, family: str, **more: int) -> KernelConfig:
    """That compiles fast."""
    own: dict[str, dict[str, int]] = {
        "gemm_tile": {},
        "gemm_persistent": {"PROGRAMS_PER_SM": 1, "EPILOGUE_SUBTILE": 2},
        "gemm_split_k": {"split_k": 4},
        "gemm_stream_k": {"PROGRAMS_PER_SM": 1, "EPILOGUE_SUBTILE": 2},
        "gemm_packed": {"split_k": 2, "PACK_BLOCK": 1024},
        "gemv": {"split_k": 2, "group": 1},
    }
    tile = (4, 64, 32) if family == "gemv" else (32, 32, 32)
    return config_for(device, *tile, family=family, **{**own[family], **more})


def typed(rate_key: str) -> GemmProblem:
    """The plain problem of a type that the space file gives a rate for."""
    if rate_key == "tf32":
        return replace(BF16, dtype_a="fp32", dtype_b="fp32", dtype_c="fp32", precision="tf32")
    dtype_c = rate_key if rate_key in ("bf16", "fp16", "fp32") else "int32" if rate_key == "int8" else "bf16"
    return replace(BF16, dtype_a=rate_key, dtype_b=rate_key, dtype_c=dtype_c)


def sized(problem: GemmProblem, family: str) -> GemmProblem:
    if family == "gemm_packed":
        return replace(problem, m=4095, n=4097, k=1023)  # nothing is packed of whole rows
    return replace(problem, n=3) if family == "gemv" else problem


def work_for(device: Device) -> Work:
    """Every family, type, scaling, activation and factor, the families and layouts in turns."""
    arch, types = device.target.arch, [key for key, _ in device.matmul_tflops]
    eight_bits = next((key for key in types if key.startswith("fp8")), "int8")
    scalable = replace(typed(eight_bits), dtype_c="bf16")
    scalings = [s for s in SCALINGS if s != "block" or eight_bits != "int8"]
    problems = [
        *(replace(scalable, scaling=scaling) for scaling in scalings),
        *(replace(BF16, activation=activation, alpha=0.5, bias=True) for activation in ACTIVATIONS),
        *(replace(typed("fp16"), beta=0.5), replace(typed("int8"), dtype_c="bf16", alpha=0.5, beta=0.5, bias=True)),
    ]
    turn, layouts = itertools.cycle(FAMILIES), itertools.cycle(LAYOUTS)
    work: Work = []
    for problem in problems:
        family = next(turn)
        if problem.scaling == "block" and family == "gemv":
            family = next(turn)
        layout_a, layout_b = next(layouts)
        problem = replace(sized(problem, family), layout_a=layout_a, layout_b=layout_b)
        work.append((problem, small_config(device, family)))
    if arch in WITH_ALL_TYPES:
        pairs = [pair for pair in itertools.product(types, FAMILIES) if pair not in SAME_AS_FP32]
        work += [(sized(typed(key), family), small_config(device, family)) for key, family in pairs]
    else:
        work += [(sized(BF16, family), small_config(device, family)) for family in FAMILIES]
        work += [
            (sized(typed(key), family), small_config(device, family)) for key, family in zip(types, turn, strict=False)
        ]
    work += [
        (replace(BF16, batch=3, beta=2.0), small_config(device, "gemm_tile")),
        (replace(BF16, batch=3, bias=True), small_config(device, "gemm_tile", split_k=2)),
        (replace(FLAT, m=3, n=4096), small_config(device, "gemv", split_k=1)),
        (BF16, small_config(device, "gemm_persistent", PROGRAMS_PER_SM=0, EPILOGUE_SUBTILE=1)),
    ]  # fmt: skip
    if device.target.backend == "hip":
        work.append((BF16, small_config(device, "gemm_tile", NUM_XCDS=8, STREAM_B=1)))
        work.append((BF16, small_config(device, "gemm_stream_k", NUM_XCDS=8, STREAM_B=1)))
    if device.target.facts.tma:
        apart = small_config(device, "gemm_packed", split_k=1, PROGRAMS_PER_SM=1, EPILOGUE_SUBTILE=2, ROW_STEP=8)
        work.append((sized(replace(BF16, layout_b=COL, beta=2.0, bias=True), "gemm_packed"), apart))
        thirds = config_for(device, 64, 96, 64, family="gemm_persistent", EPILOGUE_SUBTILE=3)
        work += [(replace(BF16, layout_b=COL), thirds), (BF16, replace(thirds, PROGRAMS_PER_SM=1))]
        work.append((replace(BF16, bias=True), replace(thirds, SPLIT_K=2)))
    if device.target.facts.matrix in SPECIALISING:
        plain = config_for(device, 128, 128, 64, family="gemm_persistent", stages=3, PROGRAMS_PER_SM=1)
        work.append((BF16, replace(plain, WARP_SPECIALIZE=1)))
    return list(dict.fromkeys(work))


# One part in so many of the work of an architecture by default; with ``-m grid``, the other parts too.
PARTS, OTHERS_PARTS = {"sm_90": 15, "gfx942": 15}, 24


def shares() -> list[Any]:
    found = []
    for number, arch in enumerate(ARCHS):
        of = PARTS.get(arch, OTHERS_PARTS)
        rest = tuple({*range(of)} - {number % of})
        found.append(pytest.param(arch, (number % of,), of, id=f"{arch}-part"))
        found.append(pytest.param(arch, rest, of, id=f"{arch}-rest", marks=pytest.mark.grid))
    return found


@pytest.mark.parametrize(("arch", "parts", "of"), shares())
def test_every_family_type_and_feature_compiles_and_comes_from_the_cache_again(
    tmp_path: Path, arch: str, parts: tuple[int, ...], of: int
) -> None:
    device = space_of(arch).device
    work = [one for part in parts for one in work_for(device)[part::of]]
    # Those wait for a barrier on AMD that waits for stores; what they compile to does not depend on it.
    waiting = {"slices_meet_in_one_launch"}
    assert [(p.key, c.name, why) for p, c in work if (why := set(refusals(c, p, device)) - waiting)] == []
    results = compile_work(device, work, tmp_path)
    assert [(p.key, r.name, r.message) for (p, _), r in zip(work, results, strict=True) if r.status != Status.OK] == []
    assert all(r.registers > 0 and not r.cached for r in results)
    assert max(r.spills for r in results) <= 16  # a few bytes of stack are no spill: fp32 on sm_100 has them
    assert len({r.binary_hash for r in results}) == len(work)
    if arch not in PARTS:
        return
    assert set(symbols(tmp_path / "cache", device)) >= {config.kernel_symbol for _, config in work}
    again = compile_work(device, work, tmp_path)
    assert all(r.cached for r in again)
    assert [(r.binary_hash, r.registers) for r in again] == [(r.binary_hash, r.registers) for r in results]


def symbols(cache: Path, device: Device) -> list[str]:
    """The names of the kernels in a cache, each of which is in its binary."""
    images = list(cache.rglob("*.cubin" if device.target.backend == "cuda" else "*.hsaco"))
    names = [json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["name"] for path in images]
    for name, image in zip(names, images, strict=True):
        assert f"\0{name}\0".encode() in image.read_bytes()
    return names


@pytest.mark.parametrize("arch", ARCHS)
def test_the_work_has_what_the_architecture_has(arch: str) -> None:
    """Every family, type, scaling, activation, layout and factor, a batch, and what only some have."""
    device = space_of(arch).device
    work = work_for(device)
    problems, types = [p for p, _ in work], [key for key, _ in device.matmul_tflops]
    met = {(c.family, p.rate_key) for p, c in work}
    assert {family for family, _ in met} == set(FAMILIES) and {key for _, key in met} == set(types)
    missing = {(key, family) for family, key in set(itertools.product(FAMILIES, types)) - met}
    assert arch not in WITH_ALL_TYPES or missing == set(SAME_AS_FP32)
    assert {p.activation for p in problems} == set(ACTIVATIONS)
    assert {(p.layout_a, p.layout_b) for p in problems} == set(LAYOUTS)
    assert {p.scaling for p in problems} == {s for s in SCALINGS if s != "block" or any("fp8" in t for t in types)}
    assert {p.has_alpha for p in problems} == {p.reads_c for p in problems} == {p.bias for p in problems}
    assert {p.batch for p in problems} == {1, 3}
    assert any(c.BLOCK_SIZE_N == 96 for _, c in work) == device.target.facts.tma
    assert any(c.WARP_SPECIALIZE for _, c in work) == (device.target.facts.matrix in SPECIALISING)


@pytest.mark.grid  # by default, the parts above have some of them
@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_the_symbol_in_the_binary_is_its_name(tmp_path: Path, arch: str) -> None:
    device = space_of(arch).device
    configs = [small_config(device, family) for family in FAMILIES if family != "gemv"]
    configs.append(small_config(device, "gemm_tile", split_k=2))
    vector = small_config(device, "gemv")
    compile_work(device, [*((sized(BF16, config.family), config) for config in configs), (FLAT, vector)], tmp_path)
    others = ["split_k_reduce_SK2", "add_slices_SK2", "pack_operands_PB1024_RS1"]
    assert sorted(symbols(tmp_path / "cache", device)) == sorted(
        [*(one.kernel_symbol for one in (*configs, vector)), *others]
    )


@pytest.mark.parametrize(
    ("family", "size", "loads"),
    [
        ("gemm_tile", (46, 376, 282), {"LDGSTS.E", "LDGSTS.E.BYPASS.128"}),  # rows of A at 4 bytes, of B at 16
        ("gemm_tile", (46, 372, 281), {"LDG.E.U16", "LDGSTS.E.64"}),
        ("gemv", (3, 372, 281), {"LDG.E.U16", "LDGSTS.E.64"}),
    ],
)
def test_neighbours_are_loaded_together_as_far_as_rows_allow(
    tmp_path: Path, family: str, size: tuple[int, int, int], loads: set[str]
) -> None:
    device, (m, n, k) = space_of("sm_90").device, size
    tile = (4, 64, 32) if family == "gemv" else (64, 64, 64)
    compile_work(device, [(replace(BF16, m=m, n=n, k=k), config_for(device, *tile, family=family))], tmp_path)
    (cubin,) = (tmp_path / "cache").rglob(f"{family}.cubin")
    listed = subprocess.run([cuobjdump_path(), "-sass", str(cubin)], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"LDG(?:STS)?\.E[.\w]*", listed)) - {"LDG.E.STRONG.GPU"} == loads


def test_accumulators_beyond_the_registers_spill(tmp_path: Path) -> None:
    device = space_of("sm_90").device
    fp16 = GemmProblem(4096, 4096, 4096, "fp16", "fp16", "fp16")
    large = config_for(device, 256, 128, 16)
    spilling, fitting = compile_work(device, [(fp16, large), (fp16, replace(large, BLOCK_SIZE_N=64))], tmp_path)
    assert spilling.status == fitting.status == Status.OK
    assert spilling.spills > 64 and spilling.registers == 255
    assert fitting.spills == 0 and fitting.registers < 255
