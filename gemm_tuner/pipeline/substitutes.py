"""Substitutes: where a size's winner is in a language that not every machine has, such as CuTe DSL, its row also gets
the fastest right finalist in the language of the kind of problem, which exports can take instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gemm_tuner.core.choice import Substitute
from gemm_tuner.core.records import Problem, Verdict, Verified
from gemm_tuner.core.workload import workload_of
from gemm_tuner.pipeline.serving import is_right
from gemm_tuner.space.size_state import Named, SizeState

FINALISTS = 2  # number per size, if a finalist is in another language

Verdicts = Callable[[Problem, str], Sequence[Verdict]]


def is_optional(state: SizeState, name: str) -> bool:
    """Whether a configuration's kernel is in another language than that of the kind of problem."""
    workload = workload_of(state.problem.kind)
    return workload.language_for(state.kept[name].family) != workload.language


def added(state: SizeState, finalists: Sequence[str]) -> list[str]:
    """The finalists of a size; if any is in another language, also the fastest of screening that are not."""
    if not any(is_optional(state, name) for name in finalists):
        return list(finalists)
    others = [name for name in state.fastest(len(state.kept), state.own) if not is_optional(state, name)]
    return list(dict.fromkeys([*finalists, *others[:FINALISTS]]))


def candidates(state: SizeState, us: Mapping[str, float]) -> list[str]:
    """The finalists of a size that may become the substitute, best first. us: times by name, best first."""
    own = state.own
    return [name for name in us if name in own and state.may_run(name) and not is_optional(state, name)]


def to_check(order: Named, us: Iterable[Mapping[str, float]], verdicts: Verdicts) -> Named:
    """Of the sizes whose first finalist is in another language, those whose best substitute is not checked yet."""
    found = []
    for (state, names), times in zip(order, us, strict=True):
        wanted = candidates(state, times) if names and is_optional(state, names[0]) else []
        if wanted and not is_right(verdicts(state.problem, wanted[0])):
            found.append((state, wanted))
    return found


def substitute(state: SizeState, winner: str, us: Mapping[str, float], verdicts: Verdicts) -> Substitute | None:
    """The fastest right substitute for a winner; None if the winner needs none, or nothing was found right.

    us: times in finals by name, microseconds, best first.
    """
    if not is_optional(state, winner):
        return None
    right = (name for name in candidates(state, us) if is_right(verdicts(state.problem, name)))
    name = next(right, None)
    return None if name is None else Substitute(state.kept[name], round(us[name], 3), Verified.TRUE)
