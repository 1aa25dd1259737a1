"""Judges the outputs of a call: by a reference, by the user's own check, or by what other configurations gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Verified
from gemm_tuner.surface.records import Call, Check

REASON_CHARS = 300


@dataclass(frozen=True, slots=True)
class Finding:
    """reason: why the outputs are wrong; "" when they are not. mismatched_ratio: share of elements out of tolerance."""

    reason: str = ""
    verified: Verified = Verified.FALSE
    max_abs_error: float | None = None
    mismatched_ratio: float | None = None


def flat(outputs: Any) -> list[Any]:
    """The tensors, arrays and numbers of a call's outputs, in order; what is none of these is no output."""
    if isinstance(outputs, Mapping):
        return [one for value in outputs.values() for one in flat(value)]
    if isinstance(outputs, (tuple, list)):
        return [one for value in outputs for one in flat(value)]
    return [outputs] if hasattr(outputs, "dtype") or isinstance(outputs, Number) else []


def fill_with_nan(outputs: Sequence[Any]) -> None:
    """Writes NaN to tensors and arrays of floats, so that an element that is never written shows."""
    for one in outputs:
        if is_tensor(one):
            if one.is_floating_point():
                one.fill_(float("nan"))
        elif getattr(getattr(one, "dtype", None), "kind", "") == "f":
            one.fill(float("nan"))


def is_tensor(value: Any) -> bool:
    """Whether it is one of torch; imports nothing."""
    return type(value).__module__.partition(".")[0] == "torch" or hasattr(value, "is_floating_point")


def copied(value: Any) -> Any:
    """An output that later calls do not change."""
    return value.clone() if is_tensor(value) else value.copy() if hasattr(value, "copy") else value


def outputs_of(call: Call, returned: Any) -> list[Any]:
    """What is checked of a call that returned this."""
    return flat(call.outputs if returned is None else returned)


def other_bits(call: Call, returned: Any, repeats: int, again: Callable[[Call], Any]) -> str:
    """Which of so many further calls gave other bits than the first, which returned this; "" for none."""
    first = [copied(one) for one in outputs_of(call, returned)] if repeats else []
    for number in range(repeats):
        outputs = outputs_of(call, again(call))
        if len(first) != len(outputs) or not all(map(_same_bits, first, outputs)):
            return f"call {number + 2} gave other bits than the first"
    return ""


def _same_bits(one: Any, other: Any) -> bool:
    if is_tensor(one) and is_tensor(other):
        from gemm_tuner.languages.bits import first_difference

        return tuple(one.shape) == tuple(other.shape) and first_difference(one, other) is None
    if hasattr(one, "tobytes") and hasattr(other, "tobytes"):
        return bool(one.shape == other.shape and one.tobytes() == other.tobytes())
    return bool(one == other or (one != one and other != other))


class Judge:
    """Judges the outputs of one configuration after another; ``check`` is for those that bring none of their own."""

    def __init__(self, check: Check | None) -> None:
        self._check = check or Check()
        self._expected: list[Any] | None = None
        self._groups: list[tuple[list[Any], list[str]]] = []

    @property
    def judges_later(self) -> bool:
        """Whether configurations are compared with each other."""
        return bool(self._groups)

    def check_of(self, call: Call) -> Check:
        return call.check or self._check

    def judge(self, name: str, call: Call, returned: Any) -> Finding:
        """returned: what the call gave. Raises UserError for a reference that cannot be computed."""
        outputs, check = outputs_of(call, returned), self.check_of(call)
        if check.skip:
            return Finding()
        if check.manual is not None:
            return _by_hand(check, outputs[0] if len(outputs) == 1 else outputs)
        if not outputs:
            return Finding("" if check.reference is None else "returns no output to be compared with the reference")
        if check.reference is None:
            self._join_group(check, name, outputs)
            return Finding()
        return compared(check, outputs, self._reference(check))

    def _reference(self, check: Check) -> list[Any]:
        """The expected outputs: of the check of all configurations computed once."""
        if check is not self._check:
            return _computed(check)
        if self._expected is None:
            self._expected = [copied(one) for one in _computed(check)]
        return self._expected

    def _join_group(self, check: Check, name: str, outputs: list[Any]) -> None:
        for representative, names in self._groups:
            if not compared(check, outputs, representative).reason:
                names.append(name)
                return
        self._groups.append(([copied(one) for one in outputs], [name]))

    def agreed(self) -> tuple[frozenset[str], dict[str, str]]:
        """Of configurations without a reference: the names of the largest group whose outputs agree, and by name why
        the others are wrong. None is in either where no two agree, or two groups are equally large."""
        groups = sorted((names for _, names in self._groups), key=len, reverse=True)
        if not groups or len(groups[0]) < 2 or (len(groups) > 1 and len(groups[1]) == len(groups[0])):
            return frozenset(), {}
        most = f"gives other outputs than {len(groups[0])} configurations that agree"
        return frozenset(groups[0]), {name: most for names in groups[1:] for name in names}


def _computed(check: Check) -> list[Any]:
    value = check.reference
    if callable(value):
        try:
            value = value()
        except Exception as error:
            raise UserError(f"raised {one_line(error)}", where="the reference") from error
    found = flat(value)
    if not found:
        raise UserError("returned nothing", where="the reference", accepted="the expected outputs")
    return found


def _by_hand(check: Check, outputs: Any) -> Finding:
    assert check.manual is not None
    try:
        is_right = check.manual(outputs)
    except Exception as error:
        return Finding(f"the check raised {one_line(error)}")
    return Finding("the check returned False") if is_right is False else Finding(verified=Verified.TRUE)


def compared(check: Check, outputs: Sequence[Any], expected: Sequence[Any]) -> Finding:
    """Compares in double precision; types need not be equal, shapes must. ``check.max_mismatched_ratio`` excuses no
    element that is NaN or infinite in one of both only: such a one was most likely never written."""
    if len(outputs) != len(expected):
        return Finding(f"gives {len(outputs)} outputs, the reference {len(expected)}")
    largest, mismatched, elements, first, is_excused = 0.0, 0, 0, "", True
    for number, (one, wanted) in enumerate(zip(outputs, expected, strict=True)):
        actual, wished = _doubles(one, wanted)
        if tuple(actual.shape) != tuple(wished.shape):
            return Finding(f"output {number} is {tuple(actual.shape)}, the reference {tuple(wished.shape)}")
        error = _error(actual, wished)
        same = (actual == wished) | ((actual != actual) & (wished != wished))
        is_finite = error < float("inf")
        outside = ~(same | (is_finite & (error <= check.atol + check.rtol * abs(wished))))
        count, worse = int(outside.sum()), outside & ~is_finite
        elements += int(outside.size if not is_tensor(outside) else outside.numel())
        is_worse = bool(worse.any())
        if count and (not first or (is_worse and is_excused)):
            at = _first_of(worse if is_worse else outside)
            shown = _number(actual.reshape(-1)[at]), _number(wished.reshape(-1)[at])
            first = f"output {number}, element {at} is {shown[0]}, not {shown[1]}"
        is_excused = is_excused and not is_worse
        mismatched += count
        wrong = error[~same]
        if len(wrong):
            most = float(wrong.max())
            largest = max(largest, most) if most == most else float("inf")
    ratio = mismatched / max(1, elements)
    is_right = is_excused and ratio <= check.max_mismatched_ratio
    reason = "" if is_right else f"{100 * ratio:.3g} % of elements are wrong: {first}"
    return Finding(reason, Verified.FALSE if reason else Verified.TRUE, largest, ratio)


def _error(actual: Any, wished: Any) -> Any:
    """By element; NaN where both are the same infinity."""
    if is_tensor(actual):
        return abs(actual - wished)
    import numpy as np

    with np.errstate(invalid="ignore", over="ignore"):
        return abs(actual - wished)


def _first_of(chosen: Any) -> int:
    """The index, flat, of the first true element."""
    return int(chosen.reshape(-1).int().argmax() if is_tensor(chosen) else chosen.reshape(-1).argmax())


def _doubles(one: Any, wanted: Any) -> tuple[Any, Any]:
    """Both as tensors on the output's device, or both as arrays."""
    if is_tensor(one) or is_tensor(wanted):
        import torch

        actual = torch.as_tensor(one).detach()
        wished = torch.as_tensor(wanted).detach().to(actual.device)
        is_complex = actual.is_complex() or wished.is_complex()
        kind = torch.complex128 if is_complex else torch.float64
        return actual.to(kind), wished.to(kind)
    import numpy as np

    is_complex = np.iscomplexobj(one) or np.iscomplexobj(wanted)
    kind_of = np.complex128 if is_complex else np.float64
    return np.asarray(one, dtype=kind_of), np.asarray(wanted, dtype=kind_of)


def _number(value: Any) -> str:
    number = complex(value)
    return f"{number.real:.6g}" if number.imag == 0 else f"{number:.6g}"


def one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:REASON_CHARS]
