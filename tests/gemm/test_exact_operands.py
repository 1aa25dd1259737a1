"""Exact operands: every partial sum is exact, every term is seen, and the check finds any one that is left out."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from gemm_tuner.gemm import exact_operands
from gemm_tuner.gemm.cases import Cases
from gemm_tuner.gemm.check import Caller, check, check_random, exact_difference
from gemm_tuner.gemm.combinations import first_fault
from gemm_tuner.gemm.exact_operands import (
    MOST_TERMS_FP8,
    before_activation,
    count_sets,
    cover,
    exact_fault,
    exact_range,
    make_exact_operands,
    most_terms,
    with_exact_factors,
)
from gemm_tuner.gemm.operands import Operands, torch_dtype
from gemm_tuner.gemm.problem import ACTIVATIONS, SCALINGS, GemmProblem, Layout
from gemm_tuner.gemm.reference import ALL, activated, batched

torch = pytest.importorskip("torch")

ROW, COL = Layout.ROW, Layout.COL
# dtype_a, dtype_b, dtype_c, precision
TYPES = {
    "bf16": ("bf16", "bf16", "bf16", "ieee"),
    "bf16 to fp32": ("bf16", "bf16", "fp32", "ieee"),
    "fp16": ("fp16", "fp16", "fp16", "ieee"),
    "fp32": ("fp32", "fp32", "fp32", "ieee"),
    "tf32": ("fp32", "fp32", "fp16", "tf32"),
    "e4m3": ("fp8_e4m3", "fp8_e4m3", "bf16", "ieee"),
    "e5m2 by e4m3": ("fp8_e5m2", "fp8_e4m3", "fp16", "ieee"),
    "e4m3 fnuz": ("fp8_e4m3_fnuz", "fp8_e4m3_fnuz", "fp32", "ieee"),
    "int8": ("int8", "int8", "int32", "ieee"),
    "int8 to bf16": ("int8", "int8", "bf16", "ieee"),
}
# Without those that hold what another one of 8 bits or of the same C does.
SOME_TYPES = pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.grid if kind in ("e4m3 fnuz", "bf16 to fp32") else ()) for kind in TYPES],
)
EPILOGUES: tuple[dict[str, Any], ...] = (
    {},
    {"bias": True},
    {"alpha": 0.75, "beta": -1.5, "bias": True},
    {"batch": 3, "beta": 0.3},
)
SIZES = (
    *itertools.product((1, 6), (1, 5), (1, 7, 128, 300, 1000)),
    *((1, 1, 32768), (1, 9, 32768), (1, 1, 32768), (5, 1, 32768), (5, 3, 20000)),
)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """More wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def problems(kind: str, sizes: Any = SIZES) -> Iterator[GemmProblem]:
    """The sizes, with scalings, activations, epilogues and layouts that the types take."""
    dtype_a, dtype_b, dtype_c, precision = TYPES[kind]
    plain = GemmProblem(1, 1, 1, dtype_a, dtype_b, dtype_c, precision=precision)
    features = itertools.product(SCALINGS, ACTIVATIONS, EPILOGUES, (ROW, COL), (ROW, COL))
    legal = [
        problem
        for scaling, activation, more, layout_a, layout_b in features
        if first_fault(
            problem := replace(
                plain, scaling=scaling, activation=activation, layout_a=layout_a, layout_b=layout_b, **more
            )
        )
        is None
    ]
    random.Random(1).shuffle(legal)
    for (m, n, k), problem in zip(sizes, itertools.cycle(legal), strict=False):
        yield replace(problem, m=m, n=n, k=k)


def sets_of(problem: GemmProblem) -> Iterator[tuple[GemmProblem, Operands]]:
    exact = with_exact_factors(problem)
    assert exact.signature == problem.signature
    for number in range(count_sets(exact)):
        yield exact, make_exact_operands(exact, number, 3, "cpu")


def c_of(problem: GemmProblem, operands: Operands, without: int | None = None) -> Any:
    """(matrices, m, n) of a right kernel, by float64; ``without`` leaves a term out."""
    if without is not None:
        a = operands.a.clone()
        (a[..., without] if problem.layout_a == ROW else a[..., without, :]).zero_()
        operands = replace(operands, a=a)
    a, b = (batched(matrix).double() for matrix in operands.logical(problem))
    x = a @ b
    if problem.scaling == "block":  # as a kernel: the products of each block, then their scale
        x = torch.zeros_like(x)
        for block, start in enumerate(range(0, problem.k, 128)):
            scale_b = operands.scale_b[:, block].double().repeat_interleave(128)[: problem.n]
            part = a[:, :, start : start + 128] @ b[:, start : start + 128]
            x += part * operands.scale_a[:, block, None].double() * scale_b
    elif problem.scaling != "none":
        rows = operands.scale_a if problem.scaling == "tensor" else operands.scale_a[:, None]
        x = x * rows.double() * operands.scale_b.double()
    x = x * operands.alpha
    if operands.c_in is not None:
        x += operands.beta * batched(operands.c_in).double()
    if operands.bias is not None:
        x += operands.bias.double()
    return activated(problem.activation, x).to(torch_dtype(problem.dtype_c))


@pytest.mark.parametrize("kind", TYPES)
def test_every_sum_is_exact_and_every_term_is_in_some_row_and_column(kind: str) -> None:
    for problem in problems(kind):
        seen = torch.zeros(problem.k, dtype=torch.bool)
        for exact, operands in sets_of(problem):
            a, b = (batched(matrix).float() for matrix in operands.logical(exact))
            seen |= (a != 0).any(1).all(0) & (b != 0).any(2).all(0)
            assert set(a.unique().tolist()) <= {-1.0, 0.0, 1.0}
            counted = a.abs() @ b.abs()
            assert counted.max() <= most_terms(exact), problem.key
            _, _, x = before_activation(exact, operands, ALL, ALL)
            assert torch.equal(x.to(torch_dtype(problem.dtype_c)).float(), x), problem.key
            assert exact_difference(c_of(exact, operands), exact, operands) is None, problem.key
        assert seen.all(), problem.key


@SOME_TYPES
def test_any_term_that_is_left_out_changes_c(kind: str) -> None:
    """Each of up to 32768, after rounding to C's type and the activation."""
    for problem in problems(kind):
        found = torch.zeros(problem.k, dtype=torch.bool)
        for exact, operands in sets_of(problem):
            a, b, x = before_activation(exact, operands, ALL, ALL)
            low, high = exact_range(x, exact)
            for start in range(0, problem.k, 4096):
                terms = slice(start, start + 4096)
                outer = a[:, :, terms].permute(2, 0, 1)[..., None] * b[:, terms].permute(1, 0, 2)[:, :, None]
                short = x - exact.alpha * outer.reshape(-1, *x.shape)
                actual = activated(exact.activation, short.double()).to(torch_dtype(exact.dtype_c))
                found[terms] |= ((actual < low) | (actual > high)).flatten(1).any(1)
        assert found.all(), f"{problem.key}: {(~found).nonzero().flatten()[:5].tolist()}"


@SOME_TYPES
@pytest.mark.parametrize("size", [(24, 40, 1000), (1, 16, 32768)])
def test_the_comparison_finds_and_names_a_term_that_is_left_out(kind: str, size: tuple[int, int, int]) -> None:
    for problem in problems(kind, [size] * 2):
        every = list(sets_of(problem))
        for k in (0, 64, 511, size[2] - 1):
            found = [exact_difference(c_of(*one, without=k), *one) for one in every]
            assert any(found), f"{problem.key} without {k}"
            if problem.activation == "none" and problem.m > 1:
                assert found[0] is not None and f"product of k = {k} were missing" in found[0][1]


def test_a_term_that_is_counted_twice_is_named_too() -> None:
    exact, operands = next(sets_of(GemmProblem(24, 40, 1000)))
    right, short = c_of(exact, operands).double(), c_of(exact, operands, without=9).double()
    wrong = exact_fault((2 * right - short).to(torch.bfloat16).reshape(-1, 40), exact, operands)
    assert wrong is not None and wrong[1].endswith("k = 9 were counted twice")


def in_14_bits(terms: list[int]) -> int:
    """Their sum one after another, of which 14 bits are kept after each."""
    total = 0
    for term in terms:
        total += term
        lost = max(0, abs(total).bit_length() - 14)
        total = (abs(total) >> lost << lost) * (1 if total >= 0 else -1)
    return total


@pytest.mark.parametrize("most", [MOST_TERMS_FP8, 2**17])
def test_14_bits_hold_every_partial_sum_of_fp8_in_any_order(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """And would not, were there more terms in one sum."""
    monkeypatch.setattr(exact_operands, "MOST_TERMS_FP8", most)
    problem = GemmProblem(2, 3, 200_000, "fp8_e4m3", "fp8_e4m3", "bf16")
    _, operands = next(sets_of(problem))
    right = True
    for row, column in itertools.product(range(2), range(3)):
        terms = (operands.a[row].float() * operands.b[:, column].float()).int()
        each: list[int] = terms[terms != 0].tolist()
        for order in (sorted(each), sorted(each, reverse=True), random.Random(1).sample(each, len(each))):
            right = right and in_14_bits(order) == sum(each)
    assert right == (most == MOST_TERMS_FP8)


@pytest.mark.parametrize("kind", TYPES)
def test_one_set_is_enough_but_for_tiny_results(kind: str) -> None:
    for problem in problems(kind, [(1, 4096, 32768), (2, 2, 32768), (4096, 1, 32768), (300, 500, 32768)]):
        assert cover(problem).sets == 1
        assert count_sets(problem) == (1 if problem.activation == "none" else 2)
    fp8 = GemmProblem(1, 1, 32768, "fp8_e4m3", "fp8_e4m3", "bf16")
    assert count_sets(fp8) == 4


def test_c_varies_and_a_scale_of_the_next_block_shows() -> None:
    problem = GemmProblem(16, 300, 4096, "fp8_e4m3", "fp8_e4m3", "bf16", layout_b=COL, scaling="block")
    exact, operands = next(sets_of(problem))
    c = c_of(exact, operands).float()
    assert len(c.unique()) > 20
    for scales in ("scale_a", "scale_b"):
        for block in range(0, 31, 6):
            moved = getattr(operands, scales).clone()
            moved[:, block] = moved[:, block + 1]
            assert exact_difference(c_of(exact, replace(operands, **{scales: moved})), exact, operands) is not None


class Dropping:
    """Stands for a generated script whose kernel leaves out some terms of K at some sizes."""

    CONFIGS: ClassVar = {"one": {}}
    dropped: ClassVar[slice | int] = 0
    at_k: ClassVar[int] = 0

    @staticmethod
    def scratch(config: object, size: object, num_sms: int) -> tuple[int, int]:
        return 0, 0

    @classmethod
    def calls(cls, config: object, size: tuple[int, ...], operands: Operands, scratch: object, num_sms: int) -> Any:
        a = operands.a.float()
        if size[2] == cls.at_k:
            a[..., cls.dropped] = 0.0
        operands.c.copy_(a @ operands.b.float())
        return []


# Those that the random operands do not show, whose bound in fp8 is wide at a large K.
BLIND = {
    "last 128": (GemmProblem(16, 128, 16384, "fp8_e4m3", "fp8_e4m3", "bf16"), slice(-128, None)),
    "last": (GemmProblem(64, 64, 7168, "fp8_e4m3", "fp8_e4m3", "bf16"), 7167),
    "first": (GemmProblem(1, 64, 32768, "fp8_e4m3", "fp8_e4m3", "fp16"), 0),
}


@pytest.mark.parametrize("what", BLIND)
def test_the_check_finds_what_random_operands_do_not_show(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    problem, dropped = BLIND[what]
    monkeypatch.setattr(Dropping, "dropped", dropped)
    script: Any = Dropping
    assert check(script, problem, "one", 0, "cpu").ok
    monkeypatch.setattr(Dropping, "at_k", problem.k)
    blind = check_random(Caller.of(script, problem, "one", "cpu"), Cases(problem, 0, "cpu", kept=False).random(), "one")
    assert blind.ok
    verdict = check(script, problem, "one", 0, "cpu")
    row, column = verdict.worst_element
    assert not verdict.ok and verdict.stable and verdict.error_over_bound == blind.error_over_bound
    assert verdict.message.startswith(f"C[{row}, {column}] is ") and "set 1 of 1" in verdict.message
    assert isinstance(dropped, slice) or f"k = {dropped} were missing" in verdict.message
