"""Which configurations a run without a GPU compiles, and which of them it can check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemm_tuner.consumers.server import Server
from gemm_tuner.core.language import language_of
from gemm_tuner.core.workload import workload_of
from gemm_tuner.pipeline import serving
from gemm_tuner.pipeline.prepare import best_predicted
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.space.size_state import SizeState

CHECKED_A_SIZE = 3
# So many times the usual candidates are compiled of a size of which fewer than CHECKED_A_SIZE fit.
MORE_TIMES = 3
# Of families that nothing runs without a GPU.
UNCHECKED_A_SIZE = 4


@dataclass(frozen=True)
class Candidates:
    """The names of one size's configurations, each part predicted best first.

    best:   of those that can be checked, what is compiled of a size of which few fit.
    beside: of those that nothing runs without a GPU.
    served: those that servers can launch.
    usual:  how many of ``best`` are compiled at first.
    """

    best: tuple[str, ...]
    beside: tuple[str, ...]
    served: tuple[str, ...]
    usual: int

    @property
    def first(self) -> list[str]:
        """What is compiled at first, each name once."""
        return list(dict.fromkeys((*self.best[: self.usual], *self.beside, *self.served)))

    @property
    def possible(self) -> list[str]:
        """What is compiled at the most, each name once."""
        return list(dict.fromkeys((*self.best, *self.beside, *self.served)))


def of_size(options: RunOptions, servers: Sequence[Server], state: SizeState) -> Candidates:
    """The configurations of a size that a run without a GPU compiles."""
    count = options.predicted_candidates
    checkable = checkable_of(options, state)
    others = sorted(set(state.own) - set(checkable))
    most = UNCHECKED_A_SIZE if checkable else MORE_TIMES * count
    return Candidates(
        best=tuple(best_predicted(state, checkable, MORE_TIMES * count)),
        beside=tuple(best_predicted(state, others, most)),
        served=tuple(serving.predicted_best(servers, state, list(state.kept))),
        usual=count,
    )


def checkable_of(options: RunOptions, state: SizeState) -> list[str]:
    """The names of a size's own configurations whose kernels something runs without a GPU."""
    one_of = {state.kept[name].family: name for name in state.own}
    families = {family for family, name in one_of.items() if is_checked(options, state, name)}
    return [name for name in state.own if state.kept[name].family in families]


def is_checked(options: RunOptions, state: SizeState, name: str) -> bool:
    """Whether something runs the kernel of a configuration without a GPU; True where that is so for none of the run."""
    if options.language.interpreter_environment() is None:
        return True
    workload = workload_of(state.problem.kind)
    language = language_of(workload.language_for(state.kept[name].family))
    return language.interpreter_environment() is not None


def most_checks(options: RunOptions, servers: Sequence[Server], state: SizeState) -> int:
    """How many configurations of a size are checked without a GPU, at the most: the best, and each server's."""
    if options.language.interpreter_environment() is None:
        return 0
    wanted = [checkable_of(options, state)]
    wanted += [server.launchable(state) for server in servers]
    return sum(min(CHECKED_A_SIZE, len(names)) for names in wanted)
