"""Judges the outputs of a call: by a reference, by the user's own check, or by what other configurations gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.kernels import copies
from gemm_tuner.kernels.compare import Groups, compared, is_tensor, unwritten
from gemm_tuner.launch.failures import status_of
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


def copied(value: Any) -> Any:
    """An output that later calls do not change; in the host's memory where it leaves no room on the GPU."""
    return copies.copied(value) if is_tensor(value) else value.copy() if hasattr(value, "copy") else value


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
        self._groups = Groups(lambda outputs: {name: copied(one) for name, one in outputs.items()})

    @property
    def judges_later(self) -> bool:
        """Whether configurations are compared with each other."""
        return bool(self._groups.groups)

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
        if check.reference is not None:
            return finding(check, outputs, self._reference(check))
        filled = {id(one) for one in flat(call.outputs)}
        fault = unwritten({name: one for name, one in named(outputs).items() if id(one) in filled})
        if fault is None:
            self._groups.join(name, named(outputs), check)
        return Finding(fault.message if fault else "")

    def _reference(self, check: Check) -> list[Any]:
        """The expected outputs: of the check of all configurations computed once."""
        if check is not self._check:
            return _computed(check)
        if self._expected is None:
            self._expected = [copied(one) for one in _computed(check)]
        return self._expected

    def agreed(self) -> tuple[frozenset[str], dict[str, str]]:
        """Of configurations without a reference: the names of the largest group whose outputs agree, and by name why
        the others are wrong. None is in either where no two agree, or two groups are equally large."""
        largest = self._groups.largest()
        if largest is None:
            return frozenset(), {}
        others = [
            (group.names, self._groups.fault(group).message) for group in self._groups.groups if group is not largest
        ]
        return frozenset(largest.names), {name: message for names, message in others for name in names}


def named(outputs: Sequence[Any]) -> dict[str, Any]:
    return {f"output {number}": one for number, one in enumerate(outputs)}


def finding(check: Check, outputs: Sequence[Any], expected: Sequence[Any]) -> Finding:
    """Compares with the expected outputs."""
    found = compared(check, named(outputs), named(expected))
    verified = Verified.TRUE if found.ok else Verified.FALSE
    return Finding(found.message, verified, found.max_abs_error, found.mismatched_ratio)


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
        if status_of(error) is Status.CRASHED:
            raise
        return Finding(f"the check raised {one_line(error)}")
    return Finding("the check returned False") if is_right is False else Finding(verified=Verified.TRUE)


def one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:REASON_CHARS]
