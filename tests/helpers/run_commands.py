"""Commands that begin, continue and end runs."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from samples import problem
from tuning import environment, run_options

from gemm_tuner.pipeline import run_start
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.store.run_folder import RunFolder
from gemm_tuner.store.store import Store

ONE, TWO, THREE = problem(512, 512, 512), problem(64, 64, 64), problem(96, 64, 64)


class Commands:
    """Starts of the tuner in one folder; each ends before the next unless a test says otherwise."""

    def __init__(self, folder: Path) -> None:
        self.asked = run_options(folder, ONE, TWO)

    def begin(
        self, stack: ExitStack, of: Environment | None = None, resumes: bool = True, **changes: Any
    ) -> tuple[RunFolder, Store]:
        asked = replace(self.asked, **changes)
        self.said: list[str] = []
        return run_start.begin(asked, of or environment(), "nsys 2025.3", stack, resumes=resumes, say=self.said.append)

    def run(self, *, ends: bool = False, of: Environment | None = None, resumes: bool = True, **changes: Any) -> Path:
        """The folder that a command has worked in. ends: it came to its end, and was not killed."""
        with ExitStack() as stack:
            folder, store = self.begin(stack, of, resumes, **changes)
            if ends:
                folder.results_path(None).touch()
                store.set_fact("state", run_start.FINISHED)
            return folder.root
