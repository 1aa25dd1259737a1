"""Several routings in one finals: configurations are chosen by the mean over them, and it is said when they differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tuning import StandInGpu, session, state_of

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.kernels.taken import TakenKernel
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import entry
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.pipeline.tune import Tuning

KERNEL = TakenKernel("kernel.py", "fused_moe_kernel", "", "def fused_moe_kernel(NAME): pass", (), (), "0" * 12)
LAYER = MoeProblem("vllm", 64, 64, 128, 256, 4, routing=("uniform", "zipf:1.0"), kernel_sha=KERNEL.sha, kernel=KERNEL)
FIRST, OTHER = (PlainConfig("vllm_moe", tuple(entry(16, 32, 64, 1, 4, stages).items())) for stages in (2, 3))


class SkewedGpu(StandInGpu):
    """Calls take the routings in turn, with times of their own each."""

    by_routing: Any = None

    def _samples(self, name: str, factors: list[float], dice: Any) -> tuple[float, ...]:
        us = self.by_routing.get(name, (100.0,))
        return tuple(us[at % len(us)] * (1 + self.jitter * dice.gauss(0, 1)) for at in range(len(factors)))


@pytest.mark.parametrize(
    ("first", "other", "wins", "sensitive"),
    [
        ((10.0, 30.0), (15.0, 20.0), OTHER, True),  # the first is faster for one routing, and slower in the mean
        ((10.0, 22.0), (15.0, 20.0), FIRST, True),
        ((10.0, 30.0), (11.0, 33.0), FIRST, False),
    ],
)
def test_the_mean_over_routings_counts(
    first: tuple[float, ...],
    other: tuple[float, ...],
    wins: PlainConfig,
    sensitive: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    layer: Any = LAYER
    configs: Any = (FIRST, OTHER)
    gpu = SkewedGpu(jitter=0.001)
    gpu.by_routing = {FIRST.name: first, OTHER.name: other}
    made = session(tmp_path, layer, search="full", compile_stage=False)
    Tuning(made, [state_of(layer, configs)], (gpu,)).run()
    choice = made.results.choices[LAYER]
    assert choice.config == wins
    assert choice.median_us == pytest.approx(sum(first if wins == FIRST else other) / 2, rel=0.01)
    assert dict(choice.derived)["routing_sensitive"] is sensitive


def test_one_routing_or_one_process_tells_nothing() -> None:
    alone = replace(LAYER, routing=("uniform",))
    times = [{"a": (1.0, 2.0) * 6, "b": (2.0, 1.0) * 6}] * 2
    assert WORKLOAD.found_in_finals(alone, times, "a") == {}
    assert WORKLOAD.found_in_finals(LAYER, times[:1], "a") == {}
    assert WORKLOAD.found_in_finals(LAYER, times, "a") == {"routing_sensitive": True}
    lost = [{"a": (1.0, 2.0) * 6, "b": (2.0, 1.0) * 5}] * 2  # a trace that lacks calls: which routing is unknown
    assert WORKLOAD.found_in_finals(LAYER, lost, "a") == {}
