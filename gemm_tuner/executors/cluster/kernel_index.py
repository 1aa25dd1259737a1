"""Which compiled kernels a plan runs: for machines that do not share the run's cache."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from gemm_tuner.compile.task_queue import TaskKey, key_of
from gemm_tuner.core.language import CompileTask
from gemm_tuner.launch.plan import Plan

SUPPORT: TaskKey = ("", "", "")


@dataclass
class KernelIndex:
    """made: the cache entries of each compile of the run so far; grows."""

    made: dict[TaskKey, tuple[str, ...]] = field(default_factory=dict)
    _keys: dict[tuple[str, str], set[TaskKey]] = field(default_factory=dict)

    def note(self, name: str, task: CompileTask) -> None:
        """The configuration of this name runs what the task compiles, at some size of its script."""
        if task.script is not None:
            self._keys.setdefault((task.script.file, name), set()).add(key_of(task))

    def entries(self, plan: Plan) -> Iterator[str]:
        """The cache entries that a plan's configurations load, at all sizes of their scripts, those of references, and
        the measurement's own."""
        called = itertools.chain(*((*work.entries, *work.reference) for work in plan.work))
        named = {(plan.scripts[script], name) for script, name in called}
        for key in sorted({SUPPORT}.union(*(self._keys.get(one, ()) for one in named))):
            yield from self.made.get(key, ())
