"""The kernels on a real GPU: ``pytest -m gpu tests/gpu``. Every kernel is compiled by the pool before it is loaded."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gemm_tuner import compile_stage, space
from gemm_tuner.compile_pool import CompilePool
from gemm_tuner.device import look, measured_device
from gemm_tuner.kernel_env import kernel_env
from gemm_tuner.launcher.plan import VERIFY, Journal, Method, Plan, Work
from gemm_tuner.records import Device, GemmProblem, KernelConfig, Layout, Status

# torch warns of its own settings and of NVIDIA's Python packages, some versions do.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.*TF32.*:UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

ROOT = Path(__file__).resolve().parents[2]
ROW, COL = Layout.ROW, Layout.COL
LAYOUTS = tuple(itertools.product((ROW, COL), (ROW, COL)))
SIDES = (1, 7, 17, 64, 100, 1000, 4095)
CASES_A_CLASS = 14
GIB = 2**30

Pair = tuple[GemmProblem, KernelConfig]


@dataclass(frozen=True)
class Gpu:
    """The GPU, a folder for kernels, and the counter of what Triton compiles in this process."""

    device: Device
    folder: Path
    counter: Any

    def config(self, *tile: int, split_k: int = 1, warps: int = 4, stages: int = 2, group: int = 8) -> KernelConfig:
        amd = (0, 16, 1) if self.device.target.backend == "hip" else (0, 0, 0)
        return KernelConfig("gemm_tile", *tile, group, split_k, warps, stages, *amd)

    def scripts(self, pairs: list[Pair]) -> dict[str, ModuleType]:
        """Loaded scripts by class key, everything in them that the pairs need compiled by the pool."""
        from gemm_tuner.launcher.kernels import load_script

        folder = self.folder / f"scripts{sum(1 for _ in self.folder.iterdir())}"
        folder.mkdir()
        backend = self.device.target.backend
        scripts = compile_stage.write_scripts(ROOT / "templates", folder, pairs, backend)
        tasks = compile_stage.tasks_for(pairs, scripts)
        environment = kernel_env(self.folder / "cache")
        workers = len(os.sched_getaffinity(0))
        with CompilePool(self.device.target, workers, environment, folder / "compile.log", 120.0) as pool:
            failed = [(t.name, t.specialisation, r.message) for t, r in pool.run(tasks) if r.status != Status.OK]
        assert failed == []
        self.counter.compiled = self.counter.from_cache = 0
        return {class_key: load_script(str(script.path)) for (_, class_key), script in scripts.items()}


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    machine = look()
    if not machine.gpus:
        pytest.skip("torch sees no GPU on this machine")
    row = machine.gpu(0)
    loaded = space.load(space.space_path(ROOT / "rules", row["arch"]), row["arch"])
    folder = tmp_path_factory.mktemp("gpu")
    from gemm_tuner.launcher.main import CompileCounter

    with pytest.MonkeyPatch.context() as patch:
        for name, value in kernel_env(folder / "cache").items():
            patch.setenv(name, value)
        yield Gpu(measured_device(loaded.device, row), folder, CompileCounter())


def wrong_cases(gpu: Gpu, pairs: list[Pair]) -> list[str]:
    """Checks all pairs on the GPU; what is wrong, in words. Asserts that nothing was compiled for it."""
    from gemm_tuner.launcher.check import check

    scripts = gpu.scripts(pairs)
    found = []
    for problem, config in pairs:
        verdict = check(scripts[problem.class_key], problem, config.name, 1, "cuda")
        if not verdict.ok:
            found.append(f"{problem.key} {config.name}: {verdict.message}")
    assert gpu.counter.compiled == 0, "kernels were compiled in the process that runs them"
    assert gpu.counter.from_cache > 0
    return found


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_the_grid_of_sizes_is_right(gpu: Gpu, dtype: str) -> None:
    configs = itertools.cycle(
        (
            gpu.config(16, 16, 16, warps=1, group=1),
            gpu.config(64, 64, 32),
            gpu.config(64, 32, 64, split_k=4, group=2),
            gpu.config(32, 64, 16, split_k=2),
            gpu.config(128, 64, 32, warps=8, stages=2),
        )
    )
    draw = random.Random(dtype)
    corners = [(1, 1, 1), (4095, 4095, 4095), (1, 4095, 4095), (4095, 1, 1000), (64, 64, 1), (1000, 1000, 1000)]
    others = [size for size in itertools.product(SIDES, SIDES, SIDES) if size not in corners]
    pairs = []
    for layouts in LAYOUTS:
        for turn, size in enumerate(corners + draw.sample(others, CASES_A_CLASS - len(corners))):
            problem = GemmProblem(*size, dtype, dtype, dtype, *layouts, ("none", "bias")[turn % 2])
            pairs += [(problem, next(configs)), (problem, next(configs))]
    assert wrong_cases(gpu, pairs) == []


def test_another_type_of_c_is_right(gpu: Gpu) -> None:
    types = [("bf16", "fp32"), ("fp16", "fp32"), ("fp32", "bf16"), ("fp16", "bf16")]
    configs = (gpu.config(64, 64, 32), gpu.config(64, 64, 32, split_k=4))
    pairs = [
        (GemmProblem(100, 1000, 999, dtype, dtype, dtype_c, epilogue="bias"), config)
        for (dtype, dtype_c), config in itertools.product(types, configs)
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


def test_split_k_gives_the_same_bits_ten_times(gpu: Gpu) -> None:
    import torch

    from gemm_tuner.launcher.kernels import launch_all
    from gemm_tuner.launcher.operands import make_operands, workspace

    problem, config = GemmProblem(257, 1000, 14336), gpu.config(64, 64, 64, split_k=16)
    script = gpu.scripts([(problem, config)])[problem.class_key]
    operands, size = make_operands(problem, "randn", 3, "cuda"), (problem.m, problem.n, problem.k)
    values = script.CONFIGS[config.name]
    results = []
    for _ in range(10):
        scratch = workspace(script.workspace_elements(values, size), "cuda")
        operands.c.fill_(float("nan"))
        launch_all(script.calls(values, size, operands.a, operands.b, operands.c, operands.bias, scratch))
        results.append(operands.c.clone().view(torch.int16))
    assert not operands.c.isnan().any()
    assert all(torch.equal(results[0], other) for other in results[1:])


LARGE = {
    "C": (GemmProblem(2**16, 2**16, 64), 1),
    "C in odd rows": (GemmProblem(2**15 + 1, 2**16 + 3, 65), 1),
    "C and its partial sums": (GemmProblem(2**16, 2**15, 128), 2),
    "A": (GemmProblem(2**16, 64, 2**15 + 64), 1),
    "A in columns": (GemmProblem(2**16 + 8, 64, 2**15 + 64, layout_a=COL), 1),
    "B": (GemmProblem(64, 2**16, 2**15 + 64), 4),
    "B in columns": (GemmProblem(64, 2**16, 2**15 + 71, layout_b=COL), 4),
}


@pytest.mark.parametrize("what", LARGE)
def test_matrices_beyond_2_to_the_31_elements_are_right(gpu: Gpu, what: str) -> None:
    """Checked where an offset of 32 bits would wrap, at the ends and at random; nowhere may a NaN stay."""
    import torch

    from gemm_tuner.launcher.check import compare
    from gemm_tuner.launcher.kernels import launch_all
    from gemm_tuner.launcher.operands import make_operands, workspace

    problem, split_k = LARGE[what]
    if gpu.device.memory_bytes < 100 * GIB:
        pytest.skip("needs a GPU of 100 GiB")
    config = gpu.config(64, 64, 64, split_k=split_k)
    script = gpu.scripts([(problem, config)])[problem.class_key]
    torch.cuda.empty_cache()
    operands, size = make_operands(problem, "randn", 5, "cuda"), (problem.m, problem.n, problem.k)
    assert max(t.numel() for t in (operands.a, operands.b, operands.c)) >= 2**31
    values = script.CONFIGS[config.name]
    scratch = workspace(script.workspace_elements(values, size), "cuda")
    launch_all(script.calls(values, size, operands.a, operands.b, operands.c, None, scratch))
    del scratch
    assert gpu.counter.compiled == 0
    assert not any(block.isnan().any() for block in operands.c.split(4096))

    a, b = operands.logical(problem)
    rows, columns = sampled(problem.m, problem.n, problem.k), sampled(problem.n, problem.m, problem.k)
    few_rows, few_columns = a[rows].double(), b[:, columns].double()
    for got, left, right in (
        (operands.c[rows], few_rows, b),
        (operands.c[:, columns], a, few_columns),
    ):
        expected, magnitude = product(left, right), product(left.abs(), right.abs())
        part = replace(problem, m=got.shape[0], n=got.shape[1])
        verdict = compare(got, expected, magnitude, part, config.name)
        assert verdict.ok, verdict.message


def sampled(extent: int, *others: int) -> list[int]:
    """Indices of rows: the ends, those around element 2**31 - 1 of any matrix, and some at random."""
    draw = random.Random(extent)
    wanted = {0, extent - 1, *(draw.randrange(extent) for _ in range(6))}
    wanted |= {2**31 // other + step for other in others for step in (-1, 0, 1)}
    return sorted(index for index in wanted if 0 <= index < extent)


def product(left: Any, right: Any) -> Any:
    """left @ right in float64, in parts: a float64 copy of 2**31 elements takes 16 GiB."""
    import torch

    if left.shape[0] <= right.shape[1]:
        return torch.cat([left.double() @ part.double() for part in right.split(4096, dim=1)], dim=1)
    return torch.cat([part.double() @ right.double() for part in left.split(4096)])


def test_a_kernel_that_does_not_fit_is_out_of_resources(gpu: Gpu) -> None:
    """And the ones after it still run."""
    from gemm_tuner.launcher.main import verify

    limit = gpu.device.shared_memory_bytes
    large = gpu.config(64, 128, 256, stages=8, warps=8)
    assert limit < (64 + 128) * 256 * 2 * 7
    fits, problem = gpu.config(32, 32, 32), GemmProblem(64, 64, 2048)
    script = gpu.scripts([(problem, large), (problem, fits)])[problem.class_key]
    stream = io.StringIO()
    plan = Plan(VERIFY, ("",), (Work(problem, ((0, large.name), (0, fits.name))),), Method())
    verify(plan, Journal(stream), [script])
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    failed = [(e["name"], e["status"]) for e in events if e["event"] == "fail"]
    assert failed == [(large.name, "out_of_resources")]
    assert [e["ok"] for e in events if e["event"] == "verdict" and e["name"] == fits.name] == [True, True]
