"""What a call of an exported module costs: time of the host beside torch.mm, and of the GPU beside the tuner's own.

    module_overhead.py results/tuned/nvidia_h200_bf16.yaml
    module_overhead.py tuned.yaml --size 17x5120x5120 --size 512x512x512 --json > overhead.json

Writes the module of the results file into a folder of its own and, for every tuned size (or those of --size), prints

host us    of one call, without waiting for the GPU: matmul; its operator, as torch.compile calls it; torch.mm
kernel us  of all kernels of a call, L2 emptied before: matmul; the tuner's launch of the same configuration; torch.mm
ratio      matmul over the tuner's launch, timed in turns in the same process; and over the time in the results file

Host: the median of rounds of calls that do not fill the launch queue. Kernels: the median of calls that torch.profiler
saw (CUPTI), in turns, everything between two flushes of L2 counted. Exit status: 0, 2 a file is wrong, 3 no GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from gemm_tuner.core.errors import EXIT_OK, EnvironmentFault, UserError
from gemm_tuner.core.language import language_of
from gemm_tuner.core.markers import FLUSH_SYMBOL
from gemm_tuner.core.records import Target
from gemm_tuner.core.workload import launch_all
from gemm_tuner.export.gemm.module import write_module
from gemm_tuner.export.gemm.module.objects import kernels_folder
from gemm_tuner.gemm.config import KernelConfig, tile
from gemm_tuner.gemm.kernels import call_size, make_scratch
from gemm_tuner.gemm.operands import Operands, make_operands
from gemm_tuner.gemm.problem import GemmProblem, as_gemm
from gemm_tuner.languages.scratch import count_sms
from gemm_tuner.languages.scripts import load_script
from gemm_tuner.languages.triton.language import LANGUAGE, provide_descriptor_memory
from gemm_tuner.source import codegen
from gemm_tuner.space import space
from gemm_tuner.store import results
from gemm_tuner.store.size_rows import Row

# Calls of a round are fewer than the launch queue holds (1024 launches on NVIDIA), with two kernels a call.
CALLS_A_ROUND = 200
WARMUP_CALLS = 20
FLUSH_L2_TIMES = 2
DTYPES = ("fp16", "bf16", "fp32")

Call = Callable[[], Any]


@dataclass(frozen=True)
class Cost:
    """Microseconds of one size; ``file`` is the results file's time, None where it has none."""

    problem: str
    config: str
    host_matmul: float
    host_operator: float
    host_torch_mm: float
    kernel_matmul: float
    kernel_tuner: float
    kernel_torch_mm: float
    kernel_file: float | None

    @property
    def ratio(self) -> float:
        return self.kernel_matmul / self.kernel_tuner

    @property
    def ratio_to_file(self) -> float | None:
        return self.kernel_matmul / self.kernel_file if self.kernel_file else None


def median_by_call(events: Iterable[tuple[str, float]], names: Sequence[str]) -> dict[str, float]:
    """Median time of each call, from (kernel, us) in the order they ran: every call after a flush, in turns of names.

    Raises ValueError when the calls are not whole turns.
    """
    sums: list[float] = []
    for kernel, time_us in events:
        if kernel == FLUSH_SYMBOL:
            sums.append(0.0)
        elif sums:
            sums[-1] += time_us
    if not sums or len(sums) % len(names) or not all(sums):
        raise ValueError(f"{len(sums)} calls with kernels {sum(map(bool, sums))}, in turns of {len(names)}")
    return {name: statistics.median(sums[number :: len(names)]) for number, name in enumerate(names)}


def host_us(torch: ModuleType, call: Call, rounds: int) -> float:
    """Host time of a call, us: the median over rounds, each begun with an idle GPU."""
    for _ in range(WARMUP_CALLS):
        call()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(CALLS_A_ROUND):
            call()
        times.append((time.perf_counter() - started) / CALLS_A_ROUND * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times)


def kernel_us(torch: ModuleType, calls: dict[str, Call], flush: Call, turns: int) -> dict[str, float]:
    """GPU time of each call, us: the median over turns."""
    for call in (flush, *calls.values()):
        call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(turns):
            for call in calls.values():
                flush()
                call()
        torch.cuda.synchronize()
    on_gpu = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    on_gpu.sort(key=lambda event: event.time_range.start)
    return median_by_call(((event.name, event.time_range.elapsed_us()) for event in on_gpu), tuple(calls))


def flush_of(torch: ModuleType) -> Call:
    """Reads a buffer of FLUSH_L2_TIMES the L2, as the tuner does before a timed call."""
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    return LANGUAGE.support_calls(FLUSH_L2_TIMES * l2_bytes, "cuda")[FLUSH_SYMBOL]


def tuner_call(problem: GemmProblem, config: KernelConfig, operands: Operands, target: Target, folder: Path) -> Call:
    """The configuration as the tuner launches it."""
    script = codegen.write_script(ROOT / "templates", folder, config.family, problem, [config], target)
    loaded, num_sms = load_script(str(folder / script.file)), count_sms("cuda")
    values = loaded.CONFIGS[config.name]
    scratch = make_scratch(loaded, values, problem, "cuda", num_sms)
    launches = loaded.calls(values, call_size(problem), operands, scratch, num_sms)
    return lambda: launch_all(launches)


def cost_of(
    torch: ModuleType, module: ModuleType, row: Row, config: KernelConfig, target: Target, folder: Path, arguments: Any
) -> Cost:
    problem = as_gemm(row.problem)
    operands = make_operands(problem, "randn", 0, "cuda")
    a, b = operands.logical(problem)
    calls: dict[str, Call] = {
        "matmul": lambda: module.matmul(a, b),
        "tuner": tuner_call(problem, config, operands, target, folder),
        "torch_mm": lambda: torch.mm(a, b),
    }
    kernels = kernel_us(torch, calls, flush_of(torch), arguments.turns)
    return Cost(
        problem.key,
        config.name,
        host_us(torch, calls["matmul"], arguments.rounds),
        host_us(torch, lambda: module.operator(a, b), arguments.rounds),
        host_us(torch, calls["torch_mm"], arguments.rounds),
        kernels["matmul"],
        kernels["tuner"],
        kernels["torch_mm"],
        row.facts.get("median_us"),
    )


def report(costs: Sequence[Cost]) -> str:
    """A markdown table, and the means below it."""
    heads = ("size", *("host us: matmul", "operator", "torch.mm"), *("kernel us: matmul", "tuner", "torch.mm"))
    lines = ["| " + " | ".join((*heads, "ratio", "to file")) + " |", "|---|" + "---:|" * 8]
    for one in costs:
        host = (one.host_matmul, one.host_operator, one.host_torch_mm)
        kernel = (one.kernel_matmul, one.kernel_tuner, one.kernel_torch_mm)
        figures = [f"{value:.1f}" for value in host] + [f"{value:.2f}" for value in kernel] + [f"{one.ratio:.3f}"]
        to_file = f"{one.ratio_to_file:.3f}" if one.ratio_to_file else ""
        lines.append("| " + " | ".join((one.problem, *figures, to_file)) + " |")
    mean = math.exp(statistics.fmean(math.log(one.ratio) for one in costs))
    worst = max(costs, key=lambda one: one.ratio)
    hosts = (statistics.median(one.host_matmul for one in costs), statistics.median(one.host_torch_mm for one in costs))
    lines += [
        "",
        f"matmul over the tuner's launch: geometric mean {mean:.3f}, most {worst.ratio:.3f} ({worst.problem})",
        f"host time of a call, median of sizes: matmul {hosts[0]:.1f} us, torch.mm {hosts[1]:.1f} us",
    ]
    return "\n".join(lines)


def wanted_rows(found: results.Results, sizes: Sequence[str]) -> list[Row]:
    """The rows that matmul and torch.mm compute as they stand, of these sizes or of all. Raises UserError when there
    is none."""
    rows = []
    for row in found.rows:
        p = as_gemm(row.problem)
        plain = GemmProblem(p.m, p.n, p.k, p.dtype_a, p.dtype_a, p.dtype_a, p.layout_a, p.layout_b)
        if p == plain and p.dtype_a in DTYPES and (not sizes or f"{p.m}x{p.n}x{p.k}" in sizes):
            rows.append(row)
    if not rows:
        raise UserError("no row of plain products of these sizes", where="--size", accepted="sizes of the results file")
    return rows


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="a results file, tuned on a GPU of this architecture")
    parser.add_argument("--size", action="append", default=[], metavar="MxNxK", help="only this size; may be repeated")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of 200 calls for host times (default: 15)")
    parser.add_argument("--turns", type=int, default=30, help="calls of each for kernel times (default: 30)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    return parser.parse_args(argv)


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All that was measured. Raises UserError and EnvironmentFault."""
    import torch
    import triton

    rows = wanted_rows(results.read(arguments.results), arguments.size)
    if not torch.cuda.is_available():
        raise EnvironmentFault("torch sees no GPU on this machine", hint="run it where the results were tuned")
    provide_descriptor_memory()
    costs = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        module = loaded(write_module(arguments.results, folder / "exported.py").path)
        os.environ.update(language_of("cute").environment(kernels_folder(ROOT / "templates", folder)))
        arch = module.HEADER["arch"]
        target = space.load(space.space_path(ROOT / "rules", arch), arch).device.target
        for number, row in enumerate(rows):
            assert row.config is not None
            own = folder / str(number)
            own.mkdir()
            print(f"{number + 1} of {len(rows)}: {row.problem.key}", file=sys.stderr)
            costs.append(cost_of(torch, module, row, tile(row.config), target, own, arguments))
    versions = {"torch": torch.__version__, "triton": triton.__version__, "device": torch.cuda.get_device_name()}
    return {**versions, "costs": costs}


def main(argv: list[str] | None = None) -> int:
    arguments = parse(argv)
    try:
        found = measure(arguments)
    except UserError as fault:
        print(fault.one_line(), file=sys.stderr)
        return fault.exit_status
    if arguments.json:
        rows = [{**asdict(one), "ratio": one.ratio, "ratio_to_file": one.ratio_to_file} for one in found["costs"]]
        print(json.dumps({**found, "costs": rows}, indent=1))
    else:
        print(f"{found['device']}, torch {found['torch']}, Triton {found['triton']}\n\n{report(found['costs'])}")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
