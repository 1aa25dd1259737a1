"""The check of a result: what passes, what fails, and what it says. Imports torch, on the CPU."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest

from gemm_tuner.core.records import Verdict
from gemm_tuner.gemm import compare as compare_module
from gemm_tuner.gemm.check import REPEATS, check, repeated
from gemm_tuner.gemm.companions import odd_companion, small_companion
from gemm_tuner.gemm.compare import blocks, compare
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.operands import Operands, make_operands, torch_dtype
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.gemm.reference import batched, error_bound, reference, sum_error
from gemm_tuner.languages.scratch import STAND_IN_SMS, Scratch

torch = pytest.importorskip("torch")

DTYPES = ("fp16", "bf16", "fp32")
CONFIG = KernelConfig("gemm_tile", 64, 32, 16, 8, 4, 4, 3)
# Errors of a sum of 64 products of one size, for each unit of the sum.
SLACK = 2.0**-23 * 8 * (6 + 8 / 4)


def problem_of(dtype: str, k: int, *, m: int = 24, n: int = 40, **more: Any) -> GemmProblem:
    return GemmProblem(m, n, k, dtype, dtype, dtype, **more)


def right_result(problem: GemmProblem, init_type: str = "randn") -> tuple[Any, Any, Any]:
    """(C rounded once from float64, reference, largest error before rounding)."""
    expected, slack = reference(problem, make_operands(problem, init_type, 0, "cpu"))
    return expected.to(torch_dtype(problem.dtype_c)), expected, slack


def verdict_on(actual: Any, expected: Any, slack: Any, problem: GemmProblem) -> Verdict:
    return compare(actual, expected, slack, problem, "gemm_tile")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 17, 4096, 65536])
@pytest.mark.parametrize("init_type", ["randn", "hpl", "trig_float", "zeros"])
def test_a_right_result_passes(dtype: str, k: int, init_type: str) -> None:
    problem = problem_of(dtype, k)
    verdict = verdict_on(*right_result(problem, init_type), problem)
    assert verdict.ok and verdict.error_over_bound <= 1.0 and verdict.message == ""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [64, 1000, 16384])
def test_a_sum_in_fp32_passes_in_whatever_order(dtype: str, k: int) -> None:
    """One term after another, the order with the largest error, and in four slices as SPLIT_K has it."""
    problem = problem_of(dtype, k)
    operands = make_operands(problem, "randn", 0, "cpu")
    a, b = (matrix.float() for matrix in operands.logical(problem))
    expected, slack = reference(problem, operands)
    serial = torch.zeros_like(expected, dtype=torch.float32)
    for term in range(k):
        serial += a[:, term : term + 1] * b[term : term + 1, :]
    slices = [a[:, start::4] @ b[start::4, :] for start in range(4)]
    for summed in (serial, sum(slices[1:], slices[0])):
        assert verdict_on(summed.to(torch_dtype(dtype)), expected, slack, problem).ok


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [7, 64, 512, 65536])
def test_one_dropped_term_of_the_sum_fails(dtype: str, k: int) -> None:
    problem = problem_of(dtype, k)
    operands = make_operands(problem, "randn", 0, "cpu")
    _, expected, slack = right_result(problem)
    a, b = (matrix.double() for matrix in operands.logical(problem))
    short = (a[:, : k - 1] @ b[: k - 1, :]).to(torch_dtype(dtype))
    verdict = verdict_on(short, expected, slack, problem)
    assert not verdict.ok and verdict.error_over_bound > 2.0


def test_the_bound_is_that_of_the_docstring() -> None:
    problem = problem_of("bf16", 64)
    summed = 2.0**-23 * 8 * (6 + 8 / 4) * 40
    assert float(sum_error(torch.tensor([40.0]).double(), problem)) == pytest.approx(summed, rel=1e-12)
    bound = error_bound(torch.tensor([-8.0]).double(), torch.tensor([summed]).double(), problem)
    assert float(bound) == pytest.approx(summed + 2.0**-8 * (8 + summed), rel=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_inf_that_the_reference_has_not_fail(dtype: str, value: float) -> None:
    problem = problem_of(dtype, 64)
    actual, expected, slack = right_result(problem)
    actual[23, 39] = value
    verdict = verdict_on(actual, expected, slack, problem)
    assert not verdict.ok and verdict.worst_element == (23, 39)
    assert verdict.error_over_bound == math.inf and verdict.max_abs_error == math.inf
    assert verdict.message.startswith(f"C[23, 39] is {value:g}, the reference ")


@pytest.mark.parametrize(("value", "instead"), [(math.nan, 0.0), (math.inf, 65504.0), (math.inf, -math.inf)])
def test_nan_and_inf_of_the_reference_are_wanted(value: float, instead: float) -> None:
    problem = problem_of("fp16", 64)
    operands = make_operands(problem, "randn", 0, "cpu")
    operands.a[5, 6] = value
    expected, slack = reference(problem, operands)
    actual = expected.to(torch.float16)
    assert verdict_on(actual, expected, slack, problem).ok
    actual[5, 7] = instead if expected[5, 7] > 0 or math.isnan(value) else -instead
    verdict = verdict_on(actual, expected, slack, problem)
    assert not verdict.ok and verdict.worst_element == (5, 7)


def test_a_result_beyond_fp16_is_inf_and_right() -> None:
    problem = problem_of("fp16", 64)
    operands = make_operands(problem, "randn", 0, "cpu")
    operands.a[3, :], operands.b[:, 4] = 200.0, 200.0
    expected, slack = reference(problem, operands)
    assert math.isfinite(expected[3, 4]) and float(expected[3, 4]) > 65504
    assert verdict_on(expected.to(torch.float16), expected, slack, problem).ok


@pytest.mark.parametrize("expected_value", [65519.99, 65520.01])
@pytest.mark.parametrize("actual_value", [65504.0, math.inf])
def test_on_the_edge_of_fp16_both_neighbours_are_right(expected_value: float, actual_value: float) -> None:
    """Sums a rounding error apart may round to the largest fp16 and to Inf."""
    problem = problem_of("fp16", 64, m=1, n=1)
    expected = torch.tensor([[expected_value]], dtype=torch.float64)
    actual = torch.tensor([[actual_value]], dtype=torch.float16)
    assert verdict_on(actual, expected, SLACK * expected.abs(), problem).ok
    assert verdict_on(-actual, -expected, SLACK * expected.abs(), problem).ok
    assert not verdict_on(-actual, expected, SLACK * expected.abs(), problem).ok


def test_inf_well_within_fp16_is_wrong() -> None:
    problem = problem_of("fp16", 64, m=1, n=1)
    expected = torch.tensor([[65000.0]], dtype=torch.float64)
    assert not verdict_on(torch.tensor([[math.inf]], dtype=torch.float16), expected, SLACK * expected.abs(), problem).ok


def test_the_worst_element_is_the_one_farthest_over_its_own_bound() -> None:
    problem = problem_of("fp32", 64)
    actual, expected, slack = right_result(problem)
    bound = error_bound(expected, slack, problem)
    actual[1, 2] += 3 * bound[1, 2]
    actual[20, 30] -= 9 * bound[20, 30]
    verdict = verdict_on(actual, expected, slack, problem)
    assert verdict.worst_element == (20, 30)
    assert verdict.error_over_bound == pytest.approx(9, rel=0.1)
    assert verdict.max_abs_error == pytest.approx(float((actual.double() - expected).abs().max()))
    got, want = float(actual[20, 30]), float(expected[20, 30])
    assert verdict.message.startswith(f"C[20, 30] is {got:.6g}, the reference {want:.6g}: ")
    assert verdict.message.endswith(" times the bound")


@pytest.mark.parametrize("layout_a", list(Layout))
@pytest.mark.parametrize("layout_b", list(Layout))
def test_the_reference_is_the_product_in_float64_whatever_the_layouts(layout_a: Layout, layout_b: Layout) -> None:
    problem = problem_of("bf16", 9, m=3, n=4, layout_a=layout_a, layout_b=layout_b, bias=True)
    operands = make_operands(problem, "randn", 0, "cpu")
    expected, slack = reference(problem, operands)
    a = operands.a.double() if layout_a == Layout.ROW else operands.a.double().t()
    b = operands.b.double() if layout_b == Layout.ROW else operands.b.double().t()
    for row in range(3):
        for column in range(4):
            terms, bias = [float(a[row, k] * b[k, column]) for k in range(9)], float(operands.bias[column])
            assert float(expected[row, column]) == pytest.approx(math.fsum([*terms, bias]), abs=1e-12)
            summed = 2.0**-23 * 3 * (6 + 3 / 4) * math.hypot(*terms)
            added = 8 * 2.0**-24 * (abs(math.fsum(terms)) + abs(bias))
            assert float(slack[row, column]) == pytest.approx(summed + added, rel=1e-9)


def test_the_companions_are_ragged_and_even() -> None:
    config = CONFIG.to_dict()
    problem = problem_of("bf16", 5000, m=5000, n=20, batch=7)
    odd, small = odd_companion(problem, config, False), small_companion(problem, config)
    assert odd.m % 64 and odd.n % 32 and odd.k % (16 * 4) and odd.m > 64 and odd.n > 32
    assert odd.m % 2 and odd.n % 2 and odd.k % 2
    assert (small.m, small.n, small.k) == (128, 20, 256)
    assert odd.signature == small.signature == problem.signature
    assert odd.batch == small.batch == 2


@pytest.mark.parametrize("layout_a", list(Layout))
def test_companions_of_descriptors_have_rows_of_whole_16_bytes(layout_a: Layout) -> None:
    problem = problem_of("fp8_e4m3", 5000, m=5000, n=5000, layout_a=layout_a)
    odd = odd_companion(problem, CONFIG.to_dict(), True)
    assert odd.n % 16 == odd.k % 16 == 0 and (odd.m % 16 == 0) == (layout_a == Layout.COL)
    assert odd.m % 64 and odd.n % 32 and odd.k % (16 * 4) and odd.k > 2 * 16 * 4


@pytest.mark.parametrize(("m", "n"), [(1, 4096), (16, 100), (4096, 1), (8, 8), (40, 16)])
def test_companions_of_a_gemv_keep_its_small_side(m: int, n: int) -> None:
    config = KernelConfig("gemv", 16, 4, 64, 1, 1, 4, 1).to_dict()
    problem = problem_of("bf16", 4096, m=m, n=n)
    for companion in (odd_companion(problem, config, False), small_companion(problem, config)):
        assert min(companion.m, companion.n) == min(m, n)
        assert (companion.m <= companion.n) == (m <= n)


class Script:
    """Stands for a generated script: the right product, but for one element."""

    CONFIGS: ClassVar = {"one": {}}
    spoilt: ClassVar[tuple[int, ...]] = (37, 5)

    @staticmethod
    def scratch(config: object, size: object, num_sms: int) -> tuple[int, int]:
        assert num_sms == STAND_IN_SMS
        return 3, 2

    @classmethod
    def calls(cls, config: object, size: object, operands: Operands, scratch: Scratch, num_sms: int) -> list[Any]:
        assert scratch.partial_sums.isnan().all() and scratch.locks.tolist() == [0, 0]
        assert size == (50, 40, 64, max(1, len(operands.a) if operands.a.dim() == 3 else 1))
        operands.c.copy_(operands.a.double() @ operands.b.double())
        operands.c[cls.spoilt] += 50.0
        return []


def test_rows_of_a_large_result_are_compared_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same verdict as in one piece, the worst element in whatever block it is."""
    problem = problem_of("fp32", 64, m=50)
    whole = check(Script, problem, "one", 0, "cpu")  # type: ignore[arg-type]
    monkeypatch.setattr(compare_module, "COMPARE_ELEMENTS", 7 * 64)
    parts = check(Script, problem, "one", 0, "cpu")  # type: ignore[arg-type]
    assert whole == parts and not parts.ok and parts.worst_element == (37, 5)
    assert parts.message.startswith("C[37, 5] is ")


@pytest.mark.parametrize("elements", [2**26, 2 * 50 * 64, 7 * 64])
def test_rows_of_a_batch_are_counted_through(monkeypatch: pytest.MonkeyPatch, elements: int) -> None:
    """All matrices at once, two at a time, and some rows of one."""
    problem = problem_of("bf16", 64, m=50, batch=3)
    monkeypatch.setattr(compare_module, "COMPARE_ELEMENTS", elements)
    monkeypatch.setattr(Script, "spoilt", (2, 37, 5))
    verdict = check(Script, problem, "one", 0, "cpu")  # type: ignore[arg-type]
    assert not verdict.ok and verdict.worst_element == (2 * 50 + 37, 5)


@pytest.mark.parametrize("elements", [2**26, 2 * 50 * 64, 7 * 64])
def test_blocks_cover_every_row_once(monkeypatch: pytest.MonkeyPatch, elements: int) -> None:
    monkeypatch.setattr(compare_module, "COMPARE_ELEMENTS", elements)
    seen = torch.zeros(3, 50)
    for matrices, rows in blocks(problem_of("bf16", 64, m=50, batch=3)):
        seen[matrices, rows] += 1
        assert seen[matrices, rows].numel() * 64 <= max(elements, 64)
    assert (seen == 1).all()


class Racing:
    """Stands for a script whose kernel gives another result in its third call, in one element."""

    calls = 0

    def __init__(self, c: Any, place: tuple[int, ...], bits: float) -> None:
        self.c, self.place, self.bits = c, place, bits

    def __getitem__(self, grid: object) -> Any:
        return self.launch

    def launch(self) -> None:
        self.calls += 1
        self.c.fill_(1.0)
        self.c[self.place] = self.bits if self.calls == 3 else 0.0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("place", "shape", "at"), [((7, 5), (24, 40), (7, 5)), ((2, 7, 5), (3, 24, 40), (55, 5))])
@pytest.mark.parametrize("differs", [2.0, -0.0, math.nan])
def test_a_call_that_gives_other_bits_is_not_stable(
    dtype: str, place: tuple[int, ...], shape: tuple[int, ...], at: tuple[int, int], differs: float
) -> None:
    problem = problem_of(dtype, 64, batch=3 if len(shape) == 3 else 1)
    c = torch.zeros(shape, dtype=torch_dtype(dtype))
    kernel = Racing(c, place, differs)
    launches = [("kernel", kernel, (1,), (), {})]
    kernel.launch()
    verdict = repeated(launches, c, batched(c.clone()), problem, Verdict(problem, "one", True, 0.0, 0.5))
    assert (verdict.ok, verdict.stable, verdict.worst_element) == (False, False, at)
    assert verdict.message == f"C[{at[0]}, {at[1]}] is 0 and in call 3 {differs:.9g}"


def test_a_call_that_gives_the_same_bits_keeps_its_verdict() -> None:
    c = torch.zeros(24, 40)
    kernel = Racing(c, (7, 5), 0.0)
    kernel.launch()
    verdict = Verdict(problem_of("fp32", 64), "one", True, 0.0, 0.5)
    assert (
        repeated([("kernel", kernel, (1,), (), {})], c, batched(c.clone()), problem_of("fp32", 64), verdict) is verdict
    )
    assert kernel.calls == REPEATS
