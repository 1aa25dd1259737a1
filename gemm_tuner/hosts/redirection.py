"""Redirects tensors for a GPU that does not exist: to tensors without memory, or to the CPU. Needs torch."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from typing import Any

from gemm_tuner.hosts.host_errors import HostError

# Addresses of tensors without memory: disjoint, and aligned as by an allocator.
FIRST_ADDRESS, STORAGE_BYTES = 1 << 32, 1 << 40
# Functions that return values of a tensor to Python.
VALUES = frozenset(
    (
        *("item", "tolist", "numpy", "cpu", "__array__"),
        *("__bool__", "__int__", "__float__", "__index__", "__contains__"),
    )
)
META, CPU = "meta", "cpu"
NO_ANSWER = object()


def function_mode(call: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> Any:
    """A context in which ``call(function, args, kwargs)`` is called instead of torch's functions and tensor methods."""
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return call(func, args, kwargs or {})

    return Mode()


def redirected(place: str) -> Any:
    """A context in which tensors that host code creates on a GPU are on ``place`` but report to be on the GPU.

    place: META (tensors have shape, type and address, but no values), or CPU.
    """
    return function_mode(_Redirection(place).call)


class _Redirection:
    def __init__(self, place: str) -> None:
        import torch

        self._place, self._gpu = place, torch.device("cuda", 0)
        self._said = {
            torch.Tensor.device.__get__: self._gpu,
            torch.Tensor.is_cuda.__get__: True,
            torch.Tensor.is_cpu.__get__: False,
        }
        self._addresses: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a torch function. Raises HostError if it would return values of a tensor that has none."""
        name = getattr(func, "__name__", "")
        found = self._own_answer(func, name, args[0]) if args else NO_ANSWER
        if found is not NO_ANSWER:
            return found
        moved = {key: self._moved(value) for key, value in kwargs.items()}
        if str(moved.get("device", "")) == META:
            moved.pop("generator", None)
        try:
            return func(*map(self._moved, args), **moved)
        except (NotImplementedError, RuntimeError) as error:
            no_values = isinstance(error, NotImplementedError) or "on meta tensors" in str(error)
            if self._place == META and no_values and any(map(self._is_ours, args)):
                raise HostError(f"reads values of a tensor ({name})") from error
            raise

    def _own_answer(self, func: Any, name: str, tensor: Any) -> Any:
        if not self._is_ours(tensor):
            is_move = name == "cuda" and hasattr(tensor, "to")
            return tensor.to(self._place) if is_move else NO_ANSWER
        if func in self._said:
            return self._said[func]
        if name in ("cuda", "pin_memory"):
            return tensor
        if name == "get_device":
            return 0
        if self._place == META and name == "data_ptr":
            storage = tensor.untyped_storage()
            start = self._addresses.setdefault(storage, FIRST_ADDRESS + len(self._addresses) * STORAGE_BYTES)
            return start + tensor.storage_offset() * tensor.element_size()
        if self._place == META and name in VALUES:
            raise HostError(f"reads values of a tensor ({name})")
        return NO_ANSWER

    def _is_ours(self, value: Any) -> bool:
        import torch

        with torch._C.DisableTorchFunction():
            return isinstance(value, torch.Tensor) and value.device.type == self._place

    def _moved(self, value: Any) -> Any:
        import torch

        if isinstance(value, torch.device):
            return torch.device(self._place) if value.type == "cuda" else value
        return self._place if isinstance(value, str) and re.fullmatch("cuda(:[0-9]+)?", value) else value
