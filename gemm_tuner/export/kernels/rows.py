"""Reads the rows of users' kernels from a results file, with the spec of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Verified
from gemm_tuner.cute.problem import problem_of
from gemm_tuner.export.offers import LeftOut, known_wrong
from gemm_tuner.export.trust import Trust
from gemm_tuner.hosts import host_spec_file
from gemm_tuner.hosts.host_spec import HostProblem, HostSpec
from gemm_tuner.kernels import kernel_spec_file
from gemm_tuner.kernels.kernel_spec import KernelSpec
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.store import results, run_record
from gemm_tuner.store.results import Results, Row
from gemm_tuner.store.run_folder import is_from_python
from gemm_tuner.system.input_files import printable


@dataclass(frozen=True, slots=True)
class TunedCase:
    """A case and its chosen configuration. us: measured time, else predicted. folder: of the run's tables."""

    problem: KernelProblem
    spec: KernelSpec
    config: PlainConfig
    us: float
    verified: Verified
    source: str
    folder: Path


def has_kernels(found: Results) -> bool:
    problems = [row.problem for row in found.rows] + [problem for problem, _ in found.without_config]
    return any(isinstance(problem, KernelProblem) for problem in problems)


def select(
    found: Results, path: Path, trust: Trust, spec_file: Path | None
) -> tuple[dict[str, list[TunedCase]], list[LeftOut]]:
    """(the cases of each kernel, by the sha of its spec; what is left out, with the reason).

    spec_file: a spec to use instead of the stored ones, for example with another key.
    Raises UserError for a row of another kind, and for a row whose spec does not exist any more.
    """
    cases: dict[str, list[TunedCase]] = {}
    left_out = [LeftOut(problem.key, "", f"was not tuned: {reason}") for problem, reason in found.without_config]
    specs = _Specs(path, spec_file)
    for row in found.rows:
        problem, config, source = row.problem, row.config, found.source_of(row)
        if not isinstance(problem, KernelProblem) or not isinstance(config, PlainConfig):
            raise UserError("is no kernel of a spec", where=row.where, hint="export GEMMs from a file of their own")
        if reason := known_wrong(row) or trust.fault(row.verified, source):
            left_out.append(LeftOut(problem.key, config.name, reason))
            continue
        us = row.facts.get("median_us", row.facts.get("predicted_us", 0.0))
        whole, folder = specs.of(problem, row, found.header_of(row))
        assert whole.spec is not None
        one = TunedCase(whole, whole.spec, config, us, row.verified, source, folder)
        cases.setdefault(problem.sha, []).append(one)
    return cases, left_out


class _Specs:
    """Finds the specs of problems in the records of the runs that wrote the rows."""

    def __init__(self, path: Path, spec_file: Path | None) -> None:
        self._path = path
        self._given = None if spec_file is None else (spec_file, _read(spec_file))
        self._kept: dict[Path, Mapping[KernelProblem, KernelProblem]] = {}

    def of(self, problem: KernelProblem, row: Row, header: Mapping[str, str | int]) -> tuple[KernelProblem, Path]:
        """The problem of a row with its spec, and the folder of the run's tables."""
        folder = results.run_folder(self._path, header) or self._path.parent
        if self._given is not None:
            file, spec = self._given
            given = HostProblem.of(spec, problem.case) if isinstance(spec, HostSpec) else problem_of(spec, problem.case)
            if given != problem:
                hint = "give the spec and the kernel as they were tuned; key and buckets may differ"
                raise UserError(f"is not what {problem.key} was tuned by", where=printable(file), hint=hint)
            return given, folder
        if folder not in self._kept:
            self._kept[folder] = _problems_of(folder)
        if problem not in self._kept[folder] and is_from_python(folder):
            hint = "--to source prints it to bake in"
            raise UserError("was tuned from Python, and has no spec to export by", where=row.where, hint=hint)
        if problem not in self._kept[folder]:
            hint = "name the spec file by --spec"
            raise UserError(f"its run, {folder}, is gone, and its spec with it", where=row.where, hint=hint)
        return self._kept[folder][problem], folder


def _read(spec_file: Path) -> KernelSpec:
    of_host = host_spec_file.names_host(spec_file)
    return host_spec_file.read("", "", spec_file)[0] if of_host else kernel_spec_file.read(spec_file)[0]


def _problems_of(folder: Path) -> dict[KernelProblem, KernelProblem]:
    """The cases that a run tuned, with their specs; keys are equal to the problems of results rows, which have none."""
    try:
        problems = [size.problem for size in run_record.read(folder).sizes]
    except UserError:
        return {}
    return {one: one for one in problems if isinstance(one, KernelProblem) and one.spec is not None}
