"""Outputs that a host function keeps and returns again. Needs torch.

One configuration must not find what another wrote. Filling such a buffer with NaN would be wrong where a function
zeroes it once and its kernel writes a part of it. So it gets back what it held before the first launch that took it:
NaN where torch would leave memory as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any

from gemm_tuner.hosts.shared_tensors import bytes_of
from gemm_tuner.kernels.copies import copied
from gemm_tuner.kernels.stores import inputs_of


class KeptOutputs:
    """Of the modules of a script, which keep them. Storages that nothing keeps are forgotten.

    A storage is known by a weak reference: a tensor that is returned may be a new one each time, such as that of
    ``detach``, and a view in inference mode does not know its base.
    """

    def __init__(self) -> None:
        self._first: dict[int, tuple[Any, Any]] = {}
        self._seen: dict[int, Any] = {}

    def put_back(self) -> None:
        """Before a configuration is called."""
        import torch

        self._seen = {}
        for address, (alive, values) in list(self._first.items()):
            storage = torch.UntypedStorage._new_with_weak_ptr(alive.cdata)
            if storage is None:
                del self._first[address]
            else:
                bytes_of(storage).copy_(values)

    def note(self, kernel: Any, arguments: Mapping[str, Any]) -> None:
        """Before each launch: what those of its tensors hold that the kernel may write, those of descriptors too."""
        inputs = inputs_of(kernel.fn)
        for name, value in arguments.items():
            if name in inputs:
                continue
            tensor = getattr(value, "base", value) if hasattr(value, "block_shape") else value
            if hasattr(tensor, "untyped_storage"):
                storage = tensor.untyped_storage()
                known = self._seen.keys() | self._first.keys()
                if storage.data_ptr() not in known:
                    self._seen[storage.data_ptr()] = copied(bytes_of(storage))

    def keep(self, returned: Iterable[Any]) -> None:
        """After the call: of what it noted, the outputs."""
        from torch.multiprocessing.reductions import StorageWeakRef

        for tensor in returned:
            storage = tensor.untyped_storage()
            address = storage.data_ptr()
            if address in self._seen:
                self._first[address] = StorageWeakRef(storage), self._seen[address]
        self._seen = {}


@lru_cache(maxsize=8)
def kept_outputs(script: ModuleType) -> KeptOutputs:
    """Of the modules that ``host_code.modules_of`` runs once."""
    return KeptOutputs()
