"""Kernels in CuTe DSL on a GPU; needs the DSL: pip install '.[cute]'."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cute_copy import copy
from cute_tiles import OF_ODD_ROWS
from dropping import terms_to_drop
from gpu_work import Gpu
from samples import ROOT

import gemm_tuner as gt
from gemm_tuner.core.language import language_of
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.gemm.operands import Operands
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.measure import probe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="CuTe DSL is not installed"),
]


def test_what_was_compiled_before_copies_and_is_tuned(tmp_path: Path) -> None:
    import torch

    arch = probe.gpus()[0]["arch"]
    compiled = gt.par_compile(copy, [{"threads": 64}], target=arch, language="cute")
    assert [one.status for one in compiled] == [Status.OK], compiled
    gt.save_compiled(compiled, tmp_path / "kernels.json")
    (found,) = gt.read_compiled(tmp_path / "kernels.json")
    x = torch.randn(1000, 64, dtype=torch.bfloat16, device="cuda")
    y = torch.empty_like(x)
    kernel = gt.callables(
        lambda config: gt.load_compiled(found),
        [found.config],
        reference=lambda x, y: x,
        outputs=lambda x, y: (y,),
        output_dir=None,
    )
    tuned = kernel.tune(x, y)
    assert tuned.winner.verified is Verified.TRUE and tuned.latency_us > 0
    y.zero_()
    launch: Any = kernel
    launch(x, y)
    assert torch.equal(x, y)


LAUNCHED_AFTER_A_FAULT = """
import os
import sys
import torch
import gemm_tuner as gt
from gemm_tuner.launch.failures import status_of
launch = gt.load_compiled(gt.read_compiled(sys.argv[1])[0])
x = torch.zeros(8, 64, dtype=torch.bfloat16, device="cuda")
y = torch.empty_like(x)
launch(x, y)
torch.cuda.synchronize()
x[torch.tensor([100], device="cuda")]  # which a kernel of torch finds out
try:
    for _ in range(10**6):
        launch(x, y)
except Exception as error:
    print(status_of(error).value, error, flush=True)
os._exit(0)  # an end that tidies up may hang
"""


def test_a_launch_that_finds_the_gpu_lost_ends_the_process(tmp_path: Path) -> None:
    """Its runtime says the number of CUDA's error alone."""
    compiled = gt.par_compile(copy, [{"threads": 64}], target=probe.gpus()[0]["arch"], language="cute")
    gt.save_compiled(compiled, tmp_path / "kernels.json")
    command = [sys.executable, "-c", LAUNCHED_AFTER_A_FAULT, str(tmp_path / "kernels.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.startswith("crashed "), done.stdout + done.stderr


# dtype_a, dtype_b, dtype_c, layout_b
BLOCKS = "e4m3, scales of blocks"
TYPES = {
    "bf16": ("bf16", "bf16", "bf16", Layout.ROW),
    "bf16 to fp32": ("bf16", "bf16", "fp32", Layout.COL),
    "fp16": ("fp16", "fp16", "fp16", Layout.COL),
    "e4m3": ("fp8_e4m3", "fp8_e4m3", "bf16", Layout.COL),
    "e5m2 by e4m3": ("fp8_e5m2", "fp8_e4m3", "fp16", Layout.COL),
    BLOCKS: ("fp8_e4m3", "fp8_e4m3", "bf16", Layout.COL),
}
# Tile, and what else the configuration has: persistent, in turns, clusters, swapped, equal and unequal slices of K.
CONFIGS = (
    ((128, 128, 64), {"PROGRAMS_PER_SM": 1, "CLUSTER_M": 2}),
    ((64, 96, 64), {"PROGRAMS_PER_SM": 1, "PINGPONG": 1, "SWAP_AB": 1}),
    ((128, 64, 64), {"split_k": 3}),
    ((128, 64, 64), {"split_k": 4, "SWAP_AB": 1, "CLUSTER_N": 2}),
)
# In turns and in parts; tiles that reach into one, two and three blocks of columns.
OF_BLOCKS: Any = (
    ((128, 128, 128), {"PROGRAMS_PER_SM": 1, "CLUSTER_M": 2}),
    ((64, 96, 128), {}),
    ((256, 128, 128), {"PROGRAMS_PER_SM": 1}),
    ((192, 96, 128), {"CLUSTER_N": 2}),
    ((128, 192, 128), {}),
    ((128, 208, 128), {}),
    ((128, 64, 128), {"split_k": 2}),
    ((128, 64, 128), {"split_k": 3}),
    ((64, 32, 128), {"SWAP_AB": 1, "split_k": 4}),
    ((128, 80, 128), {"SWAP_AB": 1, "split_k": 3}),
    ((256, 64, 128), {"SWAP_AB": 1}),
)


@pytest.mark.parametrize("kind", TYPES)
def test_every_term_that_is_left_out_shows(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The kernels' text is a library's: one that leaves out term k gives what the kernel gives where column k of A is
    zero. With none left out, the whole check is content."""
    from gemm_tuner.gemm.check import Caller, check, exact_difference
    from gemm_tuner.gemm.exact_operands import count_sets, make_exact_operands, with_exact_factors

    for name, value in language_of("cute").environment(gpu.cache).items():
        monkeypatch.setenv(name, value)
    dtype_a, dtype_b, dtype_c, layout_b = TYPES[kind]
    scaling, tiles = ("block", OF_BLOCKS) if kind == BLOCKS else ("none", CONFIGS)
    whole = GemmProblem(96, 160, 1008, dtype_a, dtype_b, dtype_c, layout_b=layout_b, scaling=scaling)
    problems = [whole, replace(whole, k=32768)]
    configs = [gpu.config(*tile, family="gemm_cute", warps=0, stages=0, **more) for tile, more in tiles]
    pairs = [(problem, config) for problem in problems for config in configs if gpu.takes(problem, config)]
    assert len(pairs) >= len(problems) * 2
    (script,) = gpu.scripts(pairs, language="cute").values()
    for given, config in pairs:
        verdict = check(script, given, config.name, 1, "cuda")
        assert verdict.ok, f"{given.key} {config.name}: {verdict.message}"
        problem = with_exact_factors(given)
        caller = Caller.of(script, problem, config.name, "cuda")
        unseen = terms_to_drop(given.k, config.BLOCK_SIZE_K, config.SPLIT_K)
        for number in range(count_sets(problem)):
            operands = make_exact_operands(problem, number, 1, "cuda")
            dropped, unseen = unseen, []
            for term in dropped:
                if exact_difference(caller.result(problem, without(operands, term)), problem, operands) is None:
                    unseen.append(term)
        assert unseen == [], f"{given.key} {config.name}"


def without(operands: Operands, term: int) -> Operands:
    """The operands with zeros in one column of A, which is row-major, so that one product of every sum is left out."""
    import torch

    a = operands.a.clone()
    a.view(torch.int8 if a.element_size() == 1 else torch.int16)[:, term] = 0
    return replace(operands, a=a)


# What clusters share is loaded in parts: of 104 columns by four blocks, of 64 rows by eight.
SHARED = (
    ((64, 96, 128), {"SWAP_AB": 1, "CLUSTER_M": 4, "CLUSTER_N": 2}),
    ((64, 96, 128), {"SWAP_AB": 1, "CLUSTER_M": 2, "CLUSTER_N": 4}),
    ((128, 80, 64), {"CLUSTER_M": 4}),
    ((128, 80, 64), {"CLUSTER_M": 2, "CLUSTER_N": 2}),
    ((128, 64, 64), {"CLUSTER_N": 8}),
    ((128, 64, 64), {"CLUSTER_M": 8}),
)
IN_EIGHTS = (
    ((64, 104, 128), {"SWAP_AB": 1, "CLUSTER_M": 4, "CLUSTER_N": 2}),
    ((64, 104, 128), {"SWAP_AB": 1, "CLUSTER_M": 2}),
    ((64, 72, 256), {"SWAP_AB": 1, "split_k": 3}),
    ((64, 24, 128), {"SWAP_AB": 1, "CLUSTER_N": 2}),
    ((64, 40, 256), {"SWAP_AB": 1, "CLUSTER_M": 4}),
    ((128, 136, 128), {"SWAP_AB": 1, "CLUSTER_N": 2, "split_k": 2}),
    ((256, 152, 128), {"SWAP_AB": 1, "PROGRAMS_PER_SM": 1}),
    ((128, 120, 128), {"SWAP_AB": 1, "PROGRAMS_PER_SM": 1, "PINGPONG": 1}),
)
OF_16_BITS = (
    *((tile, more) for tile, more in IN_EIGHTS if tile[0] == 64),
    ((128, 136, 64), {"SWAP_AB": 1, "CLUSTER_N": 2, "split_k": 2}),
    ((256, 152, 64), {"SWAP_AB": 1, "PROGRAMS_PER_SM": 1, "CLUSTER_M": 2}),
    ((256, 152, 64), {"SWAP_AB": 1, "CLUSTER_N": 2}),
    ((128, 120, 64), {"SWAP_AB": 1, "PROGRAMS_PER_SM": 1, "PINGPONG": 1, "CLUSTER_M": 4}),
    ((192, 88, 64), {"SWAP_AB": 1, "PROGRAMS_PER_SM": 1, "PINGPONG": 1}),
    ((128, 200, 64), {"SWAP_AB": 1, "PROGRAMS_PER_SM": 1, "PINGPONG": 1, "CLUSTER_M": 2}),
)


def faults(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, family: str, problems: list[GemmProblem], tiles: Any
) -> list[str]:
    """What the check says of each problem by each configuration that takes it."""
    from gemm_tuner.gemm.check import check

    for name, value in language_of("cute").environment(gpu.cache).items():
        monkeypatch.setenv(name, value)
    configs = [gpu.config(*tile, family=family, warps=0, stages=0, **more) for tile, more in tiles]
    pairs = [(problem, config) for problem in problems for config in configs if gpu.takes(problem, config)]
    assert {config for _, config in pairs} == set(configs)
    scripts = gpu.scripts(pairs, language="cute")
    found = []
    for problem, config in pairs:
        verdict = check(scripts[config.family, problem.signature], problem, config.name, 1, "cuda")
        if not verdict.ok:
            found.append(f"{problem.key} {config.name}: {verdict.message}")
    return found


def test_blocks_of_clusters_of_eight_get_what_they_share(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    bf16 = GemmProblem(700, 1104, 1032, "bf16", "bf16", "bf16", layout_b=Layout.COL)
    assert faults(gpu, monkeypatch, "gemm_cute", [bf16, replace(bf16, m=1024, layout_b=Layout.ROW)], SHARED) == []


def test_columns_in_eights_are_right(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    fp8 = GemmProblem(200, 1104, 2064, "fp8_e4m3", "fp8_e4m3", "bf16", layout_b=Layout.COL)
    scaled = replace(fp8, scaling="row_col", bias=True, activation="gelu")
    fp32 = replace(fp8, dtype_c="fp32", m=333)
    assert faults(gpu, monkeypatch, "gemm_cute", [fp8, scaled, fp32], IN_EIGHTS) == []
    bf16 = GemmProblem(333, 1104, 1032, "bf16", "bf16", "bf16")
    finished = replace(bf16, layout_b=Layout.COL, dtype_c="fp32", bias=True, activation="silu")
    assert faults(gpu, monkeypatch, "gemm_cute", [bf16, finished, replace(bf16, m=4096, n=2048)], OF_16_BITS) == []


def test_scales_of_blocks_are_applied(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """At sides that no tile divides, one row, K shorter than a block, and with everything after the sums."""
    blocks = GemmProblem(333, 720, 1040, "fp8_e4m3", "fp8_e5m2", "fp32", layout_b=Layout.COL, scaling="block")
    everything: dict[str, Any] = {"alpha": 0.5, "beta": 1.5, "bias": True, "activation": "silu"}
    few = replace(blocks, m=1, n=2112, dtype_c="bf16")
    problems = [blocks, replace(blocks, dtype_c="fp16", **everything), few, replace(few, m=70, k=64)]
    assert faults(gpu, monkeypatch, "gemm_cute", problems, OF_BLOCKS) == []


PACKED = (
    ((128, 128, 64), {"PROGRAMS_PER_SM": 1, "PINGPONG": 1, "CLUSTER_M": 2}),
    ((64, 96, 64), {"SWAP_AB": 1}),
    ((128, 64, 64), {"split_k": 3, "CLUSTER_N": 2}),
    ((128, 128, 64), {"PROGRAMS_PER_SM": 1, "PINGPONG": 1, "CLUSTER_N": 4, "SWAP_AB": 1}),
)


def test_packed_operands_are_multiplied(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing odd but A, B or C, and with everything odd, in all layouts."""
    odd = GemmProblem(333, 515, 777, "bf16", "bf16", "bf16")
    layouts = [replace(odd, layout_a=a, layout_b=b) for a in Layout for b in Layout]
    problems = [*layouts, replace(odd, n=512), replace(odd, k=768), replace(odd, k=768, layout_b=Layout.COL)]
    problems += [replace(odd, alpha=2.0, beta=0.5, bias=True, activation="relu"), replace(odd, n=512, bias=True)]
    fp8 = replace(odd, dtype_a="fp8_e4m3", dtype_b="fp8_e5m2", layout_b=Layout.COL, scaling="row_col")
    tiles = [(tile, {"PACK_BLOCK": 2048, **more}) for tile, more in PACKED]
    assert faults(gpu, monkeypatch, "gemm_cute_packed", [*problems, fp8], tiles) == []


IN_PLACE: Any = (
    ((128, 256, 64), {"PROGRAMS_PER_SM": 1, "CLUSTER_M": 2}),
    ((128, 128, 64), {"PROGRAMS_PER_SM": 1, "PINGPONG": 1, "SWAP_AB": 1}),
    ((192, 160, 64), {"SWAP_AB": 1}),
    ((64, 48, 128), {"SWAP_AB": 1, "split_k": 4}),
    ((64, 224, 64), {"SWAP_AB": 1, "CLUSTER_M": 4}),
    ((128, 64, 64), {"split_k": 3}),
    ((64, 32, 64), {"SWAP_AB": 1, "split_k": 27}),
    ((64, 16, 256), {}),
    ((64, 16, 64), {"SWAP_AB": 1}),
)


def test_an_operand_is_read_in_place(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """In all layouts, with rows at multiples of 2, 4, 8 and 16 bytes, with the other operand packed or not."""
    odd = GemmProblem(333, 515, 2049, "bf16", "bf16", "bf16")
    layouts = [replace(odd, layout_a=a, layout_b=b) for a in Layout for b in Layout]
    problems = [
        *layouts,
        replace(odd, n=514, k=1028),
        replace(odd, n=516, k=1030),
        replace(odd, n=512),
        replace(odd, k=2048),
    ]
    problems += [replace(odd, beta=0.5, bias=True, activation="relu"), replace(odd, m=3, n=5001, dtype_c="fp32")]
    problems += [replace(odd, m=1100, n=2563, dtype_a="fp16", dtype_b="fp16", dtype_c="fp16", alpha=0.5)]
    problems += [replace(odd, m=5, bias=True), replace(odd, m=4, n=1024, k=2050)]  # a C whose slices load at once
    tiles = [(tile, {"PACK_BLOCK": 2048, **more}) for tile, more in IN_PLACE]
    assert faults(gpu, monkeypatch, "gemm_cute_in_place", problems, tiles) == []


def test_rows_of_c_start_anywhere(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """At multiples of 2, 4 and 8 bytes, over several tiles of a persistent grid, and at edges."""
    odd = GemmProblem(1100, 2563, 512, "bf16", "bf16", "bf16", layout_b=Layout.COL)
    finished = replace(odd, bias=True, activation="silu", alpha=0.5)
    problems = [odd, replace(odd, n=2562), replace(odd, n=2564), finished, replace(finished, dtype_c="fp32")]
    problems += [replace(odd, m=5, n=129), replace(odd, m=257, n=6001, dtype_a="fp16", dtype_b="fp16", dtype_c="fp16")]
    tiles = [(tile, {"PACK_BLOCK": 2048, **more}) for tile, more in OF_ODD_ROWS]
    assert faults(gpu, monkeypatch, "gemm_cute_packed", problems, tiles) == []
