"""What the checks of all configurations of a problem share: operands, and what C must be on them. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.gemm.compare import Expected, blocks
from gemm_tuner.gemm.exact_operands import count_sets, exact_limits, make_exact_operands, with_exact_factors
from gemm_tuner.gemm.operands import Operands, make_operands, unwrite
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.reference import reference
from gemm_tuner.languages.seal import Seal, are_intact

# Most that is kept of a problem: 8192 x 8192 x 8192 in 16 bits takes 2.25 GiB, about as much as the tensors of one
# comparison of COMPARE_ELEMENTS in float64. A larger problem makes the same things anew for each configuration, so that
# a check needs no more memory for them than one set of operands and a block of C: those of the largest sizes would not
# fit a GPU together.
KEPT_BYTES = 2**32
# Bytes of the reference and of its bound, at most.
WIDE_BYTES = 2 * 8

T = TypeVar("T")


class Case(Generic[T]):
    """A set of operands, and what C must be on them, of type T for each block of C."""

    def __init__(
        self,
        problem: GemmProblem,
        operands: Operands,
        make: Callable[[slice, slice], T],
        sealed: Callable[[T], Iterable[Any]] | None,
    ) -> None:
        """make: what is expected of some matrices of the batch and rows of them. sealed: the tensors of it; None where
        nothing is kept."""
        self.problem, self._operands = problem, operands
        self._make, self._sealed = make, sealed
        self._expected: list[tuple[slice, slice, T]] | None = None
        self._seals = [Seal(_inputs(operands))] if sealed else []

    def unwritten(self) -> Operands:
        """The operands. C is filled by ``unwrite``: one that an earlier configuration wrote is right already."""
        unwrite(self._operands.c, self.problem.dtype_c)
        return self._operands

    def expected(self) -> Iterable[tuple[slice, slice, T]]:
        """(matrices, rows, what C must be there) of all blocks."""
        if self._sealed is None:
            return self._made()
        if self._expected is None:
            self._expected = list(self._made())
            self._seals += [Seal(self._sealed(one)) for _, _, one in self._expected]
        return self._expected

    def _made(self) -> Iterator[tuple[slice, slice, T]]:
        for matrices, rows in blocks(self.problem):
            yield matrices, rows, self._make(rows, matrices)

    def seals(self) -> list[Seal]:
        return self._seals


class Cases:
    """The operands of a problem's checks. Kept, each set is made once, else whenever it is asked for."""

    def __init__(self, problem: GemmProblem, seed: int, device: str, *, kept: bool) -> None:
        self.problem, self.device, self.kept, self._seed = problem, device, kept, seed
        self._cases: dict[int | None, Case[Any]] = {}

    def random(self) -> Case[Expected]:
        """N(0, 1) operands, with the reference."""
        return self._case(None, self._random)

    def exact(self, number: int) -> Case[tuple[Any, Any]]:
        """Set ``number`` of the exact operands, with the smallest and the largest correct C."""
        return self._case(number, lambda: self._exact(number))

    def are_intact(self) -> bool:
        """Whether nothing that is kept has been written to."""
        return are_intact(seal for case in self._cases.values() for seal in case.seals())

    def _case(self, key: int | None, make: Callable[[], Case[T]]) -> Case[T]:
        if not self.kept:
            return make()
        if key not in self._cases:
            self._cases[key] = make()
        return self._cases[key]

    def _random(self) -> Case[Expected]:
        problem, operands = self.problem, make_operands(self.problem, "randn", self._seed, self.device)

        def expected(rows: slice, matrices: slice) -> Expected:
            return Expected.of(*reference(problem, operands, rows, matrices), problem)

        return Case(problem, operands, expected, Expected.tensors if self.kept else None)

    def _exact(self, number: int) -> Case[tuple[Any, Any]]:
        problem = with_exact_factors(self.problem)
        operands = make_exact_operands(problem, number, self._seed, self.device)

        def limits(rows: slice, matrices: slice) -> tuple[Any, Any]:
            return exact_limits(problem, operands, rows, matrices)

        return Case(problem, operands, limits, _once if self.kept else None)


def kept_bytes(problem: GemmProblem) -> int:
    """Device memory of all that can be kept of a problem."""
    sets, c = 1 + count_sets(problem), problem.batch * problem.m * problem.n
    limits = 2 * sets * DTYPES[problem.dtype_c].size_bytes
    return sets * problem.bytes_moved + c * (WIDE_BYTES + limits)


def _once(limits: tuple[Any, Any]) -> list[Any]:
    low, high = limits
    return [low] if low is high else [low, high]


def _inputs(operands: Operands) -> list[Any]:
    return [operands.a, operands.b, operands.bias, operands.c_in, operands.scale_a, operands.scale_b]
