"""What limits a size: hardware counters of its tuned kernel and of torch.mm, side by side, under ncu.

    limits.py tuned.yaml --size 5000x5000x5000
    limits.py tuned.yaml --size 4096x2304x7168 --size 8192x8192x128 --layout_b col --folder limits

Profiles one call of each after two that are not profiled, with the caches emptied before every pass and the clocks left
as they are, and prints a markdown table: a row a kernel, as a call may be several. ncu runs a kernel several times to
read all counters, so times here are for orientation; the tuner's are the ones to compare. Counters that this GPU does
not have are left out. Reading counters may need rights: see NVIDIA's page on ERR_NVGPUCTRPERM.

Columns: us: duration. tensor %: cycles in which the tensor pipe was active, of the cycles of active multiprocessors.
L2 %, DRAM %: of their peak throughput. L2 sectors read: sectors (32 bytes each) that L1 asked L2 for. MB from L2: bytes
that L1 received from L2; by TMA: those of them that TMA loaded.
occupancy %: active warps of the most possible. waves: blocks of the grid over what the GPU holds at a time.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from gemm_tuner.compile import compile_tasks
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.core.errors import EXIT_OK, EnvironmentFault, UserError
from gemm_tuner.core.language import language_of
from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL
from gemm_tuner.core.records import Status, Target
from gemm_tuner.gemm.config import tile
from gemm_tuner.gemm.problem import GemmProblem, as_gemm
from gemm_tuner.languages.together import named
from gemm_tuner.launch.plan import FINALS, VENDOR, Method, Plan, Work
from gemm_tuner.measure import device
from gemm_tuner.measure.launcher_process import launcher_env
from gemm_tuner.profilers.base import PLAIN_NUMBERS, written
from gemm_tuner.profilers.ncu import DECIMAL, DETAILS, GROUPED, GROUPED_DECIMAL, METRIC, RAW, nanoseconds
from gemm_tuner.profilers.tables import Row, normalise, read_rows
from gemm_tuner.space import space
from gemm_tuner.store import results

WARM_CALLS = 2
LONGEST_VENDOR_NAME = 48
OUTPUT, LOG, PLAN_FILE, CACHE = "counters.csv", "child.log", "plan.json", "cache"
LANGUAGES = ("triton", "cute")
COMPILE_LIMIT_S = 300
QUERY_TIMEOUT_S = 120
METRIC_NAME = re.compile(r"[a-z][a-z0-9]*__\w+")
LAUNCH = "launch__"  # ncu lists these apart from the rest, and knows them without counters


@dataclass(frozen=True)
class Counter:
    """A column: what ncu calls it, the first of several names that the GPU has, and how to print it."""

    title: str
    metrics: tuple[str, ...]
    scale: float = 1.0
    digits: int = 1


DURATION = Counter("us", (METRIC,), 1e-3, 2)
COUNTERS = (
    DURATION,
    Counter(
        "tensor %",
        (
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
            "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
            "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
        ),
    ),
    Counter("L2 %", ("lts__throughput.avg.pct_of_peak_sustained_elapsed",)),
    Counter(
        "DRAM %",
        (
            "dram__throughput.avg.pct_of_peak_sustained_elapsed",
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        ),
    ),
    Counter("L2 sectors read", ("lts__t_sectors_srcunit_tex_op_read.sum",), digits=0),
    Counter("MB from L2", ("l1tex__m_xbar2l1tex_read_bytes.sum",), 1e-6),
    Counter("MB by TMA", ("l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",), 1e-6),
    Counter("occupancy %", ("sm__warps_active.avg.pct_of_peak_sustained_active",)),
    Counter("waves", ("launch__waves_per_multiprocessor",), digits=2),
    Counter("registers", ("launch__registers_per_thread",), digits=0),
    Counter("cluster", ("launch__cluster_size",), digits=0),
)


@dataclass
class Kernel:
    """One profiled launch: its name and its counters by metric; times in ns, the rest in base units."""

    name: str
    values: dict[str, float] = field(default_factory=dict)


# --- which sizes, and what to run ---


def chosen_rows(found: results.Results, sizes: Sequence[str], layout_b: str | None, path: Path) -> list[results.Row]:
    """The rows of the named sizes, in the order named. Raises UserError for a size that no row has."""
    rows: list[results.Row] = []
    for size in sizes:
        matching = [row for row in found.rows if is_size(as_gemm(row.problem), size, layout_b)]
        if not matching:
            there = ", ".join(row.problem.key for row in found.rows)
            raise UserError(f"has no size {size} with the layout asked for", where=str(path), accepted=there)
        rows += [row for row in matching if row not in rows]
    return rows


def is_size(problem: GemmProblem, size: str, layout_b: str | None) -> bool:
    """Whether ``size`` is the problem's key, or its part before the first underscore."""
    named = problem.key == size or problem.key.split("_")[0] == size
    return named and layout_b in (None, problem.layout_b.value)


def target_here() -> Target:
    """What kernels for this machine's GPU are generated for. Raises EnvironmentFault without an NVIDIA GPU."""
    machine = device.look()
    if not machine.gpus or machine.gpu(0)["arch"].startswith("gfx"):
        raise EnvironmentFault("torch sees no NVIDIA GPU on this machine")
    arch = machine.gpu(0)["arch"]
    return space.load(space.space_path(ROOT / "rules", arch), arch).device.target


def write_plan(folder: Path, rows: Iterable[results.Row], target: Target) -> Plan:
    """Generates the scripts, compiles their kernels (those in CuTe DSL are only launched in the child) and writes the
    child's plan: one work a size, its own configuration and torch.mm. Raises UserError for what does not compile."""
    wanted = [(as_gemm(row.problem), tile(row.config)) for row in rows if row.config]
    (folder / "scripts").mkdir(exist_ok=True)
    scripts = compile_tasks.write_scripts(ROOT / "templates", folder / "scripts", wanted, target)
    tasks = compile_tasks.tasks_for(wanted, scripts, target)
    where = folder / CACHE, folder / LOG, folder / "scripts"
    where[0].mkdir(exist_ok=True)
    with CompilePool(named(LANGUAGES), target, 1, *where, limit_s=COMPILE_LIMIT_S, kind="gemm") as pool:
        for task, result in pool.run(tasks):
            if result.status is not Status.OK:
                raise UserError(f"does not compile: {result.message or result.status.value}", where=task.name)
    order = list(scripts)
    work = tuple(
        Work(problem, ((order.index((config.family, problem.signature)), config.name),), vendor=True)
        for problem, config in wanted
    )
    plan = Plan(FINALS, tuple(str(folder / "scripts" / script.file) for script in scripts.values()), work, Method())
    plan.write(folder / PLAN_FILE)
    return plan


# --- the child, under ncu ---


def run_child(plan: Plan) -> None:
    """Runs every work of the plan: only one call of each candidate is inside the range that ncu records."""
    import torch

    from gemm_tuner.languages.scripts import load_script

    scripts = [load_script(path) for path in plan.scripts]
    marks = language_of("triton").support_calls(0, "cuda")
    for work in plan.work:
        profile_work(work, scripts, marks, plan.method)
        torch.cuda.empty_cache()


def profile_work(work: Work, scripts: list[ModuleType], marks: dict[str, Any], method: Method) -> None:
    """The size's own configuration, then torch.mm, each between two marker kernels of its own."""
    from gemm_tuner.core.workload import launch_all
    from gemm_tuner.gemm.kernels import call_size, make_scratch
    from gemm_tuner.gemm.operands import make_operands, require_memory
    from gemm_tuner.gemm.vendor import vendor_call
    from gemm_tuner.languages.scratch import count_sms
    from gemm_tuner.languages.triton.language import provide_descriptor_memory

    provide_descriptor_memory()
    problem = as_gemm(work.problem)
    require_memory(problem, 0, "cuda")
    operands, sms = make_operands(problem, method.init_type, method.seed, "cuda"), count_sms("cuda")
    ((index, name),) = work.entries
    config = scripts[index].CONFIGS[name]
    scratch = make_scratch(scripts[index], config, problem, "cuda", sms)
    launches = scripts[index].calls(config, call_size(problem), operands, scratch, sms)
    vendor = vendor_call(problem, operands)
    for call in (lambda: launch_all(launches), vendor or (lambda: None)):
        profile_call(call, marks)


def profile_call(call: Any, marks: dict[str, Any]) -> None:
    """Warms up, then one call in ncu's range; the markers tell whose kernels are whose."""
    import torch

    for _ in range(WARM_CALLS):
        marks[BEGIN_SYMBOL]()
        call()
        marks[END_SYMBOL]()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    marks[BEGIN_SYMBOL]()
    call()
    marks[END_SYMBOL]()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


# --- running ncu ---


def listed_metrics(ncu: str, *collection: str) -> set[str]:
    """The metric names, without suffixes, that ``ncu --query-metrics`` lists for this GPU; empty when it fails."""
    command = [ncu, "--query-metrics", *collection]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return set()
    return metric_names(done.stdout) if done.returncode == 0 else set()


def metric_names(listing: str) -> set[str]:
    """The first word of every line that is a metric's name."""
    words = (line.split(maxsplit=1)[0] for line in listing.splitlines() if line.strip())
    return {word.split(".")[0] for word in words if METRIC_NAME.fullmatch(word.split(".")[0])}


def available(counters: Iterable[Counter], listed: set[str]) -> dict[Counter, str]:
    """The metric of each counter that the GPU has. Where ncu lists none of a kind, its first name is taken on trust."""
    lists_launch = any(name.startswith(LAUNCH) for name in listed)
    lists_others = any(not name.startswith(LAUNCH) for name in listed)
    found: dict[Counter, str] = {}
    for counter in counters:
        told = lists_launch if counter.metrics[0].startswith(LAUNCH) else lists_others
        known = [metric for metric in counter.metrics if not told or metric.split(".")[0] in listed]
        if counter is DURATION or known:
            found[counter] = known[0] if known else METRIC
    return found


def ncu_command(ncu: str, metrics: Iterable[str], folder: Path) -> list[str]:
    output = ["--csv", "--page", "raw", "--print-units", "base", "--log-file", str(folder / OUTPUT)]
    how = ["--profile-from-start", "off", "--cache-control", "all", "--clock-control", "none"]
    child = [sys.executable, str(Path(__file__).resolve()), "--child", str(folder / PLAN_FILE)]
    return [ncu, *output, *how, "--target-processes", "all", "--metrics", ",".join(metrics), *child]


def run_ncu(command: list[str], folder: Path) -> None:
    """Raises EnvironmentFault with the last words of the child when it fails; all of them are in the log."""
    environment = launcher_env(named(LANGUAGES), folder / CACHE, PLAIN_NUMBERS)
    with (folder / LOG).open("w", encoding="utf-8") as log:
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environment, check=False)
    if done.returncode != 0:
        said = [line for name in (LOG, OUTPUT) for line in last_lines(folder / name, 3)]
        raise EnvironmentFault(
            f"ncu or the program under it ended with status {done.returncode}: {' / '.join(said)}",
            hint="--folder DIR keeps the whole log",
        )


def last_lines(path: Path, count: int) -> list[str]:
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return [line for line in text.splitlines() if line.strip()][-count:]


# --- reading what ncu wrote ---


def read_kernels(path: Path, metrics: Iterable[str]) -> list[Kernel]:
    """The launches in order, from either page of ncu's CSV. Raises TraceError for what could be read in two ways."""
    wanted, units = set(metrics) | {METRIC}, {}
    launches: dict[tuple[int, int], Kernel] = {}
    for row in read_rows(written(path, "ncu did not start or was killed"), (DETAILS, RAW)):
        if row.header.layout is RAW and not row.text("id"):  # the row of units under the header
            units = {name: row.text(normalise(name)[0]) for name in wanted if has_column(row, name)}
            continue
        key = (row.whole_number("processid"), row.whole_number("id"))
        kernel = launches.setdefault(key, Kernel(row.kernel_name("kernelname")))
        kernel.values.update(values_of(row, wanted, units))
    return [launches[key] for key in sorted(launches)]


def has_column(row: Row, metric: str) -> bool:
    return normalise(metric)[0] in row.header.columns


def values_of(row: Row, wanted: set[str], units: dict[str, str]) -> dict[str, float]:
    """The wanted metrics that a row gives: all of a launch on the raw page, at most one on the details page."""
    if row.header.layout is RAW:
        cells = [(name, row.text(normalise(name)[0]), units.get(name, "")) for name in wanted if has_column(row, name)]
    else:
        name = row.text("metricname")
        cells = [(name, row.text("metricvalue"), row.text("metricunit"))] if name in wanted else []
    return {name: value_of(row, name, value, unit) for name, value, unit in cells if value}


def value_of(row: Row, name: str, value: str, unit: str) -> float:
    """A number; a duration in ns, and refused where its separators may be another locale's."""
    if name == METRIC:
        return nanoseconds(row, value, unit)
    plain = value.isascii() and value.isdigit()
    if not (plain or any(form.fullmatch(value) for form in (DECIMAL, GROUPED, GROUPED_DECIMAL))):
        raise row.error(f"{name} is {value!r}", accepted="a number")
    return float(value.replace(",", ""))


def kernels_by_call(kernels: Iterable[Kernel]) -> list[list[Kernel]]:
    """The kernels between each pair of markers, in order; none where torch has no call."""
    calls: list[list[Kernel]] = []
    inside = False
    for kernel in kernels:
        if kernel.name == BEGIN_SYMBOL:
            calls.append([])
        elif kernel.name != END_SYMBOL and inside:
            calls[-1].append(kernel)
        inside = kernel.name == BEGIN_SYMBOL or (inside and kernel.name != END_SYMBOL)
    return calls


# --- the table ---


def table(plan: Plan, calls: Sequence[list[Kernel]], metrics: dict[Counter, str]) -> str:
    """Markdown, a row a kernel. Raises EnvironmentFault when ncu did not record every call."""
    owners = [(work.problem, who) for work in plan.work for who in ("ours", VENDOR)]
    if len(calls) != len(owners):
        raise EnvironmentFault(f"ncu recorded {len(calls)} calls and not {len(owners)}", hint="see its log by --folder")
    head = ["size", "of", "kernel", *(counter.title for counter in metrics)]
    rows = [head, ["---"] * 3 + ["---:"] * len(metrics)]
    for (problem, who), kernels in zip(owners, calls, strict=True):
        for kernel in kernels or [Kernel("(torch has no such call)")]:
            name = kernel.name[:LONGEST_VENDOR_NAME] if who == VENDOR else kernel.name
            cells = [cell(kernel, counter, metric) for counter, metric in metrics.items()]
            rows.append([problem.key, who, name.replace("|", "\\|"), *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cell(kernel: Kernel, counter: Counter, metric: str) -> str:
    value = kernel.values.get(metric)
    return "-" if value is None else f"{value * counter.scale:.{counter.digits}f}"


def profile(arguments: argparse.Namespace, folder: Path) -> str:
    """Plan, child under ncu, table. Raises UserError."""
    rows = chosen_rows(results.read(arguments.results), arguments.size, arguments.layout_b, arguments.results)
    ncu = shutil.which("ncu")
    if ncu is None:
        raise EnvironmentFault("ncu is not on PATH", hint="install NVIDIA Nsight Compute")
    plan = write_plan(folder, rows, target_here())
    listed = listed_metrics(ncu) | listed_metrics(ncu, "--query-metrics-collection", "launch")
    metrics = available(COUNTERS, listed)
    dropped = [counter.title for counter in COUNTERS if counter not in metrics]
    run_ncu(ncu_command(ncu, metrics.values(), folder), folder)
    calls = kernels_by_call(read_kernels(folder / OUTPUT, metrics.values()))
    note = f"\n\nThis GPU or ncu has no counter for: {', '.join(dropped)}." if dropped else ""
    return table(plan, calls, metrics) + note


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", metavar="RESULTS.yaml", help="a results file of tune_gemm.py")
    size_help = "a size of that file, as 5000x5000x5000 or as the tables name it, 5000x5000x5000_bf16_nn; repeatable"
    parser.add_argument("--size", action="append", default=[], metavar="MxNxK", help=size_help)
    parser.add_argument("--layout_b", choices=("row", "col"), help="only sizes whose B is so stored (default: both)")
    folder_help = "leave scripts, plan, ncu's CSV and the log there (default: a temporary folder)"
    parser.add_argument("--folder", type=Path, metavar="DIR", help=folder_help)
    parser.add_argument("--child", type=Path, metavar="PLAN", help="what the script runs under ncu; not for people")
    arguments = parser.parse_args(argv)
    if not arguments.child and not (arguments.results and arguments.size):
        parser.error("a results file and one or more --size are needed")
    return arguments


def main(argv: list[str] | None = None) -> int:
    arguments = parse(argv)
    if arguments.child:
        run_child(Plan.read(arguments.child))
        return EXIT_OK
    try:
        if arguments.folder:
            arguments.folder.mkdir(parents=True, exist_ok=True)
            print(profile(arguments, arguments.folder.resolve()))
        else:
            with tempfile.TemporaryDirectory() as folder:
                print(profile(arguments, Path(folder)))
    except UserError as error:
        print(error.one_line(), file=sys.stderr)
        return error.exit_status
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
