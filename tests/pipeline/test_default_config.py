"""What is launched without tuning stands in the finals of a kind that knows it, and is what results compare with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tuning import SM_90, StandInGpu, session, state_of

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.kernels.taken import TakenKernel
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import entry
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.tune import Tuning

KERNEL = TakenKernel("kernel.py", "fused_moe_kernel", "", "def fused_moe_kernel(NAME): pass", (), (), "0" * 12)
LAYER = MoeProblem("vllm", 64, 64, 128, 256, 4, kernel_sha=KERNEL.sha, kernel=KERNEL)
DEFAULT = WORKLOAD.default_config(LAYER, SM_90)
OTHERS = tuple(PlainConfig("vllm_moe", tuple(entry(16, 32, 64, 1, 4, stages).items())) for stages in (2, 3, 4))
CURRENT = PlainConfig("vllm_moe", tuple(entry(16, 128, 64, 1, 8, 2).items()))


def tuned(folder: Path, monkeypatch: pytest.MonkeyPatch, times: dict[str, float], **how: Any) -> Session:
    monkeypatch.chdir(folder)
    layer: Any = LAYER
    configs: Any = OTHERS
    made = session(folder, layer, search="full", compile_stage=False, **how)
    Tuning(made, [state_of(layer, configs)], (StandInGpu(us=times, drift=0.03, jitter=0.001),)).run()
    return made


@pytest.mark.parametrize(("default_us", "wins"), [(60.0, False), (50.3, False), (50.02, True), (40.0, True)])
def test_the_default_is_replaced_only_beyond_noise(
    default_us: float, wins: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {one.name: us for one, us in zip(OTHERS, (50.0, 70.0, 80.0), strict=True)}
    done = tuned(tmp_path, monkeypatch, {**times, DEFAULT.name: default_us})
    choice = done.results.choices[LAYER]
    assert choice.config == (DEFAULT if wins else OTHERS[0])
    assert choice.vendor_us == pytest.approx(default_us, rel=0.04)


def test_what_is_served_now_stands_in_the_finals_beside_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {**dict.fromkeys((one.name for one in OTHERS), 90.0), DEFAULT.name: 60.0, CURRENT.name: 50.0}
    done = tuned(tmp_path, monkeypatch, times, older={LAYER: CURRENT})
    choice = done.results.choices[LAYER]
    assert choice.config == CURRENT and choice.vendor_us == pytest.approx(60.0, rel=0.04)
