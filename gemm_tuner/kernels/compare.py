"""Compares outputs of a kernel with what they should be, or with those of other configurations.

An output is a tensor, an array or a number; torch is imported where one of them is its tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

# Of a floating-point element, where nothing else is asked for: relative and absolute, by bytes of its type. The
# relative RMS of an output has the same bound: it finds what an absolute tolerance hides where all elements are small.
TOLERANCES = {4: 1e-4, 2: 1e-2, 1: 1e-1}
WRONG = float("inf")
# Elements that are compared at a time: double precision takes many times the memory of an output.
CHUNK = 2**22

Outputs = Mapping[str, Any]


class Tolerance(Protocol):
    """rtol, atol: of an element, relative and absolute; None for those of its type.
    rms: the largest relative RMS of the error of an output; None for what its type allows, or rtol where that is more.
    max_mismatched_ratio: the share of elements of an output that may be beyond rtol and atol."""

    @property
    def rtol(self) -> float | None: ...

    @property
    def atol(self) -> float | None: ...

    @property
    def rms(self) -> float | None: ...

    @property
    def max_mismatched_ratio(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Comparison:
    """over: the largest error over its bound; at most 1 when right. at: (row, column) of that element.
    mismatched_ratio: the share of all elements that are beyond their bound. message: empty when right."""

    over: float = 0.0
    max_abs_error: float = 0.0
    at: tuple[int, int] = (0, 0)
    mismatched_ratio: float = 0.0
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.over <= 1.0


def wrong(message: str) -> Comparison:
    return Comparison(WRONG, WRONG, message=message)


def is_tensor(value: Any) -> bool:
    """Whether it is one of torch; imports nothing."""
    return type(value).__module__.partition(".")[0] == "torch" or hasattr(value, "is_floating_point")


def compared(tolerance: Tolerance, outputs: Outputs, expected: Outputs) -> Comparison:
    """The worst of all outputs, in double precision; types need not be equal, names and shapes must."""
    if outputs.keys() != expected.keys():
        return wrong(f"gives {len(outputs)} outputs ({', '.join(outputs)}), not {len(expected)}")
    with np.errstate(invalid="ignore", over="ignore"):
        found = [_one(tolerance, label, outputs[label], wanted) for label, wanted in expected.items()]
    worst = max((one for one, _, _ in found), key=lambda one: one.over, default=Comparison())
    largest = max((one.max_abs_error for one, _, _ in found), default=0.0)
    ratio = sum(beyond for _, beyond, _ in found) / max(1, sum(elements for _, _, elements in found))
    return Comparison(worst.over, largest, worst.at, ratio, worst.message)


def _one(tolerance: Tolerance, label: str, actual: Any, wanted: Any) -> tuple[Comparison, int, int]:
    """An output with how many of its elements are beyond their bound, and how many there are.

    An element's error is measured in rtol * |wanted| + atol; a share of ``max_mismatched_ratio`` of them may be larger,
    as long as it is finite where the wanted one is: another one was most likely never written.
    """
    default = _type_tolerance(actual)
    rtol = default if tolerance.rtol is None else tolerance.rtol
    atol = default if tolerance.atol is None else tolerance.atol
    actual, wanted = _alike(actual, wanted)
    shape, count = tuple(actual.shape), int(actual.numel() if is_tensor(actual) else actual.size)
    if shape != tuple(wanted.shape):
        return wrong(f"{label} is {shape}, not {tuple(wanted.shape)}"), count, count
    if not count:
        return Comparison(), 0, 0
    actual, wanted = actual.reshape(-1), wanted.reshape(-1)
    every, within, beyond = _Worst(), _Worst(), 0
    for begin in range(0, count, CHUNK):
        piece = slice(begin, begin + CHUNK)
        size, error, score = _scores(actual[piece], wanted[piece], rtol, atol)
        over = score > 1.0
        beyond += int(over.sum())
        every.add(begin, size, error, score, score >= 0)
        within.add(begin, size, error, score, ~over | (error == WRONG))
    found = within if beyond <= tolerance.max_mismatched_ratio * count else every
    place = divmod(found.at, max(1, shape[-1] if shape else 1))
    if found.score > 1.0:
        text = f"{label}[{found.at}] is {_number(actual[found.at])}, not {_number(wanted[found.at])}"
        text += f", and {100 * beyond / count:.3g} % of all elements differ" if beyond > 1 else ""
        return Comparison(found.score, every.largest, place, message=text), beyond, count
    limit = max(default, rtol) if tolerance.rms is None else tolerance.rms
    if limit and found.size_sum > 0 and (rms := (found.error_sum / found.size_sum) ** 0.5) > limit:
        text = f"the error of {label} has a relative RMS of {rms:.3g}, over {limit:g}"
        return Comparison(rms / limit, every.largest, place, message=text), beyond, count
    return Comparison(found.score, every.largest, place), beyond, count


@dataclass
class _Worst:
    """Of the elements that count: the largest score, where it is, and the sums of the squares of errors and of wanted
    values. largest: the largest error of all elements."""

    score: float = -1.0
    at: int = 0
    largest: float = 0.0
    error_sum: float = 0.0
    size_sum: float = 0.0

    def add(self, begin: int, size: Any, error: Any, score: Any, counted: Any) -> None:
        """begin: where the piece begins. size: |wanted|."""
        self.largest = max(self.largest, float(error.max()))
        mine = score * 1.0
        mine[~counted] = 0.0
        at = int(mine.argmax())
        if (worst := float(mine[at])) > self.score:
            self.score, self.at = worst, begin + at
        part = counted & (size < WRONG)
        self.error_sum += float((error[part] * error[part]).sum())
        self.size_sum += float((size[part] * size[part]).sum())


def _scores(actual: Any, wanted: Any, rtol: float, atol: float) -> tuple[Any, Any, Any]:
    """(|wanted|, error, error over its bound) of elements, in double precision."""
    found, wished = _doubles(actual, wanted)
    same = (found == wished) | ((found != found) & (wished != wished))
    error = abs(found - wished)  # NaN where both are the same infinity
    error[same] = 0.0
    if (differ := _integers_differ(actual, wanted)) is not None:
        same, error[differ & (error == 0)] = same & ~differ, 1.0  # equal as doubles only
    error[error != error] = WRONG
    size = abs(wished)
    bound = rtol * size + atol
    score = error / bound.clip(min=1e-300)
    score[same] = 0.0
    score[score != score] = WRONG
    return size, error, score


def _type_tolerance(value: Any) -> float:
    if is_tensor(value):
        return TOLERANCES[min(4, value.element_size())] if value.is_floating_point() or value.is_complex() else 0.0
    kind, size = getattr(getattr(value, "dtype", None), "kind", "f"), getattr(value, "itemsize", 8)
    return TOLERANCES[min(4, size)] if kind in "fc" else 0.0


def _alike(one: Any, wanted: Any) -> tuple[Any, Any]:
    """Both as tensors, or both as arrays."""
    if is_tensor(one) or is_tensor(wanted):
        import torch

        return torch.as_tensor(one).detach(), torch.as_tensor(wanted).detach()
    return np.asarray(one), np.asarray(wanted)


def _doubles(one: Any, wanted: Any) -> tuple[Any, Any]:
    """In double precision, tensors on the output's device."""
    if is_tensor(one):
        import torch

        kind = torch.complex128 if one.is_complex() or wanted.is_complex() else torch.float64
        return one.to(kind), wanted.to(one.device, kind)
    is_complex = np.iscomplexobj(one) or np.iscomplexobj(wanted)
    kind_of = np.complex128 if is_complex else np.float64
    return one.astype(kind_of), wanted.astype(kind_of)


def _integers_differ(one: Any, wanted: Any) -> Any:
    """By element, in order, of integers of which doubles do not hold all; None for others."""
    if is_tensor(one) and is_tensor(wanted):
        kinds = {str(one.dtype), str(wanted.dtype)}
        if "torch.int64" not in kinds or one.dtype.is_floating_point or wanted.dtype.is_floating_point:
            return None
        return None if wanted.is_complex() else (one.detach() != wanted.detach().to(one.device)).reshape(-1)
    if (
        isinstance(one, np.ndarray)
        and isinstance(wanted, np.ndarray)
        and {one.dtype.kind, wanted.dtype.kind} <= {*"iu"}
    ):
        return (one != wanted).reshape(-1)
    return None


def _number(value: Any) -> str:
    number = complex(value)
    return f"{number.real:.6g}" if number.imag == 0 else f"{number:.6g}"


def unwritten(outputs: Outputs) -> Comparison | None:
    """The verdict on outputs that were NaN before the call and still hold NaN; None where none does. Without a
    reference nothing else finds an element that several configurations leave out."""
    for label, value in outputs.items():
        is_nan = value.isnan() if is_tensor(value) else value != value
        if count := int(is_nan.sum()) if hasattr(is_nan, "sum") else 0:
            return wrong(f"{count} elements of {label} are NaN, which they were before the call")
    return None


@dataclass
class Group:
    """Configurations whose outputs agree with those of the first of them, which are kept."""

    tolerance: Tolerance
    outputs: Outputs
    names: list[str]


@dataclass
class Groups:
    """Configurations by outputs that agree: what most of them compute is taken as right.

    copied: makes outputs that later calls do not change; only those of the first of a group stay in memory.
    """

    copied: Callable[[Outputs], Outputs] = dict
    groups: list[Group] = field(default_factory=list)

    def join(self, name: str, outputs: Outputs, tolerance: Tolerance) -> Comparison:
        """Compares a configuration with the first of the group that it agrees with, else it founds one."""
        for group in self.groups:
            found = compared(tolerance, outputs, group.outputs)
            if found.ok:
                group.names.append(name)
                return found
        self.groups.append(Group(tolerance, self.copied(outputs), [name]))
        return Comparison()

    @property
    def total(self) -> int:
        return sum(len(group.names) for group in self.groups)

    def largest(self) -> Group | None:
        """The group that is right; None where no two configurations agree, or two groups are equally large."""
        first, second = (*sorted((len(one.names) for one in self.groups), reverse=True), 0, 0)[:2]
        return max(self.groups, key=lambda one: len(one.names)) if first > max(1, second) else None

    def fault(self, group: Group) -> Comparison:
        """Why a group is wrong that is not the largest; without a largest all are. That it is wrong is known: where
        memory is too small to say how far it is off, no verdict is lost."""
        largest = self.largest()
        if largest is None:
            most = max(len(one.names) for one in self.groups)
            return wrong(f"{most} of {self.total} configurations agree, and no group is the largest: give a reference")
        share = f"{len(largest.names)} of {self.total} configurations"
        try:
            found = compared(group.tolerance, group.outputs, largest.outputs)
        except Exception as error:
            if not isinstance(error, MemoryError) and "OutOfMemory" not in type(error).__name__:
                raise
            return wrong(f"not what {share} compute; out of memory to say where")
        return replace(found, message=f"{found.message}, as {share} have it")
