"""The pause between sizes of finals that heat the GPU."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from gemm_tuner.core.markers import FLUSH_SYMBOL
from gemm_tuner.languages.c.language import LANGUAGE
from gemm_tuner.launch import bench
from gemm_tuner.launch.bench import Bench
from gemm_tuner.launch.journal import Journal
from gemm_tuner.launch.plan import FINALS, REST_S, TIRING_CALL_US, Method, Plan
from gemm_tuner.launch.processor import Cpu


class Clock:
    """Takes the place of ``time`` in a bench."""

    def __init__(self) -> None:
        self.now, self.slept_s = 1000.0, 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds


@pytest.mark.parametrize("sweeps", [1, 3])
def test_a_flush_in_c_reads_its_memory_as_often_as_it_is_told(sweeps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(type(LANGUAGE), "load", lambda language, source: lambda buffer, count: sizes.append(count))
    LANGUAGE.support_calls(4096, "cpu")[FLUSH_SYMBOL](sweeps)
    assert sizes == [4096] * sweeps


@pytest.mark.parametrize(
    ("call_us", "prepared_s", "pause_s"),
    [
        (2 * TIRING_CALL_US, 0.0, REST_S),
        (2 * TIRING_CALL_US, REST_S / 3, REST_S * 2 / 3),
        (2 * TIRING_CALL_US, 2 * REST_S, 0.0),
        (TIRING_CALL_US / 2, 0.0, 0.0),
    ],
)
def test_what_the_host_does_meanwhile_is_part_of_the_pause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call_us: float, prepared_s: float, pause_s: float
) -> None:
    monkeypatch.setenv("GEMM_TUNER_C_CACHE", str(tmp_path))
    clock = Clock()
    monkeypatch.setattr(bench, "time", clock)
    of = Bench(
        Plan(FINALS, (), (), Method(flush_bytes=0), device="cpu"), Journal(io.StringIO()), tmp_path, LANGUAGE, Cpu()
    )
    of.rest()
    assert clock.slept_s == 0.0
    of.note_load(call_us * 100 / 1e6, 100)
    clock.now += prepared_s
    of.rest()
    assert clock.slept_s == pytest.approx(pause_s)
    of.note_load(1e-6, 0)  # nothing ran
    of.rest()
    assert clock.slept_s == pytest.approx(pause_s)
