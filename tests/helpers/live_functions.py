"""Functions that another process can import, to be tuned there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
from hang_clock import hang


def build(config: dict[str, Any]) -> Callable[[], Any]:
    """Sums of random numbers, again and again as ``times`` says; ``kind`` says what goes wrong."""
    numbers = np.random.random(1000)

    def run() -> Any:
        if config["kind"] == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if config["kind"] == "hang":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
            hang()
        total = 0.0
        for _ in range(config["times"]):
            total = float(numbers.sum())
        return total + 100 * (config["kind"] == "wrong")

    return run


def build_with(size: int, config: dict[str, Any]) -> Callable[[], Any]:
    return lambda: np.zeros(size).sum()


def reference() -> float:
    """The sum of what ``build`` draws with seed 3."""
    np.random.seed(3)
    return float(np.random.random(1000).sum())


def baseline() -> Any:
    return sum(range(200_000))


def inputs() -> list[Any]:
    return [np.random.random(1000)]


def once(x: Any) -> float:
    return float(x.sum())


def fifty_times(x: Any) -> float:
    return max(float(x.sum()) for _ in range(50))


def build_product(config: dict[str, Any]) -> Callable[..., Any]:
    def product(a: Any, b: Any, times: int) -> Any:
        return max((a @ b for _ in range(times * config["times"])), key=id) + config["off"]

    return product


def product(a: Any, b: Any, times: int) -> Any:
    return a @ b


def make_run_and_gt(size: int, config: dict[str, Any]) -> tuple[Callable[[], Any], Any]:
    x = np.random.random(size)
    return lambda: [x.sum() for _ in range(config["used"])][0], x.sum()  # noqa: RUF015


def use(config: dict[str, Any]) -> None:
    config["used"] = config["times"] + 1


def build_softmax(rows: int, cols: int, config: dict[str, Any]) -> Any:
    """examples/kernels/softmax.py on a GPU; with ROWS 0 a call that costs the GPU's context."""
    import importlib

    import torch
    import triton

    from gemm_tuner.surface.records import Call, Check

    kernel = importlib.import_module("softmax").softmax_rows
    x = torch.randn(rows, cols, device="cuda", dtype=torch.float16)
    out = torch.empty_like(x)

    def run() -> Any:
        if not config["ROWS"]:
            torch._assert_async(torch.zeros(1, device="cuda"))
            torch.cuda.synchronize()
        block = triton.next_power_of_2(cols)
        kernel[(triton.cdiv(rows, config["ROWS"]),)](out, x, x.stride(0), rows, cols, BLOCK=block, **config)
        return out

    return Call(run, Check(lambda: torch.softmax(x.double(), -1), atol=1e-3), outputs=[out])


def torch_softmax() -> Any:
    import torch

    x = torch.ones(4096, 1024, device="cuda", dtype=torch.float16)
    return torch.softmax(x, -1)


def build_rows(config: dict[str, Any]) -> Callable[[Any], Any]:
    import importlib

    import torch
    import triton

    kernel = importlib.import_module("softmax").softmax_rows

    def launch(x: Any) -> Any:
        out = torch.empty_like(x)
        grid, block = (triton.cdiv(x.shape[0], config["ROWS"]),), triton.next_power_of_2(x.shape[1])
        kernel[grid](out, x, x.stride(0), *x.shape, BLOCK=block, **config)
        return out

    return launch


def softmax_of(x: Any) -> Any:
    import torch

    return torch.softmax(x.double(), -1)
