"""Results files of choices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.records import Problem
from gemm_tuner.store import results
from gemm_tuner.store.results import Header


def write_choices(
    path: Path, header: Header, choices: Iterable[Choice], failures: Iterable[tuple[Problem, str]] = ()
) -> None:
    results.write_rows(path, asdict(header), map(results.choice_row, choices), failures)
