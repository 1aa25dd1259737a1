"""Compares both GEMMs of a call with float64 products of the quantized operands, and exact ones. Needs torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.judges import SharingExaminer
from gemm_tuner.core.records import Verdict
from gemm_tuner.core.workload import launch_all
from gemm_tuner.languages.bits import Comparisons
from gemm_tuner.moe import launch, sorted_rows
from gemm_tuner.moe.cases import Case, Cases, Groups
from gemm_tuner.moe.cute import CUTE, is_fused
from gemm_tuner.moe.exact_operands import difference
from gemm_tuner.moe.launch import DOWN, PARTS, UP
from gemm_tuner.moe.launchers import of_config
from gemm_tuner.moe.operands import MoeOperands
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.reference import in_groups, references

if TYPE_CHECKING:
    from gemm_tuner.moe.workload import MoeWorkload

REPEATS = 3


def check(workload: MoeWorkload, script: ModuleType, problem: MoeProblem, name: str, seed: int, device: str) -> Verdict:
    """Checks one configuration: with random operands, whose C must be within the error bound of the reference, and with
    exact ones, whose C must be equal; the errors of the verdict are those of the random ones. Results are NaN before
    the call. On a GPU repeated calls must give the same bits."""
    return examined(workload, script, name, Cases(problem, seed, device, kept=False))


def examiner(workload: MoeWorkload, problem: MoeProblem, seed: int, device: str) -> SharingExaminer[Cases]:
    """Gives the verdicts of ``check``. Operands and what C must be on them are made once, as far as KEPT_BYTES
    allow."""
    return SharingExaminer(partial(Cases, problem, seed, device, kept=True), partial(examined, workload))


def examined(workload: MoeWorkload, script: ModuleType, name: str, cases: Cases) -> Verdict:
    """The verdict of ``check``."""
    device, case = cases.device, cases.random()
    verdict = check_random(Call.of(workload, script, name, case.operands, device), name, device, case)
    if not verdict.ok:
        return verdict
    case = cases.exact(case)
    return check_exact(Call.of(workload, script, name, case.operands, device), verdict, case)


@dataclass(frozen=True)
class Call:
    """A configuration's launches on some operands.

    operands: with the second GEMM's A by row. given: what the kernels take. results: C of each GEMM, whose rows of the
    routing are at ``places``.
    """

    config: dict[str, Any]
    operands: MoeOperands
    given: MoeOperands
    launches: list[Any]
    results: dict[str, Any]
    places: Any

    @classmethod
    def of(cls, workload: MoeWorkload, script: ModuleType, name: str, operands: MoeOperands, device: str) -> Call:
        given = operands.interpretable() if device == "cpu" else operands
        config, problem = script.CONFIGS[name], operands.problem
        launches = workload.launches(script, config, problem, given, None, processors(device))
        if of_config(problem, config) is not CUTE:
            results = {part: one.c for part, one in given.of_config(config).items()}
            return cls(config, operands, given, launches, results, slice(None))
        results = {part: sorted_rows.result(given, config, part) for part in PARTS}
        places, by_row = sorted_rows.of(operands).places, sorted_rows.in_row_order(operands)
        return cls(config, by_row, given, launches, results, places)

    def run(self) -> dict[str, Any]:
        """C of each GEMM by rows of the routing."""
        for part in PARTS:
            self.results[part].fill_(float("nan"))
        launch_all(self.launches)
        return {part: self._by_row(part) for part in PARTS}

    def _by_row(self, part: str) -> Any:
        found = self.results[part][self.places]
        return self.given.in_rows(found, self.config["BLOCK_SIZE_M"]) if self._is_sorted(part) else found

    def _is_sorted(self, part: str) -> bool:
        return launch.sides(self.config, part).c_sorted

    @property
    def is_by_place(self) -> bool:
        """Whether results, and the second GEMM's A, are by place."""
        return not isinstance(self.places, slice)

    def writes_zeros(self, part: str) -> bool:
        """To the rows of other ranks' experts, which it leaves alone otherwise."""
        return of_config(self.operands.problem, self.config) is not CUTE and not self._is_sorted(part)

    def narrowed(self, part: str, found: Any) -> Any:
        """In the type of C, which is wider in the interpreter."""
        return found.to(self.operands.gemms[part].c.dtype)


def check_random(call: Call, name: str, device: str, case: Case) -> Verdict:
    problem, worst = call.operands.problem, Verdict(call.operands.problem, name, True, 0.0, 0.0)
    how = {part: {"wide": call.given.wide, "activated": part == UP and is_fused(call.config)} for part in PARTS}

    def references(part: str) -> Groups:
        return case.references(call.operands, part, by_place=call.is_by_place, **how[part])

    ahead = made_ahead(call, references)
    first = {part: found.clone() for part, found in call.run().items()}
    for part, found in first.items():
        expected = ahead[part] if part in ahead else references(part)
        of_part: dict[str, Any] = {**how[part], "writes_zeros": call.writes_zeros(part), "expected": expected}
        verdict = compared(problem, call.operands, part, name, call.narrowed(part, found), **of_part)
        worst = verdict if verdict.error_over_bound > worst.error_over_bound or not verdict.ok else worst
    return repeated(call, first, worst) if worst.ok and device != "cpu" else worst


def made_ahead(call: Call, made: Callable[[str], Groups]) -> dict[str, Groups]:
    """What C of the second GEMM must be, if its A is a copy by place: no seal shows that a call wrote to that, so what
    is kept is made before the call."""
    return {DOWN: made(DOWN)} if call.is_by_place else {}


def repeated(call: Call, first: dict[str, Any], verdict: Verdict) -> Verdict:
    """``verdict`` if REPEATS calls all give the bits of ``first``, C of each GEMM; else an unstable one. The host does
    not wait for a call before it queues the next."""
    calls = {part: Comparisons(c) for part, c in first.items()}
    for _ in range(2, REPEATS + 1):
        for part, found in call.run().items():
            calls[part].add(found)
    differ = [(found.which, part) for part in PARTS if (found := calls[part].first()) is not None]
    if not differ:
        return verdict
    which, part = min(differ, key=lambda one: one[0])
    text = f"call {which + 2} of the {part} GEMM gave other bits"
    return Verdict(verdict.problem, verdict.name, False, 0.0, 0.0, (0, 0), text, stable=False)


def check_exact(call: Call, verdict: Verdict, case: Case) -> Verdict:
    """``verdict`` if C of each GEMM is exact, else a failed one. An activation's results are not exact."""

    def exact(part: str) -> Groups:
        return case.exact(call.operands, part, by_place=call.is_by_place, wide=call.given.wide)

    ahead = made_ahead(call, exact)
    for part, found in call.run().items():
        if part == UP and is_fused(call.config):
            continue
        narrow = call.narrowed(part, found)
        for rows, expected in ahead[part] if part in ahead else exact(part):
            if where := difference(expected, narrow[rows]):
                row, column = int(rows[where[0]]), where[1]
                values = f"{float(narrow[row, column]):.9g}, exactly {float(expected[where]):.9g}"
                text = f"the {part} GEMM is wrong in row {row}, column {column}: it is {values} (exact operands)"
                return replace(verdict, ok=False, worst_element=(row, column), message=text)
    return verdict


def processors(device: str) -> int:
    """The number of SMs or compute units; 1 for the interpreter."""
    import torch

    return 1 if device == "cpu" else int(torch.cuda.get_device_properties(0).multi_processor_count)


def compared(
    problem: MoeProblem, operands: MoeOperands, part: str, name: str, found: Any, *, wide: bool,
    writes_zeros: bool = True, activated: bool = False, expected: Iterable[tuple[Any, ...]] | None = None,
) -> Verdict:  # fmt: skip
    """The verdict on C of one GEMM: errors are relative to their bounds; a row that was not written is wrong. wide: the
    kernel multiplied in fp32. writes_zeros: to the rows of other ranks' experts, which it leaves alone otherwise.
    activated: C has the activation's results. expected: ``references`` in groups, if they are known."""
    import numpy as np
    import torch

    worst, at, most = 0.0, (0, 0), 0.0
    others = torch.from_numpy(np.flatnonzero(operands.ids.reshape(-1) >= problem.E)).to(found.device)
    if writes_zeros and len(others) and (wrong := torch.nonzero(found[others] != 0)).numel():
        row, column = int(others[wrong[0, 0]]), int(wrong[0, 1])
        text = f"the {part} GEMM is wrong in row {row}, column {column}: no zero for another rank's expert"
        return Verdict(problem, name, False, math.inf, math.inf, (row, column), text)
    groups = expected or in_groups(references(operands, part, wide=wide, activated=activated))
    for rows, values, bound in groups:
        error = (found[rows].double() - values).abs_()
        score = (error / bound).nan_to_num_(nan=math.inf, posinf=math.inf)
        place, columns = score.argmax(), values.shape[1]
        numbers = (
            rows.take(place // columns),
            place % columns,
            score.take(place),
            error.nan_to_num_(nan=math.inf).max(),
        )
        # In one tensor and by ``take``, so that the host waits for the GPU once.
        row, column, over, largest = torch.stack([number.double() for number in numbers]).tolist()
        most = max(most, largest)
        if over > worst:
            worst, at = over, (int(row), int(column))
    text = "" if worst <= 1 else f"the {part} GEMM is wrong in row {at[0]}, column {at[1]}"
    return Verdict(problem, name, worst <= 1, most, worst, at, text)
