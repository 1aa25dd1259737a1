"""The kernels on a real GPU: ``pytest -m gpu tests/gpu``. Every kernel is compiled by the pool before it is loaded."""

from __future__ import annotations

import io
import itertools
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_work import FAMILIES, LAYOUTS, Gpu, random_pairs, wrong_cases

from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.launch.journal import Journal
from gemm_tuner.launch.plan import STOP_FILE, VERIFY, Method, Plan, Work

# torch warns of its own settings and of NVIDIA's Python packages, some versions do.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.*TF32.*:UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

ROW, COL = Layout.ROW, Layout.COL
GIB = 2**30
# dtype_a, dtype_b, dtype_c, precision; how often each configuration has its turn; scalings
TYPES = {
    "bf16": (("bf16", "bf16", "bf16", "ieee"), 2, ("none",)),
    "fp16": (("fp16", "fp16", "fp16", "ieee"), 2, ("none",)),
    "fp32": (("fp32", "fp32", "fp32", "ieee"), 2, ("none",)),
    "tf32": (("fp32", "fp32", "fp32", "tf32"), 1, ("none",)),
    "bf16 to fp32": (("bf16", "bf16", "fp32", "ieee"), 1, ("none",)),
    "e4m3": (("fp8_e4m3", "fp8_e4m3", "bf16", "ieee"), 2, ("none", "tensor", "row_col", "block")),
    "e5m2 by e4m3": (("fp8_e5m2", "fp8_e4m3", "fp16", "ieee"), 1, ("tensor", "row_col", "block")),
    "e4m3 fnuz": (("fp8_e4m3_fnuz", "fp8_e4m3_fnuz", "bf16", "ieee"), 2, ("none", "tensor", "row_col", "block")),
    "int8": (("int8", "int8", "int32", "ieee"), 1, ("none",)),
    "int8 to bf16": (("int8", "int8", "bf16", "ieee"), 2, ("none", "tensor", "row_col")),
}


@pytest.mark.parametrize("kind", TYPES)
def test_all_families_are_right_with_this_type(gpu: Gpu, kind: str) -> None:
    """Sides from 1 to 4096, odd and even, layouts, epilogues, scales and batches, at random."""
    (dtype_a, dtype_b, dtype_c, precision), turns, scalings = TYPES[kind]
    plain = GemmProblem(1, 1, 1, dtype_a, dtype_b, dtype_c, precision=precision)
    if not gpu.has_type(plain.rate_key):
        pytest.skip(f"{gpu.device.target.arch} has no {plain.rate_key}")
    pairs = list(random_pairs(gpu, plain, turns * len(gpu.configs()), scalings, kind))
    assert {config.family for _, config in pairs} == set(FAMILIES)
    assert wrong_cases(gpu, pairs) == []


CORNERS = ((1, 1, 1), (4095, 4095, 4095), (1, 4095, 4095), (4095, 1, 1000), (64, 64, 1), (1000, 1000, 1000))


def test_corners_are_right_in_every_layout(gpu: Gpu) -> None:
    pairs = [
        (problem, config)
        for size, (layout_a, layout_b) in itertools.product(CORNERS, LAYOUTS)
        for config in (gpu.configs()[1], gpu.configs()[2], gpu.configs()[5], gpu.configs()[15])
        if gpu.takes(problem := GemmProblem(*size, layout_a=layout_a, layout_b=layout_b), config)
    ]
    assert wrong_cases(gpu, pairs) == []


CLASSES = (
    (16, 16, 16), (1, 4096, 4096), (1, 5120, 1), (17, 5120, 5120), (1000, 1000, 1000), (1024, 1024, 1024),
    (4095, 4097, 33), (128, 4096, 14336), (4864, 4096, 4160), (8, 24, 72),
)  # fmt: skip


def test_kernels_that_the_pool_compiled_are_never_compiled_again(gpu: Gpu) -> None:
    configs = (gpu.config(64, 64, 64, stages=3 if gpu.device.target.backend == "cuda" else 2), gpu.config(16, 32, 64))
    pairs = [
        (GemmProblem(*size, layout_a=layout_a, layout_b=layout_b), replace(config, SPLIT_K=split_k))
        for size, (layout_a, layout_b), config, split_k in itertools.product(CLASSES, LAYOUTS, configs, (1, 4))
    ]
    assert wrong_cases(gpu, pairs) == []


SHARING = {
    "gemm_tile": ((64, 64, 64), {"split_k": 16}, GemmProblem(257, 1000, 14336)),
    "gemm_persistent": ((128, 64, 64), {"PROGRAMS_PER_SM": 1}, GemmProblem(1000, 4096, 1024)),
    "gemm_split_k": ((64, 64, 64), {"split_k": 16}, GemmProblem(257, 1000, 14336)),
    "gemm_stream_k": ((64, 64, 64), {"PROGRAMS_PER_SM": 1}, GemmProblem(257, 4000, 4096)),
    "gemm_packed": ((64, 64, 64), {"split_k": 4, "PACK_BLOCK": 1024}, GemmProblem(257, 1001, 4099)),
    "gemv": ((4, 32, 64), {"split_k": 8, "group": 1}, GemmProblem(3, 4095, 14336)),
}


@pytest.mark.parametrize("family", SHARING)
def test_ten_calls_give_the_same_bits(gpu: Gpu, family: str) -> None:
    """With one scratch, whose locks each call leaves zero."""
    import torch

    from gemm_tuner.core.workload import launch_all
    from gemm_tuner.gemm.kernels import call_size, make_scratch
    from gemm_tuner.gemm.operands import make_operands
    from gemm_tuner.languages.scratch import count_sms

    tile, more, problem = SHARING[family]
    config = gpu.config(*tile, family=family, **more)
    script = gpu.script(problem, config)
    operands, values, num_sms = (
        make_operands(problem, "randn", 3, "cuda"),
        script.CONFIGS[config.name],
        count_sms("cuda"),
    )
    scratch = make_scratch(script, values, problem, "cuda", num_sms)
    results = []
    for _ in range(10):
        operands.c.fill_(float("nan"))
        launch_all(script.calls(values, call_size(problem), operands, scratch, num_sms))
        assert scratch.locks is None or not scratch.locks.any()
        results.append(operands.c.clone().view(torch.int16))
    assert not operands.c.isnan().any()
    assert all(torch.equal(results[0], other) for other in results[1:])


LARGE = {
    "C": (GemmProblem(2**16, 2**16, 64), 1, "gemm_tile"),
    "C in odd rows": (GemmProblem(2**15 + 1, 2**16 + 3, 65), 1, "gemm_tile"),
    "C and its partial sums": (GemmProblem(2**16, 2**15, 128), 2, "gemm_tile"),
    "A": (GemmProblem(2**16, 64, 2**15 + 64), 1, "gemm_tile"),
    "A in columns": (GemmProblem(2**16 + 8, 64, 2**15 + 64, layout_a=COL), 1, "gemm_tile"),
    "B": (GemmProblem(64, 2**16, 2**15 + 64), 4, "gemm_tile"),
    "B in columns": (GemmProblem(64, 2**16, 2**15 + 71, layout_b=COL), 4, "gemm_tile"),
    "C, persistent": (GemmProblem(2**15 + 1, 2**16 + 8, 72), 1, "gemm_persistent"),
    "A in columns, persistent": (GemmProblem(2**16 + 8, 64, 2**15 + 71, layout_a=COL), 1, "gemm_persistent"),
    "B, persistent": (GemmProblem(64, 2**16, 2**15 + 64), 1, "gemm_persistent"),
}


@pytest.mark.parametrize("what", LARGE)
def test_matrices_beyond_2_to_the_31_elements_are_right(gpu: Gpu, what: str) -> None:
    """Checked where an offset of 32 bits would wrap, at the ends and at random; nowhere may a NaN stay."""
    import torch

    from gemm_tuner.core.workload import launch_all
    from gemm_tuner.gemm.kernels import call_size, make_scratch
    from gemm_tuner.gemm.operands import make_operands
    from gemm_tuner.languages.scratch import count_sms

    problem, split_k, family = LARGE[what]
    if gpu.device.memory_bytes < 100 * GIB:
        pytest.skip("needs a GPU of 100 GiB")
    more = {"PROGRAMS_PER_SM": 2} if family == "gemm_persistent" else {}
    config = gpu.config(64, 64, 64, split_k=split_k, family=family, **more)
    script = gpu.script(problem, config)
    torch.cuda.empty_cache()
    operands, num_sms = make_operands(problem, "randn", 5, "cuda"), count_sms("cuda")
    assert max(t.numel() for t in (operands.a, operands.b, operands.c)) >= 2**31
    values = script.CONFIGS[config.name]
    scratch = make_scratch(script, values, problem, "cuda", num_sms)
    launch_all(script.calls(values, call_size(problem), operands, scratch, num_sms))
    del scratch
    assert gpu.counter.compiled == 0
    assert not any(block.isnan().any() for block in operands.c.split(4096))

    a, b = operands.logical(problem)
    rows, columns = sampled(problem.m, problem.n, problem.k), sampled(problem.n, problem.m, problem.k)
    for got, left, right in ((operands.c[rows], a[rows], b), (operands.c[:, columns], a, b[:, columns])):
        message = difference(got, left, right, problem, config)
        assert message == "", message


def sampled(extent: int, *others: int) -> list[int]:
    """Indices of rows: the ends, those around element 2**31 - 1 of any matrix, and some at random."""
    draw = random.Random(extent)
    wanted = {0, extent - 1, *(draw.randrange(extent) for _ in range(6))}
    wanted |= {2**31 // other + step for other in others for step in (-1, 0, 1)}
    return sorted(index for index in wanted if 0 <= index < extent)


def difference(got: Any, left: Any, right: Any, problem: GemmProblem, config: KernelConfig) -> str:
    """What is wrong with a part of C, the product of these rows and columns; in parts of the longer side, since a
    float64 copy of 2**31 elements takes 16 GiB."""
    from gemm_tuner.gemm.compare import compare
    from gemm_tuner.gemm.operands import Operands
    from gemm_tuner.gemm.reference import reference

    step = 4096
    for start in range(0, max(got.shape), step):
        rows, columns = slice(start, start + step), slice(None)
        if got.shape[1] > got.shape[0]:
            rows, columns = columns, rows
        part = got[rows, columns].contiguous()
        own = replace(problem, m=part.shape[0], n=part.shape[1], layout_a=ROW, layout_b=ROW)
        expected, slack = reference(own, Operands(left[rows], right[:, columns], part))
        verdict = compare(part, expected, slack, own, config.name)
        if not verdict.ok:
            return f"from {start}: {verdict.message}"
    return ""


def test_a_warp_specialised_kernel_runs(gpu: Gpu) -> None:
    """It makes its descriptors itself, in memory that the launcher must give."""
    config = gpu.config(128, 128, 64, family="gemm_persistent", stages=3, PROGRAMS_PER_SM=1, WARP_SPECIALIZE=1)
    problems = [GemmProblem(1000, 4096, 512), GemmProblem(129, 136, 72, "fp16", "fp16", "fp16", ROW, COL, bias=True)]
    if not gpu.takes(problems[0], config):
        pytest.skip(f"no warp specialisation on {gpu.device.target.arch}")
    assert wrong_cases(gpu, [(problem, config) for problem in problems]) == []


def test_a_kernel_that_does_not_fit_is_out_of_resources(gpu: Gpu, tmp_path: Path) -> None:
    """And the ones after it still run."""
    from gemm_tuner.launch.verify import verify

    limit = gpu.device.shared_memory_bytes
    large = gpu.config(64, 128, 256, stages=8, warps=8)
    assert limit < (64 + 128) * 256 * 2 * 7
    fits, problem = gpu.config(32, 32, 32), GemmProblem(64, 64, 2048)
    script = gpu.scripts([(problem, large), (problem, fits)])["gemm_tile", problem.signature]
    stream = io.StringIO()
    plan = Plan(VERIFY, ("",), (Work(problem, ((0, large.name), (0, fits.name))),), Method())
    verify(plan, Journal(stream), [script], tmp_path / STOP_FILE, interpreted=False)
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    failed = [(e["name"], e["status"]) for e in events if e["event"] == "fail"]
    assert failed == [(large.name, "out_of_resources")]
    assert [e["ok"] for e in events if e["event"] == "verdict" and e["name"] == fits.name] == [True, True]
