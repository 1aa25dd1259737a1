"""The main command: reads the command line, calls the pipeline, and prints errors."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from gemm_tuner.cli import commands, options
from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.shared_flags import wait_s
from gemm_tuner.cli.size_flags import read_sizes, require_families
from gemm_tuner.consumers import SERVERS
from gemm_tuner.consumers.consumer_kernel import ConsumerKernel
from gemm_tuner.core.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_OK, FREE_SPACE, EnvironmentFault, UserError
from gemm_tuner.core.labels import label
from gemm_tuner.core.records import Config, Problem
from gemm_tuner.core.workload import workload_of
from gemm_tuner.measure import device
from gemm_tuner.measure.torch_ahead import TorchAhead
from gemm_tuner.pipeline import idle_flags
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.store.sizes import SizeEntry
from gemm_tuner.system import bug_report, program, start_time
from gemm_tuner.system.documents import show
from gemm_tuner.system.interruption import end_soon
from gemm_tuner.system.terminal_table import print_line

PIPED_WIDTH = 200
FROM = "--kernel_from"
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def consoles() -> Consoles:
    """The consoles of standard error and standard output; piped output has wide lines and no colours. Results that
    another command passes on to its terminal are as on that."""

    def console(stream_is_error: bool) -> Console:
        one = Console(stderr=stream_is_error)
        width = os.environ.get(program.SHOWN_WIDTH, "")
        if not one.is_terminal and not stream_is_error and width.isdecimal():
            return Console(width=int(width), force_terminal=True)
        return one if one.is_terminal else Console(stderr=stream_is_error, width=PIPED_WIDTH, soft_wrap=True)

    return Consoles(console(True), console(False))


def main(argv: list[str] | None = None, torch_ahead: TorchAhead | None = None) -> int:
    """Runs the command; returns its exit status. Without ``argv`` it is that of this process, which then ends soon
    after an interrupted command, whatever its threads still wait for. torch_ahead: for a run of this machine's GPUs."""
    words = sys.argv[1:] if argv is None else argv
    try:
        if words and words[0] in commands.SUBCOMMANDS:
            return commands.run(words[0], words[1:], consoles())
        arguments, began = options.build_parser().parse(words), start_time.began() if argv is None else None
        return run(arguments, consoles(), began=began, torch_ahead=torch_ahead)
    except UserError as error:
        fault = error
    except KeyboardInterrupt as interruption:
        goes_on = "; what was found is kept: the same command goes on from here, with --fresh it starts over"
        tell(f"interrupted{goes_on if bug_report.folder_of(interruption) else ''}", after_echo=True)
        if argv is None:
            end_soon()
        return EXIT_INTERRUPTED
    except OSError as error:
        hint = FREE_SPACE if error.errno in NO_SPACE else "add --debug for where it happened"
        fault = EnvironmentFault(f"{type(error).__name__}: {error}", hint=hint)
        fault.__cause__ = error
    except Exception as error:
        if "--debug" in words:
            traceback.print_exception(error)
        for line in bug_report.report(error, [program.name(), *words]):
            print(f"{program.name()}: {line}", file=sys.stderr)
        return EXIT_BUG
    if "--debug" in words:
        traceback.print_exception(fault)
    tell(fault.one_line())
    return fault.exit_status


def tell(text: str, *, after_echo: bool = False) -> None:
    """Prints a last line on standard error, wrapped between words on a terminal.

    after_echo: start on a new line, because the terminal has printed ^C.
    """
    log = consoles().log
    if after_echo and log.is_terminal:
        log.print()
    print_line(log, f"{program.name()}: {text}")


def run(
    arguments: argparse.Namespace,
    shown: Consoles,
    entries: tuple[SizeEntry, ...] = (),
    older: Mapping[Problem, Config] | None = None,
    *,
    began: float | None = None,
    torch_ahead: TorchAhead | None = None,
) -> int:
    """Runs the requested task. entries: the sizes, if they are not given by flags. older: configurations that new ones
    must beat, in addition to those of --update. began: time.monotonic() when the command began, if not just now."""
    for name, why in options.REPLACED.items():
        if getattr(arguments, name):
            print_line(shown.log, f"--{name}: {why}")
    run_options = run_options_from(arguments, entries or read_sizes(arguments, shown.log))
    run_options = replace(run_options, older={**(older or {}), **run_options.older}, began=began or run_options.began)
    require_families(run_options, given=arguments.benchmark or arguments.compare_wo_tuning)
    if shown.log.is_terminal:  # imports and the query of GPUs take a second or two
        several = len(run_options.entries) > 1
        count = f"{len(run_options.entries)} sizes" if several else label(run_options.entries[0].problem)
        print_line(shown.log, f"{program.name()}: {count}, starting")
    if arguments.explain is not None:
        from gemm_tuner.pipeline import explain

        explain.explain(run_options, arguments.explain, shown.out)
        return EXIT_OK
    if arguments.dry_run:
        from gemm_tuner.pipeline import preview

        return preview.dry_run(run_options, shown.out, shown.log)
    if arguments.compile_only:
        from gemm_tuner.pipeline import compile_only

        return compile_only.run(run_options, shown.log, shown.out)
    if run_options.replay_dir is None and not run_options.cluster:
        looking = device.begin_to_look()  # while the pipeline is imported
        run_options = replace(run_options, looking=looking, torch_ahead=torch_ahead)
    from gemm_tuner.pipeline import run as pipeline

    if arguments.benchmark:
        return pipeline.benchmark(run_options, shown.log, shown.out)
    if arguments.compare_wo_tuning:
        return pipeline.compare_without_tuning(run_options, shown.log, shown.out)
    if run_options.cluster:
        from gemm_tuner.pipeline import cluster_run

        return cluster_run.tune(run_options, shown.log, shown.out)
    return pipeline.tune(run_options, shown.log, shown.out)


def read_older(path: Path | None) -> tuple[dict[Problem, Config], dict[Problem, dict[str, Config]]]:
    """``older_configs.read`` of the file of --update. Raises UserError."""
    if path is None:
        return {}, {}
    from gemm_tuner.store import older_configs

    return older_configs.read(path)


def servers_of(asked: list[str], older: Mapping[Problem, Mapping[str, Config]]) -> tuple[str, ...]:
    """The servers of --serve, and those that an older results file has configurations for."""
    return tuple(name for name in SERVERS if name in asked or any(name in one for one in older.values()))


def kernels_of(asked: list[str], served: Collection[str]) -> dict[str, ConsumerKernel]:
    """The kernels of --kernel_from, by server. served: the servers of the run. Raises UserError."""
    places: dict[str, Path] = {}
    for text in asked:
        server, equals, path = text.partition("=")
        if not equals or server not in SERVERS:
            server, path = next(iter(served)) if len(served) == 1 else "", text
        if server not in served or server in places:
            accepted = f"SERVER=PATH once for each of {', '.join(served)}" if served else "it beside --serve SERVER"
            raise UserError(f"{show(text)} is of no server, or of one that has another", where=FROM, accepted=accepted)
        places[server] = Path(path)
    from gemm_tuner.consumers import consumer_kernel

    return consumer_kernel.read_all(places)


def check_results_file(path: Path | None, size_file: str | None) -> None:
    """Checks before tuning that the results file can be written afterwards. Raises UserError."""
    if path is None:
        return
    where = "--output"
    if size_file is not None and path.resolve() == Path(size_file).resolve():
        raise UserError("is also the size file, which would be lost", where=where)
    if path.exists():
        from gemm_tuner.store import results_file

        results_file.read_earlier(path)
    try:
        with tempfile.TemporaryFile(dir=path.resolve().parent):
            pass
    except OSError as error:
        what = f"cannot write into {path.resolve().parent}: {error.strerror}"
        raise EnvironmentFault(what, where=where, hint="choose another folder") from error


def rules_of(arguments: argparse.Namespace, entries: tuple[SizeEntry, ...]) -> Path:
    """The folder of --rules, or by default the rules of the problems' kind."""
    own = workload_of(entries[0].problem.kind).rules_dir if entries else None
    folder: Path = arguments.rules if own is None or "rules" in arguments.given else own
    return folder


def run_options_from(arguments: argparse.Namespace, entries: tuple[SizeEntry, ...]) -> RunOptions:
    """The options from the flags, whose combination is validated. Raises UserError."""
    if arguments.gpu_ids is not None and arguments.ngpus is not None:
        raise UserError("both --gpu_ids and --ngpus are given", accepted="one of them")
    for flag, folder in (("--rules", arguments.rules), ("--templates", arguments.templates)):
        if not folder.is_dir():
            raise UserError(f"{folder} is no folder", where=flag)
    if (arguments.replay is not None) != (arguments.profiler == options.REPLAY):
        raise UserError(
            "--profiler replay and --replay belong together",
            accepted="--profiler replay --replay DIR, where DIR is the raw folder of a run made with --keep",
        )
    if arguments.replay is not None and (arguments.gpu_ids is not None or arguments.ngpus is not None):
        raise UserError("a replay uses no GPU", where="--gpu_ids" if arguments.gpu_ids is not None else "--ngpus")
    if arguments.cluster is not None:
        for flag in ("benchmark", "compare_wo_tuning", "compile_only", "gpu_ids", "ngpus"):
            if getattr(arguments, flag):
                raise UserError(f"does not go with --{flag}", where="--cluster", accepted="either of them")
    results_file: Path | None = arguments.output
    check_results_file(results_file, arguments.gemm_size_file)
    kinds = {entry.problem.kind for entry in entries}  # a results file may hold others, too
    older, older_served = read_older(arguments.update)
    older_served = {problem: found for problem, found in older_served.items() if problem.kind in kinds}
    served = servers_of(arguments.serve, older_served)
    given_to = {one.consumer: None for entry in entries for one in entry.served} if arguments.benchmark else {}
    run_options = RunOptions(
        entries=entries,
        templates_dir=arguments.templates,
        rules_dir=rules_of(arguments, entries),
        output_dir=arguments.output_dir,
        space_file=arguments.space,
        results_file=results_file,
        arch=arguments.arch,
        heuristics=not arguments.no_heuristics,
        profiler=arguments.profiler,
        screen_with=arguments.screen_with,
        replay_dir=arguments.replay,
        gpu_ids=arguments.gpu_ids,
        ngpus=arguments.ngpus,
        cluster=arguments.cluster or "",
        compile_workers=arguments.num_threads,
        compile_limit_s=float(arguments.compile_limit),
        jobs=arguments.starts_per_round,
        warmup=arguments.warmup,
        iters=arguments.iters,
        init_type=arguments.init_type,
        seed=arguments.seed,
        rotating_mib=arguments.rotating_tensor,
        compare=arguments.compare or "",
        search=arguments.search,
        # Configurations that are given may be of any family.
        families=() if arguments.benchmark or arguments.compare_wo_tuning else arguments.families,
        serve=served,
        kernels=kernels_of(arguments.kernel_from, given_to or served),
        budget_s=arguments.budget,
        launch_limit_s=float(arguments.launch_limit),
        update_file=arguments.update,
        gpu_wait_s=wait_s(arguments),
        older=older,
        older_served=older_served,
        min_improvement_pct=arguments.min_improvement,
        fresh=arguments.fresh,
        compile_stage=not arguments.no_compile_stage,
        cache_limit_bytes=arguments.cache_limit,
        keep=arguments.keep,
        verbose=arguments.verbose,
        time_breakdown=arguments.time_breakdown,
        given=arguments.given,
    )
    return idle_flags.without_idle(run_options)
