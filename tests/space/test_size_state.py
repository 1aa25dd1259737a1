"""The account of a size: everything is somewhere, exactly once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from rule_cases import thin_space
from samples import device, problem
from tuning import open_ledger

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import CompileResult, Status, Timing
from gemm_tuner.pipeline import prepare
from gemm_tuner.space import space
from gemm_tuner.space.prune import Pruned
from gemm_tuner.space.size_state import COLUMNS, SizeState

SIZE = problem(17, 5120, 5120)


@pytest.fixture
def state() -> SizeState:
    return open_ledger(thin_space("sm_90"), SIZE, device("sm_90"))


def finished(state: SizeState) -> list[str]:
    """Every kept configuration gets a status; returns their names."""
    names = list(state.kept)
    statuses = [status for status in Status if status != Status.PRUNED]
    for index, name in enumerate(names):
        state.record(name, statuses[index % len(statuses)])
    return names


def test_opens_with_what_the_rules_kept(state: SizeState) -> None:
    assert 0 < len(state.kept) < len(state.configs)
    assert all(name == config.name for name, config in state.kept.items())
    assert set(state.predicted_us) == set(state.kept)
    assert min(state.predicted_us.values()) > 0


def test_the_statuses_add_up_to_the_space(state: SizeState) -> None:
    names = finished(state)
    state.assert_complete()
    counts = state.counts()
    assert sum(counts.values()) == len(state.configs)
    assert counts["pruned"] == len(state.configs) - len(names)
    assert set(counts) == {status.value for status in Status}
    state.cut(names[:3], "not_in_best_16_predicted")
    state.assert_complete()
    assert state.counts()["pruned"] == len(state.configs) - len(names) + 3


def test_an_unaccounted_configuration_is_a_bug(state: SizeState) -> None:
    names = finished(state)
    del state.rows[names[0]]
    with pytest.raises(AssertionError, match=SIZE.key):
        state.assert_complete()
    state.record_compile(names[0], CompileResult(names[0], "", Status.OK))
    with pytest.raises(AssertionError):  # compiled is not ended
        state.assert_complete()
    state.record(names[0], Status.TIMEOUT)
    state.assert_complete()


def test_what_is_recorded_is_in_the_table(state: SizeState) -> None:
    timed, failed, crashed, cut, *_ = list(state.kept)
    finished(state)
    compiled = CompileResult(timed, "s", Status.OK, 1.23456, registers=90, shared_bytes=4096)
    state.record_compile(timed, compiled)
    state.record_timing(Timing(SIZE, timed, Status.OK, (3.0, 1.0, 2.00049)), "screen")
    state.record_compile(failed, CompileResult(failed, "s", Status.COMPILE_ERROR, message="no, not, this"))
    state.record_timing(Timing(SIZE, crashed, Status.CRASHED, message="signal SIGSEGV"), "screen")
    state.cut([cut], "beam")
    table = state.table().set_index("name")
    row = table.loc[timed]
    assert (row.status, row.screen_us, row.screen_min_us, row.screen_samples) == ("ok", 2.0, 1.0, 3)
    assert (row.registers, row.spills, row.shared_bytes, row.compile_s) == (90, 0, 4096, 1.2346)
    assert table.loc[failed, ["status", "message"]].tolist() == ["compile_error", "no, not, this"]
    assert table.loc[crashed, ["status", "message"]].tolist() == ["crashed", "signal SIGSEGV"]
    assert pd.isna(table.loc[crashed, "screen_us"])
    assert table.loc[cut, ["status", "rule"]].tolist() == ["pruned", "beam"]


def test_a_later_record_overrides_an_earlier_one(state: SizeState) -> None:
    name = next(iter(state.kept))
    state.record_timing(Timing(SIZE, name, Status.OK, (3.0,)), "screen")
    state.record(name, Status.WRONG, "at 17 x 17 x 17")
    row = state.table().set_index("name").loc[name]
    assert (row.status, row.message, row.screen_us) == ("wrong", "at 17 x 17 x 17", 3.0)


def test_the_table_has_every_kept_configuration_once(state: SizeState) -> None:
    finished(state)
    table = state.table()
    assert table["name"].tolist() == list(state.kept)
    fields = table.set_index("name")[["BLOCK_SIZE_M", "num_warps"]]
    for name, config in state.kept.items():
        assert fields.loc[name].tolist() == [config.BLOCK_SIZE_M, config.num_warps]
    assert not table["status"].isna().any()
    counted = {status: count for status, count in state.counts().items() if status != "pruned"}
    assert table["status"].value_counts().to_dict() == counted


def test_an_untouched_ledger_has_a_table_too(state: SizeState) -> None:
    table = state.table()
    assert len(table) == len(state.kept)
    assert table["status"].isna().all()


def test_the_file_reads_back(state: SizeState, tmp_path: Path) -> None:
    finished(state)
    path = state.write(tmp_path)
    assert path.name == f"{SIZE.key}.csv.gz"
    assert list(tmp_path.iterdir()) == [path]
    read, table = pd.read_csv(path), state.table()
    assert read.columns.tolist() == ["name", *state.configs.columns, *COLUMNS]
    for column in ("name", "BLOCK_SIZE_M", "status", "rule"):
        assert read[column].fillna("").tolist() == table[column].fillna("").tolist()
    assert (read["predicted_us"].fillna(0) == table["predicted_us"].fillna(0)).all()


def test_a_given_configuration_needs_no_place_in_the_space(tmp_path: Path) -> None:
    config = next(iter(open_ledger(thin_space("sm_90"), SIZE, device("sm_90")).kept.values()))
    given = prepare.given_state(SIZE, config, device("sm_90"))
    assert isinstance(given.pruned, Pruned)
    given.record(config.name, Status.OK)
    given.assert_complete()
    assert pd.read_csv(given.write(tmp_path))["name"].tolist() == [config.name]


def test_without_heuristics_there_is_more_to_account_for(state: SizeState) -> None:
    everything = thin_space("sm_90", heuristics=False)
    assert set(open_ledger(everything, SIZE, device("sm_90")).kept) > set(state.kept)


def test_a_configuration_from_elsewhere_is_admitted_once(state: SizeState) -> None:
    """And the space stays one, which the sizes of a run share."""
    kept, total, shared = len(state.kept), state.total, state.configs
    cut_row = next(row for row in range(total) if row not in set(state.pruned.kept.tolist()))
    (cut,) = space.configs_of(state.configs.iloc[[cut_row]])
    foreign = replace(cut, num_stages=97)
    for config in (cut, foreign, cut, foreign):
        state.add(config, 1.5)
    assert (len(state.kept), state.total) == (kept + 2, total + 1)
    assert state.configs is shared and len(shared) == total
    candidates = state.candidates()
    assert candidates.loc[foreign.name, ["num_stages", "predicted_us"]].tolist() == [97, 1.5]
    assert space.configs_of(candidates) == list(state.kept.values())
    finished(state)
    state.assert_complete()


def test_the_names_of_candidates_are_texts_of_python(state: SizeState) -> None:
    """A search reads each many times; of the strings of pandas 3 with pyarrow each would be made anew."""
    with pd.option_context("future.infer_string", True):
        assert state.candidates().index.dtype == object


def test_what_a_search_led_to_is_no_candidate_of_it(state: SizeState) -> None:
    """Nor are the axes that it alone has."""
    before, name = state.candidates(), next(iter(state.kept))
    made = PlainConfig.from_dict({**state.kept[name].to_dict(), "down_BLOCK_SIZE_N": 64})
    state.extend(pd.DataFrame([made.to_dict()]), [made], [0.0], searched=False)
    pd.testing.assert_frame_equal(state.candidates(), before)
    assert made.name in state.kept and state.may_run(made.name)


def test_an_axis_of_the_space_stays_where_no_kept_configuration_has_it(state: SizeState) -> None:
    configs = state.configs.assign(CLUSTERS=2.0)
    configs.loc[state.pruned.kept, "CLUSTERS"] = float("nan")
    again = SizeState(SIZE, configs, state.pruned, dict(state.kept), dict(state.predicted_us))
    before, made = again.candidates(), replace(next(iter(state.kept.values())), num_stages=97)
    again.extend(pd.DataFrame([made.to_dict()]), [made], [0.0], searched=False)
    assert "CLUSTERS" in before and list(again.candidates()) == list(before)


def test_what_a_search_learns_from(state: SizeState) -> None:
    fast, slow, loser, same, dead, untouched, *_ = list(state.kept)
    state.record_timing(Timing(SIZE, slow, Status.OK, (9.0, 8.0, 7.0)), "screen")
    state.record_timing(Timing(SIZE, fast, Status.OK, (2.0,)), "screen")
    state.record_timing(Timing(SIZE, loser, Status.EARLY_STOPPED, (1.0,)), "screen")
    state.copy_timing(fast, same)
    state.record_timing(Timing(SIZE, dead, Status.CRASHED), "screen")
    state.copy_timing(untouched, untouched)  # of one that has not ended there is nothing to copy
    assert state.screened_us() == {slow: 8.0, fast: 2.0, loser: 1.0, same: 2.0}
    assert state.failed() == {dead} and state.best_screened_us() == 2.0
    assert state.fastest(9) == [fast, slow] and state.fastest(1) == [fast]
    assert [state.may_run(name) for name in (fast, loser, dead, untouched)] == [True, True, False, True]
    assert not state.ended(untouched)


def test_crashes_are_attributed_to_one_that_was_at_many(state: SizeState) -> None:
    often, once, timed, *_ = list(state.kept)
    state.record_timing(Timing(SIZE, timed, Status.OK, (1.0,)), "screen")
    state.record_crashes({often: 2, once: 1, timed: 5, "of another space": 9}, 2)
    assert state.failed() == {often} and not state.ended(once)
    assert not state.may_run(timed)  # in finals or a check: it has a time, and kills the run


def test_a_configuration_outside_the_ranking_can_be_chosen(state: SizeState) -> None:
    """As an older configuration that the traces of the processes that choose lack, and those that publish have."""
    slower, wrong, chosen = list(state.kept)[:3]
    for name, us in ((slower, 9.0), (wrong, 7.0), (chosen, 8.0)):
        state.record_finals(name, us, [us])
    state.record(wrong, Status.WRONG, "off by 3")
    assert state.passed_over([wrong, slower], chosen) == {wrong: "wrong: off by 3"}
    assert state.passed_over([wrong, slower], slower) == {wrong: "wrong: off by 3"}
    assert state.passed_over([wrong, slower], wrong) == {}


def test_a_reason_that_most_failures_share_is_said_once(state: SizeState) -> None:
    """Triton's messages quote source lines above what they say; numbers differ from one configuration to the next."""
    assert state.most_common_reason() == ""
    for number, name in enumerate(state.kept):
        state.record(
            name, Status.COMPILE_ERROR, f"CompilationError: at {number}:5:\n  tl.arange(0, 3)\n  ^\nno power of 2"
        )
    first, second, *_ = state.kept
    state.record(first, Status.COMPILE_TIMEOUT, "took more than 60 s")
    state.record(second, Status.OK, "compiled")
    count = len(state.kept)
    assert state.most_common_reason() == f"{count - 2} of {count} say: CompilationError: no power of 2"
