"""``--dry_run``: what would be tried, why configurations are rejected, and the estimated duration. Uses no GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console

from gemm_tuner.consumers.server import Server
from gemm_tuner.core.errors import EXIT_OK, EXIT_UNVERIFIED
from gemm_tuner.core.records import Config, Device
from gemm_tuner.core.workload import workload_of
from gemm_tuner.decide.finals_plan import BESIDE_FINALISTS, FinalsPlan
from gemm_tuner.launch.plan import Method
from gemm_tuner.measure.budget import FIRST_GUESS, LIKE_NSYS
from gemm_tuner.pipeline import predicted_candidates, prepare, serving, serving_space, show
from gemm_tuner.pipeline.run_options import IN_PROCESS, RunOptions
from gemm_tuner.profilers import AUTO
from gemm_tuner.search import expected_requests, expected_rounds
from gemm_tuner.space.reasons import reason_lines
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.system import progress
from gemm_tuner.system.terminal_table import print_line

# Measured on an H200 with 16 cores (benchmarks/tuning_history.md): CPU time to compile a kernel, host time to launch
# one call, and host time to load and set up a configuration, seconds. What each further process of finals adds is an
# estimate from runs of one size on H100s there, which took 0.3 to 1.3 s a process to prepare and launch: they start
# side by side, and then take turns on the GPU.
COMPILE_CPU_S = 0.3
LAUNCH_S = 0.00015
SETUP_S = 0.003
TURN_S = 0.6
# The task that compiles what a measurement itself launches, which a run counts among its kernels.
OWN_KERNELS = 1


def dry_run(options: RunOptions, out: Console, log: Console) -> int:
    """Prints what would be tried and the estimated duration, then the funnel of every size: all rules for a single size
    or with --verbose, else one line. Returns exit status 1, after the reasons, if a size has no configuration left.
    Raises UserError if a server can launch none of the sizes, or a rule gives no answer."""
    # With --arch, this machine is queried after the output, because that takes seconds.
    environment = None if options.arch else prepare.look_around(options, for_a_run=False)
    device = environment.device if environment else prepare.assumed_device(options, options.arch)
    options = prepare.on_device(options, device)
    prepare.require_a_type([entry.problem for entry in options.entries], device)
    servers = serving.asked_for(options, device)
    for look in (prepare.note, prepare.absent_note):
        if warning := look(options, device.target.arch):
            print_line(out, warning)
    with progress.waiting("apply the rules", out, len(options.entries)) as step:
        total, sizes = serving_space.cut_sizes(options, device, servers, lambda cut: step.advance())
    states = [size.left for size in sizes if isinstance(size.left, SizeState)]
    serving_space.require_answers(sizes)
    if states:
        estimate(options, states, device, out)
        if (environment or prepare.look_around(options, for_a_run=False)).source == "predicted":
            say_predicted(options, servers, states, device, out)
    for size in sizes:
        if len(sizes) == 1 or options.verbose:
            title, verbose = f"{show.size_name(out, size.problem)} on {device.target.arch}", options.verbose
            show.funnel(out, title, total, size.funnel, all_rules=verbose, why=verbose)
        else:
            show.funnel_line(out, size.problem, total, size.funnel)
    empty = {show.size_name(log, size.problem): size.why_empty for size in sizes if size.why_empty}
    for line in reason_lines(empty):
        print_line(log, line, "red")
    return EXIT_UNVERIFIED if empty else EXIT_OK


def estimate(options: RunOptions, states: list[SizeState], device: Device, out: Console) -> None:
    """Prints an estimate of the run's duration from the model and the constants above."""
    kernels = count_kernels(((state, state.kept) for state in states), device)
    total = sum(len(state.kept) for state in states)
    asked = sum(expected_requests(options.search, len(state.kept), options.kind) for state in states)
    compile_s = min(asked, kernels) * COMPILE_CPU_S / options.compile_workers
    method = Method(warmup_calls=options.warmup, timed_calls=options.screen_calls)
    calls = method.warmup_calls + method.timed_calls
    kernels_s = sum(sum(state.predicted_us.values()) for state in states) * calls / 1e6
    screening_s = asked * (SETUP_S + calls * LAUNCH_S) + kernels_s * asked / total
    start = FIRST_GUESS.get(options.profiler, LIKE_NSYS)
    finals = FinalsPlan(finalists=options.finalists, rounds=options.iters)
    finals_calls = len(states) * (finals.finalists + BESIDE_FINALISTS) * finals.rounds
    finals_s = finals.processes * start.each_s * finals_calls
    # Every GPU makes this many starts, in parallel. Screening in the launcher's process has none.
    of_rounds = (
        0 if options.screen_with in (AUTO, IN_PROCESS) else expected_rounds(options.search, asked) * options.jobs
    )
    starts = of_rounds + finals.processes
    starts_s = (of_rounds + 1) * start.start_s + (finals.processes - 1) * TURN_S
    gpus = len(options.gpu_ids) if options.gpu_ids else options.ngpus or 1
    timing_s = (screening_s + finals_s) / gpus + starts_s
    for line in (
        f"configurations to try: {total}, sizes: {len(states)}, kernels to compile: {kernels}",
        f"--search {options.search} times about {asked} of them",
        f"to compile with an empty cache: {compile_s:.0f} s (workers: {options.compile_workers})",
        f"to time: {timing_s:.0f} s ({gpus} x {device.name}), of which {starts} profiler starts {starts_s:.0f} s; all "
        "predicted, not measured",
    ):
        print_line(out, line)


def say_predicted(
    options: RunOptions, servers: Sequence[Server], states: list[SizeState], device: Device, out: Console
) -> None:
    """Prints what the run would do on this machine without such a GPU (``predict.run``)."""
    tried = [(one, predicted_candidates.of_size(options, servers, one).first) for one in states]
    checks = sum(predicted_candidates.most_checks(options, servers, one) for one in states)
    kernels = count_kernels(tried, device) + OWN_KERNELS
    for line in (
        f"here, without such a GPU: {kernels} kernels to compile on {options.compile_workers} cores with an empty "
        "cache, more if few of a size fit,",
        f"at most {checks} to check in Triton's interpreter, no timing: rows say source: predicted",
    ):
        print_line(out, line)


def count_kernels(wanted: Iterable[tuple[SizeState, Iterable[str]]], device: Device) -> int:
    """The number of different binaries for these configurations of these sizes."""
    found: set[tuple[str, str, str]] = set()
    binary_names: dict[str, str] = {}
    for state, names in wanted:
        signature, workload = state.problem.signature, workload_of(state.problem.kind)
        by_binary: dict[str, Config] = {}
        for name in names:
            config = state.kept[name]
            by_binary[binary_names.get(name) or binary_names.setdefault(name, config.kernel_symbol)] = config
        for binary, config in by_binary.items():
            found.add((signature, binary, workload.specialization(state.problem, config, device.target)))
    return len(found)
