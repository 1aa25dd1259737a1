"""What an exported module hands Triton's launcher: kernels compiled for sm_90, a driver that notes launches, no GPU.

As a script: ``module_launches.py MODULE FOUND.json [all]``, a process of its own since the driver stays.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

LAUNCHES: list[tuple[str, tuple[int, ...], list[Any]]] = []


class Launcher:
    """Stands for Triton's: grid, stream, function, metadata and hooks come before a kernel's arguments."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self.name = metadata.name

    def __call__(self, *values: Any) -> None:
        LAUNCHES.append((self.name, values[:3], [noted(value) for value in values[9:]]))


def noted(argument: Any) -> Any:
    """An argument as JSON has it, memory by its address."""
    if hasattr(argument, "base"):
        lists = (list(argument.shape), list(argument.strides), list(argument.block_shape))
        return {"address": argument.base.data_ptr(), "descriptor": [*lists, argument.padding]}
    return {"address": argument.data_ptr()} if hasattr(argument, "data_ptr") else argument


def placed(argument: Any, addresses: list[int]) -> Any:
    """The same with the operand's number in place of its address; -1 for memory that the module holds."""
    if not isinstance(argument, dict):
        return argument
    number = addresses.index(argument["address"]) if argument["address"] in addresses else -1
    return {**argument, "address": number}


def load(path: str) -> Any:
    """The module, for a GPU that is not there: its tensors are the CPU's."""
    import triton
    from triton.backends.compiler import GPUTarget

    utils = SimpleNamespace(
        load_binary=lambda *_: (1, 2, 0, 0, 1024),
        unload_module=lambda _: None,
        get_device_properties=lambda _: {"max_shared_mem": 232448},
    )
    driver = SimpleNamespace(
        launcher_cls=Launcher,
        utils=utils,
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        get_current_device=lambda: 0,
        get_current_stream=lambda _: 0,
    )
    triton.runtime.driver.set_active(driver)
    spec = importlib.util.spec_from_file_location("exported", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module._INTERPRETED = True
    module._WIDER = {}
    return module


def two_calls(module: Any, kind: str, size: tuple[int, int, int], biased: bool) -> list[Any]:
    """(kernel, grid, arguments) of each launch of two calls on other memory: by Triton's own launch, and by the short
    one that follows it on a GPU."""
    import torch

    m, n, k = size
    one = module.CLASSES[kind]
    calls, plan = [], None
    for _ in range(2):
        a, b = torch.empty(m, k, dtype=one.type_a), torch.empty(k, n, dtype=one.type_b)
        bias = torch.empty(n, dtype=one.type_c) if biased else None
        if plan is None:
            plan = module._new_plan((a, b, bias, None, None, None), False, "none", (one.type_c, one.precision), True)
            plan.short = True
        LAUNCHES.clear()
        c = plan.run((a, b, bias, None, None, None), (1.0, 1.0), True)
        addresses = [tensor.data_ptr() for tensor in (a, b, c, bias) if tensor is not None]
        calls.append([(name, grid, [placed(one, addresses) for one in given]) for name, grid, given in LAUNCHES])
    return calls


def main(path: str, found: str, which: str = "") -> None:
    """which: "all" calls every kernel with and without a bias, else all but the first in turns."""
    module = load(path)
    kernels = [(kind, row) for kind in module.TUNED for row in module.TUNED[kind]]
    rows = [
        (row[5], biased, two_calls(module, kind, row[:3], biased))
        for number, (kind, row) in enumerate(kernels)
        for biased in (False, True)
        if which or not number or biased == bool(number % 2)
    ]
    Path(found).write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
