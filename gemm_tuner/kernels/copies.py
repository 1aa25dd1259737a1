"""Copies of tensors that must not take the memory which a kernel's own tensors need. Needs torch."""

from __future__ import annotations

from typing import Any

# The part of a GPU's free memory that a copy may take there.
SHARE = 0.5


def copied(tensor: Any) -> Any:
    """A copy: where the tensor is if it leaves room there, else in the host's memory."""
    return tensor.detach().clone() if has_room(tensor) else tensor.detach().to("cpu", copy=True)


def has_room(tensor: Any) -> bool:
    """Whether a copy of the tensor leaves room where it is; a stand-in for a GPU has all room."""
    if not tensor.is_cuda:
        return True
    try:
        free = free_bytes(tensor.device)
    except (TypeError, RuntimeError, AssertionError):
        return True
    return bool(tensor.numel() * tensor.element_size() <= SHARE * free)


def free_bytes(device: Any) -> int:
    """Of a GPU, with what torch keeps for its next tensors."""
    import torch

    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + kept)
