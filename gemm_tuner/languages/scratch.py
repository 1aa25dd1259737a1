"""Memory that kernels share while they compute one call: partial sums and locks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Multiprocessors where no GPU is asked: when compiling and interpreting. They set nothing but grids.
STAND_IN_SMS = 4


@dataclass(frozen=True, slots=True)
class Scratch:
    """partial_sums: fp32 elements, NaN at first. locks: int32 zeros, which every call leaves zero. Or None."""

    partial_sums: Any = None
    locks: Any = None


def count_sms(device: str) -> int:
    """Multiprocessors of the current GPU; STAND_IN_SMS on the CPU."""
    if device == "cpu":
        return STAND_IN_SMS
    import torch

    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def partial_sums(elements: int, device: str) -> Any:
    """fp32 scratch filled with NaN, so that a slice that was not written shows; None for 0 elements."""
    import torch

    return torch.full((elements,), float("nan"), dtype=torch.float32, device=device) if elements else None


def zero_locks(count: int, device: str) -> Any:
    """int32 zeros; None for 0 of them."""
    import torch

    return torch.zeros(count, dtype=torch.int32, device=device) if count else None


class ScratchPool:
    """Scratch that grows to what the largest configuration needs.

    Partial sums beyond 2 GiB are kept apart: on AMD, Triton compiles another kernel for them, which a
    configuration that needs less was not compiled for.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._partial_sums: dict[bool, Any] = {}
        self._locks: Any = None

    def take(self, elements: int, locks: int) -> Scratch:
        """Scratch of at least so many fp32 partial sums and int32 locks; what is 0 is None."""
        return Scratch(
            self._take_partial_sums(elements) if elements else None, self._take_locks(locks) if locks else None
        )

    def _take_partial_sums(self, elements: int) -> Any:
        beyond_2_gib = 4 * elements >= 2**31
        held = self._partial_sums.get(beyond_2_gib)
        if held is None or held.numel() < elements:
            held = None  # frees the smaller one first
            self._partial_sums.pop(beyond_2_gib, None)
            held = self._partial_sums[beyond_2_gib] = partial_sums(elements, self._device)
        return held

    def _take_locks(self, count: int) -> Any:
        if self._locks is None or self._locks.numel() < count:
            self._locks = zero_locks(count, self._device)
        return self._locks
