"""Compares outputs of a user's kernel with what they should be. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemm_tuner.kernels.kernel_spec import Check

# Of a floating-point element, where the spec gives none: relative and absolute, by bytes of its type. The relative RMS
# of an output has the same bound: it finds what an absolute tolerance hides where all elements are small.
TOLERANCES = {4: 1e-4, 2: 1e-2, 1: 1e-1}


@dataclass(frozen=True, slots=True)
class Comparison:
    """over: the largest error over its bound; at most 1 when right. at: (row, column) of that element. message: empty
    when right."""

    over: float = 0.0
    max_abs_error: float = 0.0
    at: tuple[int, int] = (0, 0)
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.over <= 1.0


def compared(check: Check, outputs: Mapping[str, Any], expected: Mapping[str, Any]) -> Comparison:
    """The worst of all outputs."""
    found = [_one(check, label, outputs[label], wanted) for label, wanted in expected.items()]
    worst = max(found, key=lambda one: one.over, default=Comparison())
    largest = max((one.max_abs_error for one in found), default=0.0)
    return Comparison(worst.over, largest, worst.at, worst.message)


def _one(check: Check, label: str, actual: Any, wanted: Any) -> Comparison:
    """An element's error is measured in rtol * |wanted| + atol; a share of ``check.max_mismatched_ratio`` of them may
    be larger, as long as it is finite where the wanted one is."""
    if not actual.numel():
        return Comparison()
    default = TOLERANCES[min(4, actual.element_size())] if actual.is_floating_point() else 0.0
    rtol = default if check.rtol is None else check.rtol
    atol = default if check.atol is None else check.atol
    wanted, found = wanted.double(), actual.double()
    same = (found.isnan() & wanted.isnan()) | (found == wanted)
    error = (found - wanted).abs().masked_fill(same, 0.0)
    score = (error / (rtol * wanted.abs() + atol).clamp_min(1e-300)).masked_fill(same, 0.0)
    score = score.nan_to_num(nan=float("inf"), posinf=float("inf"))
    over = score > 1.0
    excused = int(over.sum()) <= check.max_mismatched_ratio * actual.numel()
    counted = ~over | ~score.isfinite() if excused else score >= 0
    score = score.masked_fill(~counted, 0.0)
    at = int(score.argmax())
    worst, columns = float(score.flatten()[at]), max(1, actual.shape[-1] if actual.dim() else 1)
    largest = float(error.nan_to_num(nan=float("inf")).max())
    if worst > 1.0:
        text = f"{label}[{at}] is {float(found.flatten()[at]):.6g}, not {float(wanted.flatten()[at]):.6g}"
        share = int(over.sum()) / actual.numel()
        text += f", and {share:.2%} of all differ" if check.max_mismatched_ratio else ""
        return Comparison(worst, largest, divmod(at, columns), text)
    limit = max(default, rtol) if check.rms is None else check.rms
    part = counted & wanted.isfinite()
    rms, size = float(error[part].square().mean().sqrt()), float(wanted[part].square().mean().sqrt())
    if limit and size > 0 and rms > limit * size:
        text = f"the error of {label} has a relative RMS of {rms / size:.3g}, over {limit:g}"
        return Comparison(rms / size / limit, largest, divmod(at, columns), text)
    return Comparison(worst, largest, divmod(at, columns))
