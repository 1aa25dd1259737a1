"""The space of the kernels in CuTe DSL beside others: what rules cut, what can win, and how a search sees it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from samples import device

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.moe import launch, model, pairs, routing
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.pipeline import prepare
from gemm_tuner.search import make_search
from gemm_tuner.search.view import SizeView
from gemm_tuner.space import prune

LAYER = MoeProblem("own", 4096, 128, 768, 2048, 8)
H200 = device("sm_90")
OF_TILES = {
    "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "CLUSTER_M": 1, "PINGPONG": 0,
}  # fmt: skip
FIELDS = {**OF_TILES, "FUSED_ACTIVATION": 0}


def config(**changes: int) -> PlainConfig:
    return PlainConfig("cute_moe", tuple({**FIELDS, **changes}.items()))


def space_of(problem: MoeProblem) -> Any:
    """The whole space, with the predicted time and the rule that cuts a configuration."""
    own = WORKLOAD.own_space([problem], H200)
    frame = WORKLOAD.frame({family: dict(axes) for family, axes in own.families.items()})
    columns = prune.columns_of(frame)
    pruned = prune.apply(columns, problem, H200, prepare.rules_of(own))
    return frame.assign(rule=pruned.rejected_by, predicted_us=WORKLOAD.predict_us(columns, problem, H200))


def of_cute(problem: MoeProblem, **fields: int) -> Any:
    frame = space_of(problem)
    frame = frame[frame.family == "cute_moe"]
    for name, value in fields.items():
        frame = frame[frame[name] == value]
    return frame


@pytest.mark.parametrize(
    ("rule", "problem", "fields"),
    [
        ("tile_of_the_class", LAYER, {"BLOCK_SIZE_M": 256, "PINGPONG": 1}),
        ("tile_of_the_class", LAYER, {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 224, "PINGPONG": 1}),
        ("sums_fit_the_registers", LAYER, {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256}),
        ("epilogue_has_the_activation", replace(LAYER, activation="silu_no_mul"), {"FUSED_ACTIVATION": 1}),
        ("epilogue_has_the_activation", replace(LAYER, activation="swiglustep"), {"FUSED_ACTIVATION": 1}),
        ("epilogue_has_the_activation", replace(LAYER, bias=True), {"FUSED_ACTIVATION": 1}),
        ("tile_of_a_fused_activation", LAYER, {"BLOCK_SIZE_M": 192, "PINGPONG": 0, "FUSED_ACTIVATION": 1}),
        ("rows_of_whole_16_bytes", replace(LAYER, K=2044), {}),
        ("rows_of_whole_16_bytes", replace(LAYER, N=12), {"BLOCK_SIZE_N": 64}),
        ("orders_alike_along_n", replace(LAYER, N=48, K=96), {"BLOCK_SIZE_N": 96, "GROUP_SIZE_M": 8}),
        ("pads_too_much", LAYER.at(64), {"BLOCK_SIZE_M": 128}),
        ("groups_of_one", LAYER.at(64), {"GROUP_SIZE_M": 8}),
    ],
)
def test_a_rule_cuts_all_of_its_kind(rule: str, problem: MoeProblem, fields: dict[str, int]) -> None:
    found = of_cute(problem, **fields)
    assert len(found) and (found.rule != "").all() and rule in set(found.rule)


@pytest.mark.parametrize(
    "problem",
    [
        LAYER,
        replace(LAYER, activation="gelu", dtype="fp16", out="fp16"),
        replace(LAYER, activation="swigluoai", bias=True),
    ],
    ids=["silu", "gelu", "pairs, bias"],
)
def test_an_activation_is_fused_wherever_a_tile_can(problem: MoeProblem) -> None:
    kept = of_cute(problem)
    kept = kept[kept.rule == ""]
    without = kept[(kept.FUSED_ACTIVATION == 0) & ((kept.BLOCK_SIZE_M != 192) | (kept.PINGPONG == 1))]
    fused = kept[kept.FUSED_ACTIVATION == 1]
    assert len(fused) > 200 and (fused[[*OF_TILES]].to_numpy() == without[[*OF_TILES]].to_numpy()).all()


def test_a_fused_activation_is_predicted_to_write_half_of_the_first_result() -> None:
    """Which is a third of all that is moved where K is small."""
    problem = replace(LAYER, M=16384, E=2, topk=2, N=8192, K=64)
    frame = of_cute(problem)
    us = {fused: frame[fused == frame.FUSED_ACTIVATION].set_index([*OF_TILES]).predicted_us for fused in (0, 1)}
    assert (us[1] <= us[0]).all() and (us[1] < 0.8 * us[0]).any()
    none = config().to_dict()
    del none["FUSED_ACTIVATION"]  # of a file from before there was this axis
    assert prepare.predicted_us(problem, PlainConfig.from_dict(none), H200) == us[0][tuple(OF_TILES.values())]


def test_each_axis_is_left_something() -> None:
    kept = of_cute(LAYER)
    kept = kept[kept.rule == ""]
    assert not [name for name in FIELDS if name != "BLOCK_SIZE_K" and kept[name].nunique() < 2]
    few = of_cute(LAYER.at(1))
    few = few[few.rule == ""]
    assert set(few.BLOCK_SIZE_M) == {64} and few.PINGPONG.nunique() == 2 and few.BLOCK_SIZE_N.nunique() > 4


def test_ours_in_both_languages_may_win_where_no_server_is_given() -> None:
    triton, theirs = PlainConfig("own_moe", ()), PlainConfig("vllm_moe", ())
    beside = replace(LAYER, server="vllm", beside=True)
    assert [WORKLOAD.can_win(LAYER, one) for one in (config(), triton)] == [True, True]
    assert [WORKLOAD.can_win(beside, one) for one in (config(), triton, theirs)] == [False, False, True]
    fused = config(FUSED_ACTIVATION=1)
    for problem in (LAYER, beside):
        assert not WORKLOAD.can_win(problem, fused)
        assert WORKLOAD.rival_key(problem, fused) != WORKLOAD.rival_key(problem, config())
    assert list(WORKLOAD.own_space([beside], H200).families) == ["vllm_moe", "own_moe", "cute_moe"]
    assert list(WORKLOAD.own_space([replace(beside, beside=False)], H200).families) == ["vllm_moe"]
    languages = {name: WORKLOAD.language_for(name) for name in ("own_moe", "vllm_moe", "cute_moe")}
    assert languages == {"own_moe": "triton", "vllm_moe": "triton", "cute_moe": "cute"}
    assert WORKLOAD.other_languages(("own_moe",)) == () and WORKLOAD.other_languages(()) == ("cute",)


def test_a_search_tells_families_apart_that_lack_each_others_axes() -> None:
    """Its first round has both, and the later ones go on from what is faster; with features that are numbers."""
    frame = space_of(LAYER)
    kept = frame[(frame.rule == "") & (frame.FUSED_ACTIVATION != 1)].drop(columns="rule")  # searched apart
    kept = pd.concat([kept[kept.family == family].nsmallest(150, "predicted_us") for family in ("own_moe", "cute_moe")])
    kept.index = pd.Index(WORKLOAD.names(kept.drop(columns="predicted_us")))
    for faster, slower in (("own_moe", "cute_moe"), ("cute_moe", "own_moe")):
        size, rounds = SizeView(LAYER, kept, {}, frozenset()), []
        search = make_search("guided")
        while wanted := search.propose([size], H200).get(LAYER):
            rounds.append(kept.loc[wanted].family.value_counts())
            factor = np.where(kept.loc[wanted].family == faster, 0.5, 2.0)
            times = dict(zip(wanted, kept.loc[wanted].predicted_us * factor, strict=True))
            assert not times.keys() & size.timed_us.keys()
            size = replace(size, timed_us={**size.timed_us, **times})
        assert len(rounds[0]) == 2 and len(rounds) > 1
        assert all(one.get(faster, 0) > one.get(slower, 0) for one in rounds[1:])
    features = WORKLOAD.features(kept, LAYER, H200, ("cute_moe", "own_moe"))
    assert np.isfinite(features).all() and len(np.unique(features, axis=0)) == len(kept)
    assert set(features[kept.family == "own_moe", -1]) == {1.0} and set(features[kept.family == "cute_moe", -1]) == {
        0.0
    }


def test_each_gemm_may_have_blocks_of_its_own_since_no_row_is_padding() -> None:
    ours = [config(), config(BLOCK_SIZE_M=128, PINGPONG=1)]
    screened = list(zip(ours, ((1.0, 9.0), (9.0, 1.0)), strict=True))
    pair = next(iter(pairs.best("cute_moe", screened, is_padded=False)))
    parts = [launch.part_config(pair.to_dict(), part) for part in launch.PARTS]
    assert [{name: part[name] for name in FIELDS} for part in parts] == [dict(one.values) for one in ours]
    assert not list(pairs.best("cute_moe", screened))
    assert WORKLOAD.recombined(LAYER, screened)[0] == pair


def test_a_pair_is_of_two_that_do_the_same_work() -> None:
    ours = [config(CLUSTER_M=cluster, FUSED_ACTIVATION=fused) for cluster in (1, 2) for fused in (0, 1)]
    screened = list(zip(ours, ((2.0, 9.0), (9.0, 1.0), (9.0, 2.0), (1.0, 9.0)), strict=True))
    found = [one.options() for one in WORKLOAD.recombined(LAYER, screened)]
    best = [(one["FUSED_ACTIVATION"], one["CLUSTER_M"], one["down_CLUSTER_M"]) for one in found]
    assert best == [(0, 1, 2), (0, 2, 1), (1, 2, 1), (1, 1, 2)]
    assert not [name for one in found for name in one if name == "down_FUSED_ACTIVATION"]


def test_the_model_counts_blocks_of_each_expert() -> None:
    """All rows at one expert make fewer blocks than the same rows spread thinly; and wide clusters pad thin ones."""
    problem = replace(LAYER, M=128, topk=1, E=128, seeds=1)
    counts = routing.counts(model.first_ids(problem), problem.E)
    assert 20 < np.count_nonzero(counts) < 128
    spread = of_cute(problem, FUSED_ACTIVATION=0).set_index(list(OF_TILES)).predicted_us
    for block in (64, 256):
        one, two = (spread[(block, 128, 64, 1, cluster, 0)] for cluster in (1, 2))
        assert one < two
    few = of_cute(replace(problem, E=1), FUSED_ACTIVATION=0).set_index(list(OF_TILES)).predicted_us
    assert (few < spread).all()
