"""Temporary memory of the kernels of one call: partial sums and locks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# The number of multiprocessors to assume without a GPU (compilation, interpreter). It only affects grid sizes.
STAND_IN_SMS = 4


@dataclass(frozen=True, slots=True)
class Scratch:
    """partial_sums: fp32 elements, initially NaN. locks: int32 zeros; every call must leave them zero. Either is None
    if the kernels do not use it."""

    partial_sums: Any = None
    locks: Any = None


def count_sms(device: str) -> int:
    """Number of multiprocessors of the current GPU; STAND_IN_SMS on the CPU."""
    if device == "cpu":
        return STAND_IN_SMS
    import torch

    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def partial_sums(elements: int, device: str) -> Any:
    """fp32 memory filled with NaN, so that a slice that a kernel forgot to write makes the result NaN; None for 0
    elements."""
    import torch

    return torch.full((elements,), float("nan"), dtype=torch.float32, device=device) if elements else None


def zero_locks(count: int, device: str) -> Any:
    """int32 zeros; None for a count of 0."""
    import torch

    return torch.zeros(count, dtype=torch.int32, device=device) if count else None


class ScratchPool:
    """Scratch memory that is reused and grows to the need of the largest configuration.

    Partial sums of more than 2 GiB are in a separate tensor: on AMD, Triton compiles a different kernel for tensors of
    that size, so a configuration that needs less must not get a tensor that large.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._partial_sums: dict[bool, Any] = {}
        self._locks: Any = None

    def take(self, elements: int, locks: int) -> Scratch:
        """Scratch of at least ``elements`` fp32 partial sums and ``locks`` int32 locks; None for a count of 0."""
        return Scratch(
            self._take_partial_sums(elements) if elements else None, self._take_locks(locks) if locks else None
        )

    def _take_partial_sums(self, elements: int) -> Any:
        beyond_2_gib = 4 * elements >= 2**31
        held = self._partial_sums.get(beyond_2_gib)
        if held is None or held.numel() < elements:
            held = None  # frees the smaller tensor before the larger one is allocated
            self._partial_sums.pop(beyond_2_gib, None)
            held = self._partial_sums[beyond_2_gib] = partial_sums(elements, self._device)
        return held

    def _take_locks(self, count: int) -> Any:
        if self._locks is None or self._locks.numel() < count:
            self._locks = zero_locks(count, self._device)
        return self._locks
