"""What a profiler records of a process with functions of a user: the calls between markers, and nothing after them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gemm_tuner.core import language
from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.surface import child
from gemm_tuner.surface.records import Call


@pytest.mark.parametrize("capture", [True, False])
def test_the_range_ends_before_the_users_process_does(capture: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    class Gpu:
        def __getattr__(self, name: str) -> Any:
            return lambda: heard.append(name)

    kernels = {name: lambda: None for name in (FLUSH_SYMBOL, BEGIN_SYMBOL, END_SYMBOL)}
    monkeypatch.setattr(child, "Gpu", Gpu)
    monkeypatch.setattr(child, "flush_bytes", lambda: 1)
    monkeypatch.setattr(language, "language_of", lambda name: SimpleNamespace(support_calls=lambda *_: kernels))
    job: Any = SimpleNamespace(capture=capture, scopes=False)
    child._record(job, [Call(lambda: heard.append("call"))] * 2, 2)
    steps = [one for one in heard if one != "wait"]
    assert (heard[-1] == "stop_recording" and heard[-2] == "wait") or not capture
    assert steps == (["start_recording", "call", "call", "stop_recording"] if capture else ["call", "call"])
