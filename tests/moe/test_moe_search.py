"""The search of MoE layers whose sizes have candidates with different axes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from samples import device

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Config, Problem, Status, Timing
from gemm_tuner.launch.plan import SCREEN
from gemm_tuner.moe import features, launchers, tuned_file
from gemm_tuner.moe.launch import OF_DOWN
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import entry
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.baseline_configs import BaselineConfigs
from gemm_tuner.pipeline.prepare import Space
from gemm_tuner.pipeline.rounds import view_of
from gemm_tuner.search import make_search
from gemm_tuner.space import prune
from gemm_tuner.space.size_state import SizeState

H200 = device("sm_90")
LAYER = MoeProblem("sglang", 64, 128, 768, 2048, 8)
INT8 = replace(LAYER, server="vllm", dtype="int8_w8a16", scaling="group", block_shape=(0, 128))
ENTRY = entry(64, 128, 64, 1, 4, 4)
OURS = PlainConfig("own_moe", (*ENTRY.items(), ("PROGRAMS_PER_SM", 0), ("SWAP_AB", 0), ("W_BY_TMA", 0)))


def states_of(layers: Sequence[MoeProblem], older: Mapping[Problem, Config]) -> list[SizeState]:
    """As a run makes them: what the rules keep, the default and what the user gave."""
    own = WORKLOAD.own_space(layers, H200)
    frame = WORKLOAD.frame({family: dict(axes) for family, axes in own.families.items() if family != "cute_moe"})
    space = Space(frame, prune.columns_of(frame), prepare.rules_of(own), "moe")
    states = [prepare.state_of(space, one, H200, prepare.cut_space(space, one, H200)) for one in layers]
    BaselineConfigs.of(older, 0.0, states, H200).add(states, H200)
    return states


def rounds_of(states: Sequence[SizeState], most: int) -> list[list[str]]:
    """What a guided search asks in its first rounds, where every kernel takes the time that is predicted."""
    search, asked = make_search("guided"), []
    while len(asked) < most and (found := search.propose([view_of(one) for one in states], H200)):
        for state in states:
            for name in found.get(state.problem, ()):
                us = state.predicted_us[name]
                state.record_timing(Timing(state.problem, name, Status.OK, (us,), kernels_us=(us / 2, us / 2)), SCREEN)
        asked.append([name for names in found.values() for name in names])
    return asked


def axes(state: SizeState) -> set[str]:
    return {axis for config in state.kept.values() for axis in config.to_dict()}


def test_a_default_may_have_a_tile_for_each_gemm_at_one_size_only() -> None:
    states = states_of([INT8.at(1), INT8], {})
    assert axes(states[0]) - axes(states[1]) == {"down_BLOCK_SIZE_N", "down_BLOCK_SIZE_K"}
    assert len(rounds_of(states, 2)) == 2


def test_a_servers_file_may_load_by_tma_at_one_size_only(tmp_path: Path) -> None:
    path, layers = tmp_path / "current.json", [LAYER, LAYER.at(1024)]
    path.write_text(json.dumps({"64": ENTRY, "1024": {**ENTRY, "USE_TMA": True}}))
    states = states_of(layers, {one: tuned_file.config_at(path, one, "sm_90") for one in layers})
    assert axes(states[1]) - axes(states[0]) == {"down_USE_TMA"}
    assert len(rounds_of(states, 2)) == 2


def test_an_older_winner_may_be_a_pair_at_one_size_only() -> None:
    layers = [replace(LAYER, server="own"), replace(LAYER, server="own", M=128)]
    pair = replace(OURS, values=(*OURS.values, ("down_BLOCK_SIZE_N", 64)))
    states = states_of(layers, {layers[0]: pair, layers[1]: OURS})
    assert axes(states[0]) - axes(states[1]) == {"down_BLOCK_SIZE_N"}
    assert len(rounds_of(states, 2)) == 2


@pytest.mark.parametrize("backend", ["cuda", "hip"])
def test_every_axis_of_every_kernel_is_a_feature(backend: str) -> None:
    for launcher in launchers.LAUNCHERS.values():
        known = launcher.axes(replace(LAYER, server=launcher.name), backend)
        assert {*known, *(OF_DOWN + axis for axis in known)} <= {*features.COLUMNS}
