"""Compares both GEMMs of a call with float64 products of the quantized operands, and exact ones. Needs torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.records import Verdict
from gemm_tuner.core.workload import launch_all
from gemm_tuner.gemm.reference import (
    ACCUMULATOR_ROUNDOFF,
    EPILOGUE_ROUNDOFF,
    FP8_ACCUMULATOR_ROUNDOFF,
    ROUNDING_LAMBDA,
    TRUNCATION_FACTOR,
)
from gemm_tuner.languages.bits import first_difference
from gemm_tuner.moe import activation, launch, sorted_rows
from gemm_tuner.moe.cute import CUTE, is_fused
from gemm_tuner.moe.exact_operands import difference, made_exact
from gemm_tuner.moe.launch import DOWN, PARTS, UP, extent
from gemm_tuner.moe.launchers import of_config
from gemm_tuner.moe.operands import Gemm, MoeOperands, make
from gemm_tuner.moe.problem import MoeProblem

if TYPE_CHECKING:
    from gemm_tuner.moe.workload import MoeWorkload

REPEATS = 3


def check(workload: MoeWorkload, script: ModuleType, problem: MoeProblem, name: str, seed: int, device: str) -> Verdict:
    """Checks one configuration: with random operands, whose C must be within the error bound of the reference, and with
    exact ones, whose C must be equal; the errors of the verdict are those of the random ones. Results are NaN before
    the call. On a GPU repeated calls must give the same bits."""
    operands = make(problem, seed, device)[0]
    verdict = check_random(Call.of(workload, script, name, operands, device), name, device)
    if not verdict.ok:
        return verdict
    return check_exact(Call.of(workload, script, name, made_exact(operands, seed), device), verdict)


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

    def writes_zeros(self, part: str) -> bool:
        """To the rows of other ranks' experts, which it leaves alone otherwise."""
        return of_config(self.operands.problem, self.config) is not CUTE and not self._is_sorted(part)

    def narrowed(self, part: str, found: Any) -> Any:
        """In the type of C, which is wider in the interpreter."""
        return found.to(self.operands.gemms[part].c.dtype)


def check_random(call: Call, name: str, device: str) -> Verdict:
    problem = call.operands.problem
    worst = Verdict(problem, name, True, 0.0, 0.0)
    first: dict[str, Any] = {}
    for turn in range(1 if device == "cpu" else REPEATS):
        for part, found in call.run().items():
            if turn == 0:
                first[part] = found.clone()
                activated = part == UP and is_fused(call.config)
                of = {"wide": call.given.wide, "writes_zeros": call.writes_zeros(part), "activated": activated}
                verdict = compared(problem, call.operands, part, name, call.narrowed(part, found), **of)
                worst = verdict if verdict.error_over_bound > worst.error_over_bound or not verdict.ok else worst
            elif first_difference(first[part], found) is not None:
                text = f"call {turn + 1} of the {part} GEMM gave other bits"
                return Verdict(problem, name, False, 0.0, 0.0, (0, 0), text, stable=False)
        if not worst.ok:
            break
    return worst


def check_exact(call: Call, verdict: Verdict) -> Verdict:
    """``verdict`` if C of each GEMM is exact, else a failed one. An activation's results are not exact."""
    operands = call.operands
    for part, found in call.run().items():
        if part == UP and is_fused(call.config):
            continue
        narrow = call.narrowed(part, found)
        for rows, expected, _ in references(operands, part, wide=call.given.wide):
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
    writes_zeros: bool = True, activated: bool = False,
) -> Verdict:  # fmt: skip
    """The verdict on C of one GEMM: errors are relative to their bounds; a row that was not written is wrong. wide: the
    kernel multiplied in fp32. writes_zeros: to the rows of other ranks' experts, which it leaves alone otherwise.
    activated: C has the activation's results."""
    import torch

    worst, at, most = 0.0, (0, 0), 0.0
    others = torch.nonzero(experts_of_rows(operands) >= problem.E).flatten()
    if writes_zeros and len(others) and (wrong := torch.nonzero(found[others] != 0)).numel():
        row, column = int(others[wrong[0, 0]]), int(wrong[0, 1])
        text = f"the {part} GEMM is wrong in row {row}, column {column}: no zero for another rank's expert"
        return Verdict(problem, name, False, math.inf, math.inf, (row, column), text)
    for rows, expected, bound in references(operands, part, wide=wide, activated=activated):
        error = (found[rows].double() - expected).abs()
        score = (error / bound).nan_to_num(nan=math.inf, posinf=math.inf)
        place = int(score.argmax())
        row, column = divmod(place, expected.shape[1])
        most = max(most, float(error.nan_to_num(nan=math.inf).max()))
        if float(score[row, column]) > worst:
            worst, at = float(score[row, column]), (int(rows[row]), column)
    text = "" if worst <= 1 else f"the {part} GEMM is wrong in row {at[0]}, column {at[1]}"
    return Verdict(problem, name, worst <= 1, most, worst, at, text)


def experts_of_rows(operands: MoeOperands) -> Any:
    import torch

    return torch.from_numpy(operands.ids.reshape(-1).astype("int64")).to(operands.router.device)


def references(
    operands: MoeOperands, part: str, *, wide: bool, activated: bool = False
) -> Iterator[tuple[Any, Any, Any]]:
    """(rows, values in float64, error bound) of each expert of this rank that has rows."""
    import torch

    problem, flat = operands.problem, experts_of_rows(operands)
    a = operands.gemms[part].a.float()  # exact; not all devices gather 8-bit floats
    for expert in torch.unique(flat[flat < problem.E]).tolist():
        rows = torch.nonzero(flat == expert).flatten()
        yield rows, *reference(problem, operands, part, a, rows, expert, wide=wide, activated=activated)


def reference(
    problem: MoeProblem, operands: MoeOperands, part: str, wide_a: Any, rows: Any, expert: int, *, wide: bool,
    activated: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """(values in float64, error bound) of the rows of C that one expert makes. wide_a: A in float32.

    The bound is that of a GEMM (``gemm.reference``): rounding and truncation of a sum of K products, roundings of
    scales, bias and router weight in fp32, and one rounding to the type of C, which follows the activation if C has
    the results of that.
    """
    one, of = operands.gemms[part], extent(problem, part)
    a = wide_a[rows // of.divisor].double()
    w = dequantised(problem, one, expert, wide=wide) if problem.grouped else one.w[expert].double()
    if one.a_scale is not None:
        a = a * _stretched(one.a_scale if problem.scaling == "tensor" else one.a_scale[rows // of.divisor], a.shape[1],
                           problem.block_shape[1], 1)  # fmt: skip
    if problem.scaling == "block":
        scales = _stretched(one.w_scale[expert], w.shape[1], problem.block_shape[1], 1)
        w = w * _stretched(scales, w.shape[0], problem.block_shape[0], 0)
    elif one.w_scale is not None and not problem.grouped:
        w = w * (one.w_scale[expert].double().reshape(-1, 1))
    expected = a @ w.t()
    spread = (a.square() @ w.square().t()).sqrt()
    unit = FP8_ACCUMULATOR_ROUNDOFF if problem.dtype == "fp8_w8a8" else ACCUMULATOR_ROUNDOFF
    root = math.sqrt(of.depth)
    slack = unit * root * (ROUNDING_LAMBDA + TRUNCATION_FACTOR * root) * spread
    magnitude = expected.abs()
    if one.bias is not None:
        expected = expected + one.bias[expert].double()
        magnitude = magnitude + one.bias[expert].double().abs()
    slack = slack + EPILOGUE_ROUNDOFF * magnitude
    if activated:
        expected, slack = activation.of_sums(problem, expected, slack)
    if part == DOWN:
        weight = operands.router[rows].double()[:, None]
        expected, slack = expected * weight, slack * weight
    rounding = DTYPES[problem.out].unit_roundoff
    return expected, slack + rounding * (expected.abs() + slack) + (2.0**-24 if problem.out == "fp16" else 1e-30)


def dequantised(problem: MoeProblem, gemm: Gemm, expert: int, *, wide: bool) -> Any:
    """w of an expert in float64, of integers in groups: the kernel rounds it to 16 bits before it multiplies."""
    import torch

    bits, group = gemm.w[expert], problem.block_shape[1]
    zero = 8.0 if problem.packed > 1 else 128.0
    if problem.packed > 1:
        bits = torch.stack((bits & 15, bits >> 4), dim=-1).flatten(1)  # an even column is in the low half
    if gemm.zero is not None:
        packed = gemm.zero[expert]
        unpacked = torch.stack((packed & 15, packed >> 4), dim=1).flatten(0, 1) if problem.packed > 1 else packed
        zero = unpacked.float().repeat_interleave(group, dim=1)
    values = (bits.float() - zero) * gemm.w_scale[expert].float().repeat_interleave(group, dim=1)
    return values.double() if wide else values.to(gemm.w_scale.dtype).double()


def _stretched(scales: Any, length: int, group: int, axis: int) -> Any:
    """Scales in float64, one per element of an axis; a single scale stays single."""
    wide = scales.double()
    if wide.dim() == 1 or wide.shape[axis] == 1:
        return wide
    return wide.repeat_interleave(group, dim=axis).narrow(axis, 0, length)
