"""Checks the configurations of every size, best first, until one is correct."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gemm_tuner.core.records import Problem, Status, Verdict
from gemm_tuner.core.script import Script
from gemm_tuner.core.workload import workload_of
from gemm_tuner.launch.journal import End, Fail, Judged
from gemm_tuner.launch.plan import VERIFY, Method, Plan, Work
from gemm_tuner.measure.launcher_events import Died, Heard
from gemm_tuner.space.size_state import Named, SizeState
from gemm_tuner.store.store import Store

# Number of configurations that are compared with each other for a size without a reference.
COMPARED = 8

OnDecided = Callable[[Problem, str | None, list[Verdict]], None]


@dataclass
class Checked:
    """The state of one size while its candidates are checked.

    names: the candidates; others may be checked for comparison. left: those without a result yet.
    """

    state: SizeState
    names: tuple[str, ...]
    left: list[str]
    verdicts: dict[str, list[Verdict]] = field(default_factory=dict)
    right: str | None = None
    decided: bool = False


def with_jurors(candidates: Named) -> Named:
    """The candidates, and for sizes without a reference additional configurations to compare them with: compiled ones
    that may run, spread from the fastest to the slowest."""
    return [(state, [*names, *_jurors(state, names)]) for state, names in candidates]


def _jurors(state: SizeState, names: Sequence[str]) -> list[str]:
    if not workload_of(state.problem.kind).compares_configs(state.problem):
        return []
    us = {**state.predicted_us, **state.screened_us()}
    others = [name for name in state.own if name not in names and state.may_run(name) and state.has_binary(name)]
    others.sort(key=lambda name: (us[name], name))
    wanted = min(len(others), max(0, COMPARED - len(names)))
    return [others[place * len(others) // wanted] for place in range(wanted)]


class Verification:
    """Evaluates the events of a check, and calls ``on_decided`` for each size as soon as its winner is known.

    A candidate is correct if its verdicts at the tuned and at the odd size are. A candidate that is wrong or could not
    run is recorded as such, and the next best is considered.

    all_of_them: decide a size only when all its candidates are checked, so that the runner-up is verified too.
    store:       keeps the verdicts as they arrive.
    """

    def __init__(
        self,
        candidates: Named,
        on_decided: OnDecided,
        store: Store | None = None,
        *,
        all_of_them: bool = False,
    ) -> None:
        self._all_of_them, self._store = all_of_them, store
        self.sizes = {state.problem: Checked(state, tuple(names), list(names)) for state, names in candidates}
        self._on_decided = on_decided

    def hear(self, problem: Problem, event: Heard) -> None:
        """Handles one event of the check of a problem."""
        size, name = self.sizes[problem], event.name
        if isinstance(event, Judged):
            if self._store is not None:
                self._store.add_verdict(problem, event.verdict)
            size.verdicts.setdefault(name, []).append(event.verdict)
        elif isinstance(event, Fail):
            self._fail(size, name, event.status, event.message)
            size.verdicts[name] = []
        elif isinstance(event, Died):
            self._fail(size, name, Status.CRASHED, event.message)
            size.verdicts[name] = []
            self._done(size, name)
        elif isinstance(event, End):
            self._done(size, name)

    def _fail(self, size: Checked, name: str, status: Status, message: str) -> None:
        if self._store is not None:
            self._store.add_failure(size.state.problem, name, status, message)
        size.state.record(name, status, message)

    def _done(self, size: Checked, name: str) -> None:
        verdicts = size.verdicts.get(name, [])
        wrong = sorted((v for v in verdicts if not v.ok), key=lambda v: v.stable)
        if wrong:
            at = f"at {wrong[0].problem.shape}"
            status = Status.WRONG if wrong[0].stable else Status.UNSTABLE
            self._fail(size, name, status, f"{at}: {wrong[0].message}")
        if verdicts and not wrong and size.right is None and name in size.names:
            size.right = name
        if name in size.left:
            size.left.remove(name)
        known = size.right is not None and not self._all_of_them
        if (known or not size.left) and not size.decided:
            self._decide(size)

    def _decide(self, size: Checked) -> None:
        size.decided = True
        self._on_decided(size.state.problem, size.right, size.verdicts.get(size.right or "", []))

    def finish(self) -> None:
        """Decides the sizes that the check did not reach."""
        for size in self.sizes.values():
            if not size.decided:
                self._decide(size)


def verify_plan(
    candidates: Named,
    scripts: Mapping[tuple[str, str], Script],
    seed: int,
    *,
    all_of_them: bool,
    deadline: float = 0.0,
) -> Plan:
    """A plan that checks every size's candidates in the given order. deadline: Unix time after which no check begins.

    scripts: by family and signature.
    """
    files: list[str] = []
    work = []
    for state, names in candidates:
        entries = []
        for name in names:
            file = scripts[state.kept[name].family, state.problem.signature].file
            if file not in files:
                files.append(file)
            entries.append((files.index(file), name))
        work.append(Work(state.problem, tuple(entries)))
    method = Method(seed=seed)
    return Plan(VERIFY, tuple(files), tuple(work), method, stop_at_first_right=not all_of_them, deadline=deadline)
