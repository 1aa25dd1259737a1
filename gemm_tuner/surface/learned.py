"""Facts from the first run of a candidate: its outputs, the kind of reference, and how all candidates are checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.surface.judge import finding, flat
from gemm_tuner.surface.profile_args import ProfileArgs
from gemm_tuner.surface.records import Call, Check
from gemm_tuner.surface.tunables import Built
from gemm_tuner.surface.written import Written

REFERENCE = "ref_prog"


@dataclass(frozen=True)
class Learned:
    """expected: outputs of the reference, if it returns them. reference: its call. has_run: a candidate has run."""

    profile: ProfileArgs
    inputs: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    written: Written = field(default_factory=Written)
    expected: list[Any] | None = None
    reference: Callable[[], Any] | None = None
    has_run: bool = False

    def put_back(self) -> None:
        self.written.restore(self.inputs)

    def baselines(self) -> dict[str, Call]:
        return {REFERENCE: Call(self.reference)} if self.reference else {}

    def check(self, built: Built, inputs: list[Any], profile: ProfileArgs) -> Check:
        limits = Check(rtol=profile.rtol, atol=profile.atol, max_mismatched_ratio=profile.max_mismatched_ratio)
        if profile.skip_check:
            return Check(skip=True)
        if profile.manual_check_prog is not None:
            return Check(manual=lambda outputs: self._by_hand(_listed(outputs)))
        if self.expected is not None:
            return replace(limits, reference=self.expected)
        if profile.ref_prog is not None:
            return Check(manual=lambda outputs: self._verdict(built, inputs, _listed(outputs), limits))
        return limits

    def _by_hand(self, outputs: list[Any]) -> Any:
        program = self.profile.manual_check_prog
        assert program is not None
        if not _takes_two(program):
            return program(outputs[0] if len(outputs) == 1 else outputs)
        if self.expected is None:
            raise UserError("takes the expected outputs, and ref_prog gives none", where="manual_check_prog")
        return program(outputs, self.expected)

    def _verdict(self, built: Built, inputs: list[Any], outputs: list[Any], check: Check) -> bool:
        """The verdict of a reference that checks the outputs itself, or that failed for the first candidate."""
        assert self.profile.ref_prog is not None
        call = built.arguments(inputs, outputs)
        found = self.profile.ref_prog(*call.args, **call.kwargs)
        if found is None or is_verdict(found):
            return found is None or bool(found)
        verdict = finding(check, outputs, flat(found))
        if verdict.reason:
            raise AssertionError(verdict.reason)
        return True


def _listed(outputs: Any) -> list[Any]:
    return outputs if isinstance(outputs, list) else [outputs]


def is_verdict(value: Any) -> bool:
    """Whether a value is a bool, or a tensor with one bool."""
    return isinstance(value, bool) or ("bool" in str(getattr(value, "dtype", "")) and not tuple(value.shape))


def _takes_two(program: Callable[..., Any]) -> bool:
    try:
        inspect.signature(program).bind(None, None)
        return True
    except (TypeError, ValueError):
        return False
