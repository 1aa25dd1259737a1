"""Pairs of configurations that single kernels' times speak for: in the finals, chosen, and found again by a restart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tuning import StandInGpu, restarted, session, state_of

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.kernels.taken import TakenKernel
from gemm_tuner.launch.plan import FINALS, SCREEN, Plan
from gemm_tuner.moe import pairs
from gemm_tuner.moe.launch import DOWN, UP, part_config
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import entry
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.tune import Tuning

KERNEL = TakenKernel("kernel.py", "fused_moe_kernel", "", "def fused_moe_kernel(NAME): pass", (), (), "0" * 12)
LAYER = MoeProblem("sglang", 64, 64, 128, 256, 4, kernel_sha=KERNEL.sha, kernel=KERNEL)
TILES = ((16, 32, 64, 1, 4, 2), (16, 64, 64, 1, 4, 2), (32, 32, 64, 1, 4, 2), (32, 64, 64, 1, 4, 2))
A, B, C, D = CONFIGS = tuple(PlainConfig("sglang_moe", tuple(entry(*tile).items())) for tile in TILES)
# Up and down. The least of both GEMMs are A and D, which have another BLOCK_SIZE_M.
KERNELS = dict(
    zip((one.name for one in CONFIGS), ((10.0, 60.0), (50.0, 15.0), (30.0, 50.0), (60.0, 10.0)), strict=True)
)
ALONE = {name: sum(us) for name, us in KERNELS.items()}


def test_a_pair_has_one_block_of_rows_and_the_least_sum() -> None:
    screened = [(one, KERNELS[one.name]) for one in CONFIGS]
    first, *others = found = list(pairs.best("sglang_moe", screened))
    assert len(found) == 4
    assert part_config(first.options(), UP) == A.options() and part_config(first.options(), DOWN) == B.options()
    assert all(one.options()["BLOCK_SIZE_M"] in (16, 32) for one in others)
    assert list(pairs.best("sglang_moe", [*screened, (first, (10.0, 15.0))])) == found
    assert list(pairs.best("sglang_moe", [(A, (1.0,)), (B, ())])) == []


def tuned(made: Session, gpu: StandInGpu, configs: Any = CONFIGS) -> Tuning:
    layer: Any = LAYER
    run = Tuning(made, [state_of(layer, configs)], (gpu,))
    run.run()
    return run


def test_the_best_pair_wins_the_finals_and_is_finished_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (best, *_) = pairs.best("sglang_moe", [(one, KERNELS[one.name]) for one in CONFIGS])
    gpu = StandInGpu(us={**ALONE, best.name: 26.0}, kernels=KERNELS, drift=0.03, jitter=0.001)
    layer: Any = LAYER
    made = session(tmp_path, layer, search="full", compile_stage=False)
    run = tuned(made, gpu)
    choice = made.results.choices[LAYER]
    assert choice.config == best and choice.median_us == pytest.approx(26.0, rel=0.04)
    run.states[0].assert_complete()
    idle = StandInGpu()
    again = restarted(made)
    run = tuned(again, idle)
    assert again.results.choices[LAYER].config == best
    assert idle.plans == []
    run.states[0].assert_complete()


@pytest.mark.parametrize(("stage", "of_stage"), [(FINALS, 0), (SCREEN, 1)])
def test_a_killed_search_goes_on_without_the_pairs(
    stage: str, of_stage: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in its finals it asks for nothing more, and in its second round for the rest of that: pairs that a
    restart makes of the screening before it are no candidates of the search."""
    monkeypatch.chdir(tmp_path)
    tiles = product((16, 32, 64), (32, 64, 128), (64,), (1, 16, 32), (4,), (2, 3, 4))
    configs: Any = [PlainConfig("sglang_moe", (*entry(*tile).items(), ("USE_TMA", 0))) for tile in tiles]
    dice = random.Random(0)
    kernels = {one.name: (dice.uniform(20, 40), dice.uniform(20, 40)) for one in configs}
    us = {name: sum(of_kernels) for name, of_kernels in kernels.items()}
    layer: Any = LAYER

    whole = StandInGpu(us=us, kernels=kernels)
    (kept,) = (one.kept for one in tuned(session(tmp_path, layer, compile_stage=False), whole, configs).states)
    best = next(one for one in kept.values() if "down_" in one.name)
    us[best.name] = 26.0

    def dies(plan: Plan) -> None:
        if plan.stage == stage and [one.stage for one in killed.plans].count(stage) > of_stage:
            raise OSError("killed")

    killed = StandInGpu(us=us, kernels=kernels, before=dies)
    made = session(tmp_path, layer, compile_stage=False)
    with pytest.raises(OSError, match="killed"):
        tuned(made, killed, configs)
    done = screened(killed.plans if stage == FINALS else killed.plans[:-1])
    second, again = StandInGpu(us=us, kernels=kernels), restarted(made)
    run = tuned(again, second, configs)
    assert done and done + screened(second.plans) == screened(whole.plans)
    assert again.results.choices[LAYER].config == best
    run.states[0].assert_complete()


def screened(plans: Sequence[Plan]) -> list[str]:
    return [name for plan in plans if plan.stage == SCREEN for work in plan.work for _, name in work.entries]


def test_a_server_with_one_file_gets_no_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    layer: Any = MoeProblem("vllm", 64, 64, 128, 256, 4, kernel_sha=KERNEL.sha, kernel=KERNEL)
    configs: Any = tuple(PlainConfig("vllm_moe", one.values) for one in CONFIGS)
    made = session(tmp_path, layer, search="full", compile_stage=False)
    kernels = {one.name: us for one, us in zip(configs, KERNELS.values(), strict=True)}
    state = state_of(layer, configs)
    Tuning(made, [state], (StandInGpu(us={n: sum(us) for n, us in kernels.items()}, kernels=kernels),)).run()
    assert len(state.kept) == len(configs) + 1  # and the default
