"""This package's own kernel in the finals of a server's: named with its time in the row, which is the server's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from screens import Screen
from tuning import SM_90, StandInGpu, restarted, session, state_of

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.kernels.taken import TakenKernel
from gemm_tuner.launch.plan import FINALS, SCREEN
from gemm_tuner.moe.own import OWN
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import entry
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.pipeline import prepare, show
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.tune import Tuning
from gemm_tuner.store import results

KERNEL = TakenKernel("kernel.py", "fused_moe_kernel", "", "def fused_moe_kernel(NAME): pass", (), (), "0" * 12)
LAYER = MoeProblem("vllm", 64, 64, 128, 256, 4, kernel_sha=KERNEL.sha, kernel=KERNEL, beside=True)
ALONE = replace(LAYER, server="own", kernel=None, kernel_sha="", beside=False)
THEIRS = tuple(PlainConfig("vllm_moe", tuple(entry(16, 32, 64, 1, 4, stages).items())) for stages in (2, 3, 4))
OURS = tuple(
    PlainConfig(
        "own_moe", tuple({**entry(16, 32, 64, 1, 4, stages), "PROGRAMS_PER_SM": 0, "SWAP_AB": 0, "W_BY_TMA": 0}.items())
    )
    for stages in (2, 3, 4, 5)
)
TIMES = dict(zip((one.name for one in (*THEIRS, *OURS)), (50.0, 60.0, 70.0, 40.0, 30.0, 55.0, 90.0), strict=True))


CUTE = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "CLUSTER_M": 1, "PINGPONG": 0}
FUSED, PLAIN = (
    tuple(PlainConfig("cute_moe", tuple({**CUTE, "CLUSTER_M": c, "FUSED_ACTIVATION": fused}.items())) for c in (1, 2))
    for fused in (1, 0)
)
TIMES |= dict(zip((one.name for one in (*FUSED, *PLAIN)), (25.0, 20.0, 35.0, 45.0), strict=True))


def tuned(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    layer: MoeProblem = LAYER,
    of: Session | None = None,
    more: Sequence[PlainConfig] = (),
    **how: Any,
) -> tuple[Session, StandInGpu]:
    monkeypatch.chdir(folder)
    given: Any = layer
    configs: Any = (*(THEIRS if layer.server == "vllm" else ()), *OURS, *more)
    made, gpu = of or session(folder, given, search="full", compile_stage=False), StandInGpu(us=TIMES, **how)
    Tuning(made, [state_of(given, configs)], (gpu,)).run()
    return made, gpu


def test_the_row_is_the_servers_and_names_ours_with_both_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, gpu = tuned(tmp_path, monkeypatch)
    choice = done.results.choices[LAYER]
    assert (choice.config, choice.median_us) == (THEIRS[0], pytest.approx(50.0))
    assert dict(choice.derived) == {"own_kernel": OURS[1].name, "own_kernel_us": pytest.approx(30.0)}
    assert choice.runner_up == THEIRS[1].name and not choice.overruled
    timed = {name for plan in gpu.plans if plan.stage == FINALS for work in plan.work for _, name in work.entries}
    assert {THEIRS[0].name, OURS[0].name, OURS[1].name} <= timed
    row = results.choice_row(choice)
    assert row["derived"]["own_kernel"] == OURS[1].name and row["family"] == "vllm_moe"


def test_the_terminal_says_what_the_servers_kernel_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = tuned(tmp_path, monkeypatch)
    choice = done.results.choices[LAYER]
    screen = Screen(200)
    show.results(screen.console, "Results", [LAYER], {LAYER: choice}, {})
    (line,) = (line for line in screen.lines if f"{choice.median_us / 30:.3f}" in line)
    assert "30.00" in line
    without = Screen(200)
    show.results(without.console, "Results", [LAYER], {LAYER: replace(choice, derived=())}, {})
    assert set(screen.lines) - set(without.lines) == {line}


def test_a_wrong_kernel_of_ours_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = tuned(tmp_path, monkeypatch, wrong=frozenset({OURS[1].name}))
    assert dict(done.results.choices[LAYER].derived)["own_kernel"] == OURS[0].name


def test_a_finished_size_is_read_again_with_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = tuned(tmp_path, monkeypatch)
    again, gpu = tuned(tmp_path, monkeypatch, of=restarted(done))
    assert again.results.choices[LAYER].derived == done.results.choices[LAYER].derived and not gpu.plans


def test_alone_ours_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, gpu = tuned(tmp_path, monkeypatch, ALONE)
    choice = done.results.choices[ALONE]
    assert choice.config == OURS[1] and not choice.derived
    assert {work.problem for plan in gpu.plans for work in plan.work} == {ALONE}


@pytest.mark.parametrize("layer", [ALONE, LAYER], ids=["alone", "beside a server's"])
def test_gemms_that_do_more_work_are_a_sort_of_their_own(
    layer: MoeProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are timed and checked, and neither win nor are compared, however fast."""
    done, _ = tuned(tmp_path, monkeypatch, layer, more=(*FUSED, *PLAIN), wrong=frozenset({FUSED[1].name}))
    choice, ours = done.results.choices[layer], {"own_kernel": OURS[1].name, "own_kernel_us": pytest.approx(30.0)}
    assert choice.config == (OURS[1] if layer is ALONE else THEIRS[0])
    fused = {"fused_kernel": FUSED[0].name, "fused_kernel_us": pytest.approx(25.0)}
    assert dict(choice.derived) == (fused if layer is ALONE else {**ours, **fused})
    assert choice.runner_up not in {one.name for one in FUSED} and not choice.overruled
    screen = Screen(200)
    show.results(screen.console, "Results", [layer], {layer: choice}, {})
    assert not [line for line in screen.lines if "25.00" in line]


def test_both_kernels_are_searched_each_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the whole space, whose families have different axes."""
    monkeypatch.chdir(tmp_path)
    given: Any = LAYER
    made, gpu = session(tmp_path, given, search="guided", compile_stage=False), StandInGpu()
    candidates = prepare.load_space(made.options, SM_90)
    state = prepare.state_of(candidates, LAYER, SM_90, prepare.cut_space(candidates, LAYER, SM_90))
    Tuning(made, [state], (gpu,)).run()
    asked = [name for plan in gpu.plans if plan.stage == SCREEN for work in plan.work for _, name in work.entries]
    families = [state.kept[name].family for name in asked]
    assert min(families.count("vllm_moe"), families.count(OWN.family)) >= 32
    fused = {name for name in state.kept if "FUSED_ACTIVATION1" in name}  # none without CuTe DSL
    assert len(fused.intersection(asked)) >= min(16, len(fused))
    assert {one.family for one in state.own.values()} == {"vllm_moe"}
    for config in WORKLOAD.configs_of(candidates.configs):
        assert ("SWAP_AB" in config.options()) == (config.family == OWN.family)
        assert all(type(value) is int for value in config.options().values())
    assert made.results.choices[LAYER].config.family == "vllm_moe"
