"""Kernels in CuTe DSL that an exported module launches, on a GPU; needs the DSL: pip install '.[cute]'."""

from __future__ import annotations

import importlib.util
import itertools
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpu_work import Gpu
from module_calls import choice, fault, header_of, loaded
from result_files import write_choices

from gemm_tuner.core.choice import Substitute
from gemm_tuner.core.records import Verified
from gemm_tuner.export.gemm.module import write_module
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="CuTe DSL is not installed"),
]

ROW, COL = Layout.ROW, Layout.COL
# (m, n, k): tile and further fields of a configuration. With slices of K that are equal and unequal, operands swapped.
TILES: dict[tuple[int, int, int], tuple[tuple[int, int, int], dict[str, int]]] = {
    (520, 264, 136): ((128, 96, 64), {"CLUSTER_M": 2}),
    (72, 1040, 528): ((64, 64, 64), {"SWAP_AB": 1, "CLUSTER_N": 2}),
    (128, 256, 1536): ((64, 128, 64), {"split_k": 3}),
    (40, 512, 2064): ((64, 32, 128), {"SWAP_AB": 1, "split_k": 4}),
    (1040, 1056, 144): ((128, 128, 64), {"PROGRAMS_PER_SM": 1, "PINGPONG": 1}),
    (264, 528, 400): ((128, 112, 128), {"PROGRAMS_PER_SM": 1}),
    (24, 784, 640): ((128, 32, 128), {"SWAP_AB": 1, "split_k": 2}),
}
BF16 = {"dtype_a": "bf16", "dtype_b": "bf16", "dtype_c": "bf16"}
E4M3 = {"dtype_a": "fp8_e4m3", "dtype_b": "fp8_e4m3", "dtype_c": "bf16", "layout_b": COL}
EVERYTHING: dict[str, Any] = {"alpha": 0.5, "beta": 2.0, "bias": True, "activation": "gelu"}
KINDS: dict[str, tuple[dict[str, Any], ...]] = {
    "layouts": tuple({**BF16, "layout_a": a, "layout_b": b} for a, b in itertools.product(Layout, Layout)),
    "epilogues": (
        {**BF16, "layout_b": COL, **EVERYTHING},
        {**BF16, "layout_a": COL, "beta": -1.0, "activation": "relu"},
        {**BF16, "bias": True, "activation": "silu"},
        {**BF16, "layout_b": COL, "alpha": 0.5},
    ),
    "fp32": ({**BF16, "dtype_c": "fp32", "layout_b": COL, "bias": True},),
    "batches": tuple({**BF16, "batch": 3, "layout_a": a, "layout_b": b, **more}
                     for a, b, more in ((ROW, ROW, {}), (ROW, COL, EVERYTHING), (COL, ROW, {"bias": True}))),
    "scales": (
        {**E4M3, "scaling": "tensor"},
        {**E4M3, "scaling": "row_col", "bias": True},
        {**E4M3, "dtype_b": "fp8_e5m2", "scaling": "row_col", "activation": "relu"},
    ),
    "scales of blocks": ({**E4M3, "scaling": "block"}, {**E4M3, "scaling": "block", **EVERYTHING}),
}  # fmt: skip


def pairs_of(gpu: Gpu, kind: str) -> Iterator[tuple[GemmProblem, KernelConfig]]:
    for more in KINDS[kind]:
        for size, (tile, fields) in TILES.items():
            problem = GemmProblem(*size, **more)
            config = gpu.config(*tile, family="gemm_cute", warps=0, stages=0, **fields)
            if gpu.takes(problem, config):
                yield problem, config


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_multiplies_is_right(gpu: Gpu, kind: str) -> None:
    """A module that cannot launch a kernel in CuTe DSL takes Triton's, with or without a warning: then this fails."""
    pairs = list(pairs_of(gpu, kind))
    assert len(pairs) >= 2 * len(KINDS[kind])
    other = Substitute(gpu.config(64, 64, 64, stages=2), 12.5, Verified.TRUE)
    rows = [replace(choice(problem, config), substitute=other) for problem, config in pairs]
    path = gpu.folder / f"in_cute_{kind}.yaml"
    write_choices(path, header_of(gpu), rows)
    made = write_module(path, gpu.folder / f"in_cute_{kind}.py")
    assert (made.num_cute, made.left_out, made.costs) == (len(pairs), (), ())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        module = loaded(made.path)
        assert [text for problem, _ in pairs if (text := fault(module, problem, 3))] == []
    assert {type(plan).__name__ for plan in module._PLANS.values()} == {"_CutePlan"}
