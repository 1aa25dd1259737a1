"""The exported module on the GPU at hand: right, under torch.compile, in CUDA graphs, without waiting for the GPU."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from gpu_work import ROOT, Gpu
from module_calls import choice, fault, header_of, loaded, operands_of
from result_files import write_choices

from gemm_tuner.export.gemm.module import write_module
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout, as_gemm
from gemm_tuner.store import results

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.*TF32.*:UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*ynchronization debug mode.*:UserWarning"),
]

ROW, COL = Layout.ROW, Layout.COL
KINDS = {"bf16_nn": (ROW, ROW), "bf16_nt": (ROW, COL), "bf16_tn": (COL, ROW)}
SIDES = (1, 2, 7, 16, 33, 64, 100, 512, 1000, 1001, 2047, 4096)


def tuned(gpu: Gpu) -> dict[tuple[int, int, int], KernelConfig]:
    """A size for each family that the GPU takes, with configurations that split K by locks and by a second kernel."""
    wanted = {
        (512, 512, 512): gpu.config(64, 64, 64),
        (64, 64, 4096): gpu.config(64, 32, 64, split_k=4, group=2),
        (1000, 1000, 1000): gpu.config(128, 64, 64, family="gemm_persistent", stages=3, PROGRAMS_PER_SM=1),
        (1024, 960, 512): gpu.config(128, 192, 64, family="gemm_persistent", warps=8, EPILOGUE_SUBTILE=3),
        (2048, 2048, 512): gpu.config(
            128, 128, 64, family="gemm_persistent", stages=3, PROGRAMS_PER_SM=1, WARP_SPECIALIZE=1
        ),
        (16, 1024, 4096): gpu.config(16, 64, 64, family="gemm_split_k", split_k=4),
        (1024, 1088, 1024): gpu.config(
            128, 128, 64, family="gemm_stream_k", warps=8, stages=3, PROGRAMS_PER_SM=1, EPILOGUE_SUBTILE=2
        ),
        (1001, 1003, 515): gpu.config(64, 64, 64, family="gemm_packed", PROGRAMS_PER_SM=1, PACK_BLOCK=1024),
        (65, 1003, 4099): gpu.config(64, 64, 64, family="gemm_packed", split_k=4, PACK_BLOCK=1024),
        (2, 1024, 4096): gpu.config(2, 32, 64, family="gemv", split_k=2, group=1),
    }
    return {size: config for size, config in wanted.items() if gpu.takes(GemmProblem(*size), config)}


@pytest.fixture(scope="module")
def module(gpu: Gpu) -> Iterator[ModuleType]:
    rows = [
        choice(GemmProblem(*size, layout_a=layout_a, layout_b=layout_b), config)
        for layout_a, layout_b in KINDS.values()
        for size, config in tuned(gpu).items()
    ]
    path = gpu.folder / "tuned_module.yaml"
    write_choices(path, header_of(gpu), rows)
    yield loaded(write_module(path, gpu.folder / "tuned_module.py").path)


def counters_are_zero(module: ModuleType) -> bool:
    return all(not bool(one.memory.any()) for one in module._COUNTERS.values())


def test_tuned_sizes_are_right_in_every_class(gpu: Gpu, module: ModuleType) -> None:
    problems = [
        GemmProblem(*size, layout_a=layout_a, layout_b=layout_b, bias=bias)
        for layout_a, layout_b in KINDS.values()
        for size in tuned(gpu)
        for bias in (False, True)
    ]
    assert len(tuned(gpu)) >= 3
    assert [text for seed, problem in enumerate(problems) if (text := fault(module, problem, seed))] == []
    assert counters_are_zero(module)


def test_thirty_random_sizes_are_right(module: ModuleType) -> None:
    draw = random.Random(30)
    problems = []
    for _ in range(30):
        layout_a, layout_b = draw.choice(list(KINDS.values()))
        m, n, k = (draw.choice((draw.choice(SIDES), draw.randint(1, 3000))) for _ in range(3))
        problems.append(GemmProblem(m, n, k, layout_a=layout_a, layout_b=layout_b, bias=draw.random() < 0.5))
    assert [text for seed, problem in enumerate(problems) if (text := fault(module, problem, seed))] == []
    assert counters_are_zero(module)


def test_matrices_that_start_at_odd_addresses_are_right(module: ModuleType) -> None:
    import torch

    memory = torch.randn(2 * 1000 * 1000 + 1, device="cuda").bfloat16()
    for start_a, start_b in ((0, 1), (1, 0), (1, 1), (0, 0)):
        a = memory[start_a:][: 1000 * 1000].view(1000, 1000)
        b = memory[1000 * 1000 + start_b :][: 1000 * 1000].view(1000, 1000)
        torch.testing.assert_close(module.matmul(a, b), a @ b, rtol=2e-2, atol=0.5)


SPLIT = GemmProblem(16, 1024, 4096, layout_b=COL, bias=True)


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # torch captures an empty one to own its memory
def test_torch_compile_gives_the_same(gpu: Gpu, module: ModuleType) -> None:
    """Also with CUDA graphs, as mode reduce-overhead has them, and for sizes that change."""
    import torch

    for mode in ("default", "reduce-overhead"):
        torch._dynamo.reset()
        compiled = torch.compile(lambda *given: torch.relu(module.matmul(*given)) + 1, mode=mode, fullgraph=True)
        for problem in (SPLIT, replace(SPLIT, m=64), GemmProblem(1000, 1000, 1000, layout_b=COL, bias=True)):
            _, given = operands_of(problem, 5)
            expected = torch.relu(module.matmul(*given)) + 1
            for _ in range(4):
                torch.testing.assert_close(compiled(*given).clone(), expected, msg=f"{mode} {problem.key}")
    assert counters_are_zero(module)


def kinds_of(gpu: Gpu) -> list[dict[str, Any]]:
    """Products beyond the plain one: scales of fp8, a batch, and every part of an epilogue."""
    fp8 = {"dtype_a": "fp8_e4m3", "dtype_b": "fp8_e4m3", "layout_b": COL}
    scaled: list[dict[str, Any]] = [{**fp8, "scaling": scaling} for scaling in ("tensor", "row_col", "block")]
    return [
        *(scaled if gpu.device.target.arch == "sm_90" else []),
        {"batch": 5},
        {"batch": 5, "alpha": 0.5, "beta": 2.0, "bias": True, "activation": "gelu"},
        {"alpha": 0.5, "bias": True, "layout_b": COL},
        {"beta": -1.0, "activation": "relu"},
        {"bias": True, "activation": "silu"},
    ]


def test_scales_batches_and_epilogues_are_right(gpu: Gpu) -> None:
    kinds = kinds_of(gpu)
    rows = [
        choice(problem, config)
        for kind in kinds
        for size, config in tuned(gpu).items()
        if gpu.takes(problem := GemmProblem(*size, **kind), config)
    ]
    assert len(rows) > 2 * len(kinds)
    path = gpu.folder / "kinds.yaml"
    write_choices(path, header_of(gpu), rows)
    module = loaded(write_module(path, gpu.folder / "kinds.py").path)
    shapes = [as_gemm(row.problem) for row in rows]
    sizes = [*((shape.m, shape.n, shape.k) for shape in shapes), (33, 65, 130), (100, 200, 1000)]
    problems = [GemmProblem(*size, **kind) for kind in kinds for size in dict.fromkeys(sizes)]
    assert [text for problem in problems if (text := fault(module, problem, 3))] == []
    assert counters_are_zero(module)


def test_the_operator_passes_torchs_checks(module: ModuleType) -> None:
    import torch

    for problem in (SPLIT, GemmProblem(100, 99, 98)):
        _, given = operands_of(problem, 6)
        torch.library.opcheck(module.operator, given)


def test_a_graph_replays_with_new_values_beside_eager_calls(gpu: Gpu, module: ModuleType) -> None:
    """Every family in one graph, replayed on a stream of its own while eager calls run on another."""
    import torch

    sets = [operands_of(GemmProblem(*size, layout_b=COL, bias=True), 7)[1] for size in tuned(gpu)]
    for given in sets:
        module.matmul(*given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [module.matmul(*given) for given in sets]
    side = torch.cuda.Stream()
    for scale in (1.0, -0.5, 2.0):
        for a, _, _ in sets:
            a.mul_(scale)
        expected = [module.matmul(*given) for given in sets]
        for output in outputs:
            output.fill_(float("nan"))
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            for _ in range(20):
                graph.replay()
        beside = [[module.matmul(*given) for given in sets] for _ in range(20)]
        torch.cuda.synchronize()
        for output, one, others in zip(outputs, expected, zip(*beside, strict=True), strict=True):
            assert torch.equal(output, one)
            assert all(torch.equal(other, one) for other in others)
    assert counters_are_zero(module)


def test_streams_do_not_share_counters(module: ModuleType) -> None:
    import torch

    sets = [operands_of(SPLIT, seed)[1] for seed in range(4)]
    expected = [module.matmul(*given) for given in sets]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in sets]
    found: list[list[Any]] = [[] for _ in sets]
    for _ in range(50):
        for stream, given, kept in zip(streams, sets, found, strict=True):
            with torch.cuda.stream(stream):
                kept.append(module.matmul(*given))
    torch.cuda.synchronize()
    assert all(torch.equal(one, wanted) for kept, wanted in zip(found, expected, strict=True) for one in kept)


def test_a_call_never_waits_for_the_gpu(gpu: Gpu, module: ModuleType) -> None:
    import torch

    sets = [operands_of(GemmProblem(*size), 8)[1] for size in tuned(gpu)]
    for given in sets:
        module.matmul(*given)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for given in sets:
            module.matmul(*given)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_another_device_and_type_are_told(module: ModuleType) -> None:
    import torch

    on_cpu = torch.randn(64, 64).bfloat16()
    with pytest.raises(ValueError, match="accepted: a GPU"):
        module.matmul(on_cpu, on_cpu)
    with pytest.raises(TypeError, match=r"tuned: torch\.bfloat16 by torch\.bfloat16"):
        module.matmul(on_cpu.float().cuda(), on_cpu.cuda())


@pytest.mark.parametrize("kind", ["bf16", "fp16", "fp8_tensor"])
def test_the_shipped_results_give_a_module_that_is_right(gpu: Gpu, kind: str) -> None:
    """The H200's own, on a GPU of its architecture, at all its smaller sizes, as tuned and with a bias."""
    if gpu.device.target.arch != "sm_90":
        pytest.skip("the shipped results are for sm_90")
    path = ROOT / "results" / "tuned" / f"nvidia_h200_{kind}.yaml"
    shipped = loaded(write_module(path, gpu.folder / f"shipped_{kind}.py").path)
    tuned_for = [as_gemm(row.problem) for row in results.read(path).rows]
    small = [problem for problem in tuned_for if problem.m * problem.n * problem.k <= 2**36]
    problems = [replace(problem, bias=bias) for problem in small for bias in (False, True)]
    assert [text for seed, problem in enumerate(problems) if (text := fault(shipped, problem, seed))] == []
