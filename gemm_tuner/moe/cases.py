"""What the checks of all configurations of a layer share: operands, and what C must be on them. Needs torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from gemm_tuner.languages.seal import Seal, are_intact
from gemm_tuner.moe.exact_operands import made_exact
from gemm_tuner.moe.launch import DOWN, PARTS, extent
from gemm_tuner.moe.operands import MoeOperands, make, scale_shapes, zero_shape
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.reference import exact, in_groups, references

# Most that is kept of a layer: two sets of Mixtral 8x7B's weights in bf16 are 5.3 GiB, and references of few tokens
# little. Weights of a larger layer, such as DeepSeek-V3's 10.5 GiB in fp8, are made anew for each configuration, in
# the memory of one set; references still fit.
KEPT_BYTES = 2**33
FLOAT64_BYTES = 8
RANDOM, EXACT = "random", "exact"

Groups = Iterable[tuple[Any, ...]]


class Expectations:
    """What C must be, made once where there is room for it.

    The room is what is left of KEPT_BYTES; what does not fit is made whenever it is asked for, a group of experts at a
    time.
    """

    def __init__(self, room_bytes: int) -> None:
        self._room_bytes = room_bytes
        self._found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        self.seals: list[Seal] = []

    def of(self, key: tuple[Any, ...], size_bytes: int, made: Callable[[], Groups]) -> Groups:
        """size_bytes: of what ``made`` returns, at most."""
        if key not in self._found:
            if size_bytes > self._room_bytes:
                return made()
            self._room_bytes -= size_bytes
            self._found[key] = list(made())
            self.seals += [Seal(group) for group in self._found[key]]
        return self._found[key]


class Case:
    """A set of operands, and what C of each GEMM must be on them.

    operands: without rows that a call sorted, or results. by_place: the second GEMM's A is by place
    (``sorted_rows.in_row_order``) where the operands that a method gets are those of such a call.
    """

    def __init__(self, operands: MoeOperands, which: str = RANDOM, expectations: Expectations | None = None) -> None:
        self.operands, self._which, self._expectations = operands, which, expectations

    def references(
        self, operands: MoeOperands, part: str, *, by_place: bool, wide: bool, activated: bool
    ) -> Groups:  # fmt: skip
        """``moe.reference.references`` in groups."""
        key = self._which, part, by_place and part == DOWN, wide, activated
        return self._of(key, 2, lambda: in_groups(references(operands, part, wide=wide, activated=activated)))

    def exact(self, operands: MoeOperands, part: str, *, by_place: bool, wide: bool) -> Groups:
        """``moe.reference.exact`` in groups."""
        key = self._which, part, by_place and part == DOWN, wide
        return self._of(key, 1, lambda: in_groups(exact(operands, part, wide=wide)))

    def _of(self, key: tuple[Any, ...], count: int, made: Callable[[], Groups]) -> Groups:
        if self._expectations is None:
            return made()
        problem = self.operands.problem
        columns = extent(problem, key[1]).columns
        return self._expectations.of(key, problem.rows * FLOAT64_BYTES * (1 + count * columns), made)


class Cases:
    """The operands of a layer's checks. Kept, each set is made once if both fit KEPT_BYTES, and what C must be as far
    as it fits."""

    def __init__(self, problem: MoeProblem, seed: int, device: str, *, kept: bool) -> None:
        self.problem, self.device, self.kept, self._seed = problem, device, kept, seed
        sets_bytes = 2 * operand_bytes(problem)
        self._keeps_operands = kept and sets_bytes <= KEPT_BYTES
        self._expectations = Expectations(KEPT_BYTES - (sets_bytes if self._keeps_operands else 0)) if kept else None
        self._sets: dict[str, MoeOperands] = {}
        self._seals: dict[str, Seal] = {}
        self._broken: list[Any] = []

    def random(self) -> Case:
        operands = self._sets.get(RANDOM) or make(self.problem, self._seed, self.device)[0]
        return self._case(RANDOM, operands, {})

    def exact(self, random: Case) -> Case:
        """The exact operands; unless operands are kept, in the memory of the random ones."""
        operands = self._sets.get(EXACT)
        if operands is None:
            if not self._keeps_operands and RANDOM in self._seals:
                self._broken.append(self._seals.pop(RANDOM).is_broken())
            operands = made_exact(random.operands, self._seed, apart=self._keeps_operands)
        return self._case(EXACT, operands, random.operands.aligned)

    def are_intact(self) -> bool:
        """Whether nothing that is kept, or that was compared with it, has been written to. Asked after each
        configuration: operands that are not kept are let go."""
        seals = [*self._seals.values(), *(self._expectations.seals if self._expectations else ())]
        intact = are_intact(seals) and not any(bool(one) for one in self._broken)
        self._broken.clear()
        if not self._keeps_operands:
            self._seals.clear()
        return intact

    def _case(self, which: str, operands: MoeOperands, aligned: dict[int, Any]) -> Case:
        if self.kept and which not in self._seals:
            self._seals[which] = Seal(_inputs(operands))
        if self._keeps_operands:
            self._sets[which] = operands
        # What calls add to operands is not kept: it is not sealed.
        ahead = replace(operands, aligned=aligned, placed={}, results={}, by_expert=[])
        return Case(ahead, which, self._expectations)


def operand_bytes(problem: MoeProblem) -> int:
    """Device memory of one set of operands, at most."""
    total = 4 * problem.rows
    for part in PARTS:
        of = extent(problem, part)
        scales = sum(math.prod(shape) for shape in scale_shapes(problem, part).values())
        zeros = math.prod(zero_shape(problem, part)) if problem.zero_points else 0
        total += int(problem.E * of.columns * of.depth * problem.weight_bytes) + 4 * scales + zeros
        total += 2 * (of.rows_a * of.depth + problem.rows * of.columns + problem.E * of.columns)
    return total


def _inputs(operands: MoeOperands) -> list[Any]:
    found = [operands.router]
    for one in operands.gemms.values():
        found += [one.a, one.w, one.a_scale, one.w_scale, one.bias, one.zero]
    return found
