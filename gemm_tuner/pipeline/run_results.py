"""The outcome of each size of a run, in memory and in the results file."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.records import Problem
from gemm_tuner.decide.ranking import Published
from gemm_tuner.store.results import Header
from gemm_tuner.store.results_file import Judgement, ResultsFile


@dataclass
class RunResults:
    """Every size ends up in ``choices``, or in ``failures`` with the reason.

    path:      of the results file. order: the run's problems. header: of the results file.
    published: published times of the finals.
    """

    path: Path
    order: Sequence[Problem]
    header: Header
    choices: dict[Problem, Choice] = field(default_factory=dict)
    failures: dict[Problem, str] = field(default_factory=dict)
    published: dict[Problem, dict[str, Published]] = field(default_factory=dict)

    @functools.cached_property
    def file(self) -> ResultsFile:
        """The results file, opened at the first outcome. Raises UserError."""
        return ResultsFile(self.path, self.order)

    def record(
        self, problem: Problem, choice: Choice | None, reason: str = "", judgement: Judgement | None = None
    ) -> None:
        """Records the outcome of a size, which must already be stored; the results file is updated within seconds."""
        if choice is not None:
            self.choices[problem] = choice
        else:
            self.failures[problem] = reason
        self.file.record_outcome(problem, choice, reason, judgement)
        self.file.write_when_due(self.header)

    def write(self) -> None:
        """Updates the results file. Raises EnvironmentFault if it cannot be written."""
        self.file.write(self.header)
