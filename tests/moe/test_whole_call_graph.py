"""A call that is recorded as a CUDA graph, with a stand-in for torch's graphs: they replay addresses, keep nothing."""

from __future__ import annotations

import contextlib
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from gemm_tuner.moe import whole_call


class Graph:
    replays = 0

    def replay(self) -> None:
        self.replays += 1


class Tensor:
    """What a call works on."""


def test_a_graph_keeps_the_memory_that_it_works_on(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    graph, stream = Graph(), SimpleNamespace(wait_stream=lambda other: None)
    doubles: dict[str, Any] = {
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": contextlib.nullcontext,
        "synchronize": lambda: None,
        "CUDAGraph": lambda: graph,
        "graph": contextlib.nullcontext,
    }
    for name, double in doubles.items():
        monkeypatch.setattr(torch.cuda, name, double)
    call: Any = SimpleNamespace(run=lambda: None, out=Tensor())
    memory = weakref.ref(call.out)
    replay = whole_call.captured(call)
    del call
    gc.collect()
    assert memory() is not None
    replay()
    assert graph.replays == 1
    del replay
    gc.collect()
    assert memory() is None
