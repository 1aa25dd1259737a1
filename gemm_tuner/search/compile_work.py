"""What the kernels of a search take to compile: one that any size of the run asks for costs the others nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from gemm_tuner.core.records import Problem, Target
from gemm_tuner.core.workload import workload_of
from gemm_tuner.search.view import SizeView

# Kernels of CuTe DSL take 1.3 to 4 times what Triton's take.
DEAR = 1.25

Floats = npt.NDArray[np.float64]
Kernels = npt.NDArray[np.uint64]


class CompileWork:
    """The kernels that are asked for, and the price of others.

    price: of a second of a core, as a natural logarithm of time: 0.1 for a configuration that may be 10 % slower.
    """

    def __init__(self, target: Target, price: float) -> None:
        self._target, self._price = target, price
        self._asked: set[int] = set()
        self._found: dict[Problem, tuple[Kernels, Floats]] = {}

    def prices(self, size: SizeView) -> tuple[Kernels, Floats]:
        """(kernel, price) of each candidate; kernels that are asked for cost 0."""
        kernels, seconds = self._of(size)
        is_new = np.array([one not in self._asked for one in kernels.tolist()], dtype=bool)
        return kernels, self._price * np.where(is_new, seconds, 0.0)

    def ask(self, size: SizeView, names: Collection[str]) -> None:
        """Adds the kernels of these candidates to those that are asked for."""
        kernels, _ = self._of(size)
        self._asked.update(kernels[size.candidates.index.isin(list(names))].tolist())

    def _of(self, size: SizeView) -> tuple[Kernels, Floats]:
        if size.problem not in self._found:
            self._found[size.problem] = work_of(size, self._target)
        return self._found[size.problem]


def work_of(size: SizeView, target: Target) -> tuple[Kernels, Floats]:
    """(kernel, seconds of a core to compile it) of each candidate; of kinds that do not say, each its own that takes
    none."""
    found: tuple[Kernels, Floats] | None
    found = workload_of(size.problem.kind).compile_work(size.candidates, size.problem, target)
    if found is not None:
        return found
    return np.arange(len(size.candidates), dtype=np.uint64), np.zeros(len(size.candidates))


def worth_ahead(size: SizeView, likely: Sequence[str], count: int, target: Target) -> list[str]:
    """Those of the first ``count`` likely names that are worth compiling ahead: a kernel that takes twice as
    long as the size's cheapest only from the first half, because what is later in the list is less often asked for."""
    _, seconds = work_of(size, target)
    row_of = {name: row for row, name in enumerate(size.candidates.index)}
    least = float(seconds.min()) if len(seconds) else 0.0
    return [name for place, name in enumerate(likely[:count]) if place * seconds[row_of[name]] <= count * least]


def dear(size: SizeView, names: Collection[str], target: Target) -> list[str]:
    """Those names whose kernels take more than DEAR times as long to compile as the size's cheapest."""
    _, seconds = work_of(size, target)
    far = set(size.candidates.index[seconds > DEAR * seconds.min(initial=np.inf)])
    return [name for name in names if name in far]
