"""``kernel --validate_key N``: measures how much slower a key's configuration is, at cases that were not tuned, than
the best configuration of each case."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.options import REPLAY
from gemm_tuner.core.errors import EXIT_OK, EXIT_UNVERIFIED, EnvironmentFault, UserError
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.cute.problem import problem_of
from gemm_tuner.export.kernels import choose, rows
from gemm_tuner.export.trust import Trust
from gemm_tuner.kernels.kernel_spec import Case, KernelSpec
from gemm_tuner.kernels.keys import key_of, text_of
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.kernels.unseen import unseen
from gemm_tuner.measure import device
from gemm_tuner.store import results, run_record
from gemm_tuner.store.run_record import positive
from gemm_tuner.store.sizes import SizeEntry
from gemm_tuner.system.terminal_table import Column, print_line, print_table


def require_output(output: Path | None) -> Path:
    """Returns the results file whose keys are validated. Raises UserError if it is missing."""
    if output is None:
        raise UserError("--validate_key needs the results file", where="--output", accepted="--output FILE.yaml")
    return output


def require_gpu(arguments: argparse.Namespace) -> None:
    """Raises EnvironmentFault, before anything is tuned, if this machine has no GPU to time on. A cluster's GPUs are
    known to the run only."""
    if arguments.profiler == REPLAY or arguments.cluster is not None:
        return
    found = sorted({str(gpu["arch"]) for gpu in device.look().gpus})
    if not found or arguments.arch not in ("", *found):
        here = f"this machine's GPU is {', '.join(found)}" if found else "torch sees no GPU on this machine"
        raise EnvironmentFault(
            f"--validate_key needs a GPU to time on, and {here}", hint="without it times are predicted"
        )


def validate(
    arguments: argparse.Namespace, shown: Consoles, spec: KernelSpec, cases: Sequence[Case], count: int
) -> int:
    """Tunes ``count`` cases that were not tuned, each with its key's configuration as a finalist, into a separate
    results file. Raises EnvironmentFault if nothing can be timed."""
    from gemm_tuner.cli.main import run

    output = require_output(arguments.output)
    found = results.read(output)
    if found.header.get("source") == "predicted":
        raise EnvironmentFault("--validate_key needs a GPU to time on", hint="without a GPU times are predicted")
    tuned, _ = rows.select(found, output, Trust(unverified=True), None)
    mine = {sha: of for sha, of in tuned.items() if sha == problem_of(spec, cases[0]).sha}
    # Unverified choices count: only times are used here.
    kernels, _ = choose.chosen(mine, lambda _, __: Verified.FALSE)
    by_key = {entry.key: entry.config for kernel in kernels for entry in kernel.entries}
    new = [case for case in unseen(spec, cases, count, arguments.seed) if key_of(spec, case) in by_key]
    if not new:
        print_line(shown.log, "validation of the key: no key of the cases drawn has a configuration")
        return EXIT_UNVERIFIED
    file = output.with_name(f"{output.stem}_validation.yaml")
    problems = [problem_of(spec, case) for case in new]
    given = [
        {**problem.row(), **{key: results.plain(value) for key, value in by_key[key_of(spec, case)].to_dict().items()}}
        for problem, case in zip(problems, new, strict=True)
    ]
    results.write_rows(file, found.header, given, [])
    print_line(shown.log, f"validation of the key: {len(new)} cases that were not tuned")
    again = argparse.Namespace(**{**vars(arguments), "update": file, "output": file, "min_improvement": 0.0})
    status = run(again, shown, tuple(SizeEntry(problem) for problem in problems))
    names = [by_key[key_of(spec, case)].name for case in new]
    losses = [loss(file, problem, name) for problem, name in zip(problems, names, strict=True)]
    _show(shown, losses)
    return status or (EXIT_OK if all(one.pct is not None for one in losses) else EXIT_UNVERIFIED)


@dataclass(frozen=True, slots=True)
class Loss:
    """its_us: time of the key's configuration; None if it was not timed. best_us: time of the case's best."""

    case: str
    key: str
    name: str
    its_us: float | None
    best_us: float

    @property
    def pct(self) -> float | None:
        return None if self.its_us is None else 100 * (self.its_us / self.best_us - 1)


def loss(file: Path, problem: KernelProblem, name: str) -> Loss:
    """The loss of a configuration in the finals of a case. file: a results file whose run still exists."""
    folder = run_record.tables_folder(file, results.read(file).header)
    table = run_record.read_table(folder, problem.key)
    rows = table[table["status"] == Status.OK.value].to_dict("records")
    times = {str(row["name"]): us for row in rows if (us := positive(row["finals_us"])) is not None}
    key = text_of(key_of(problem.spec, problem.case)) if problem.spec else ""
    return Loss(problem.shape, key, name, times.get(name), min(times.values(), default=0.0))


def _show(shown: Consoles, losses: Sequence[Loss]) -> None:
    """Prints a row per case, and the mean and the largest loss."""
    lines = [
        [one.case, one.key, one.name, *(
            ("", "", "was not timed") if one.pct is None else
            (f"{one.its_us:.2f}", f"{one.best_us:.2f}", f"{one.pct:.1f} %"))]
        for one in losses
    ]  # fmt: skip
    columns = [Column("case"), Column("key"), Column("config"), Column("its us", True), Column("best us", True),
               Column("loss", True)]  # fmt: skip
    print_table(shown.out, "the key's configuration at cases that were not tuned", columns, lines)
    known = [one.pct for one in losses if one.pct is not None]
    if known:
        mean = f"{sum(known) / len(known):.1f} % on the mean of {len(known)} cases"
        print_line(shown.out, f"the key costs {mean}, {max(known):.1f} % at most")
