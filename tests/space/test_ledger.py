"""The account of a size: everything is somewhere, exactly once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from samples import RULES, TEMPLATES, device, problem, shipped
from tuning import open_ledger

from gemm_tuner.core.records import CompileResult, Status, Timing
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.settings import Settings
from gemm_tuner.space import space
from gemm_tuner.space.ledger import COLUMNS, Ledger
from gemm_tuner.space.prune import Pruned

SIZE = problem(17, 5120, 5120)


@pytest.fixture
def ledger() -> Ledger:
    return open_ledger(shipped("sm_90"), SIZE, device("sm_90"))


def settled(ledger: Ledger) -> list[str]:
    """Every kept configuration gets a status; returns their names."""
    names = list(ledger.kept)
    statuses = [status for status in Status if status != Status.PRUNED]
    for index, name in enumerate(names):
        ledger.record(name, statuses[index % len(statuses)])
    return names


def test_opens_with_what_the_rules_kept(ledger: Ledger) -> None:
    assert 0 < len(ledger.kept) < len(ledger.configs)
    assert all(name == config.name for name, config in ledger.kept.items())
    assert set(ledger.predicted_us) == set(ledger.kept)
    assert min(ledger.predicted_us.values()) > 0


def test_the_statuses_add_up_to_the_space(ledger: Ledger) -> None:
    names = settled(ledger)
    ledger.assert_complete()
    counts = ledger.counts()
    assert sum(counts.values()) == len(ledger.configs)
    assert counts["pruned"] == len(ledger.configs) - len(names)
    assert set(counts) == {status.value for status in Status}
    ledger.cut(names[:3], "not_in_best_48_predicted")
    ledger.assert_complete()
    assert ledger.counts()["pruned"] == len(ledger.configs) - len(names) + 3


def test_an_unaccounted_configuration_is_a_bug(ledger: Ledger) -> None:
    names = settled(ledger)
    del ledger.rows[names[0]]
    with pytest.raises(AssertionError, match=SIZE.key):
        ledger.assert_complete()
    ledger.record_compile(names[0], CompileResult(names[0], "", Status.OK))
    with pytest.raises(AssertionError):  # compiled is not ended
        ledger.assert_complete()
    ledger.record(names[0], Status.TIMEOUT)
    ledger.assert_complete()


def test_what_is_recorded_is_in_the_table(ledger: Ledger) -> None:
    timed, failed, crashed, cut, *_ = list(ledger.kept)
    settled(ledger)
    compiled = CompileResult(timed, "s", Status.OK, 1.23456, registers=90, shared_bytes=4096)
    ledger.record_compile(timed, compiled)
    ledger.record_timing(Timing(SIZE, timed, Status.OK, (3.0, 1.0, 2.00049)), "screen")
    ledger.record_compile(failed, CompileResult(failed, "s", Status.COMPILE_ERROR, message="no, not, this"))
    ledger.record_timing(Timing(SIZE, crashed, Status.CRASHED, message="signal SIGSEGV"), "screen")
    ledger.cut([cut], "beam")
    table = ledger.table().set_index("name")
    row = table.loc[timed]
    assert (row.status, row.screen_us, row.screen_min_us, row.screen_samples) == ("ok", 2.0, 1.0, 3)
    assert (row.registers, row.spills, row.shared_bytes, row.compile_s) == (90, 0, 4096, 1.2346)
    assert table.loc[failed, ["status", "message"]].tolist() == ["compile_error", "no, not, this"]
    assert table.loc[crashed, ["status", "message"]].tolist() == ["crashed", "signal SIGSEGV"]
    assert pd.isna(table.loc[crashed, "screen_us"])
    assert table.loc[cut, ["status", "rule"]].tolist() == ["pruned", "beam"]


def test_a_later_record_overrides_an_earlier_one(ledger: Ledger) -> None:
    name = next(iter(ledger.kept))
    ledger.record_timing(Timing(SIZE, name, Status.OK, (3.0,)), "screen")
    ledger.record(name, Status.WRONG, "at 17 x 17 x 17")
    row = ledger.table().set_index("name").loc[name]
    assert (row.status, row.message, row.screen_us) == ("wrong", "at 17 x 17 x 17", 3.0)


def test_the_table_has_every_kept_configuration_once(ledger: Ledger) -> None:
    settled(ledger)
    table = ledger.table()
    assert table["name"].tolist() == list(ledger.kept)
    fields = table.set_index("name")[["BLOCK_SIZE_M", "num_warps"]]
    for name, config in ledger.kept.items():
        assert fields.loc[name].tolist() == [config.BLOCK_SIZE_M, config.num_warps]
    assert not table["status"].isna().any()
    counted = {status: count for status, count in ledger.counts().items() if status != "pruned"}
    assert table["status"].value_counts().to_dict() == counted


def test_an_untouched_ledger_has_a_table_too(ledger: Ledger) -> None:
    table = ledger.table()
    assert len(table) == len(ledger.kept)
    assert table["status"].isna().all()


def test_the_file_reads_back(ledger: Ledger, tmp_path: Path) -> None:
    settled(ledger)
    path = ledger.write(tmp_path)
    assert path.name == f"{SIZE.key}.csv.gz"
    assert list(tmp_path.iterdir()) == [path]
    read, table = pd.read_csv(path), ledger.table()
    assert read.columns.tolist() == ["name", *ledger.configs.columns, *COLUMNS]
    for column in ("name", "BLOCK_SIZE_M", "status", "rule"):
        assert read[column].fillna("").tolist() == table[column].fillna("").tolist()
    assert (read["predicted_us"].fillna(0) == table["predicted_us"].fillna(0)).all()


def test_a_given_configuration_needs_no_place_in_the_space(tmp_path: Path) -> None:
    config = next(iter(open_ledger(shipped("sm_90"), SIZE, device("sm_90")).kept.values()))
    given = prepare.given_ledger(SIZE, config, device("sm_90"))
    assert isinstance(given.pruned, Pruned)
    given.record(config.name, Status.OK)
    given.assert_complete()
    assert pd.read_csv(given.write(tmp_path))["name"].tolist() == [config.name]


def test_without_heuristics_there_is_more_to_account_for(ledger: Ledger) -> None:
    asked = Settings((), TEMPLATES, RULES, Path(), heuristics=False)
    everything = prepare.load_space(asked, device("sm_90"))
    assert set(open_ledger(everything, SIZE, device("sm_90")).kept) > set(ledger.kept)


def test_a_configuration_from_elsewhere_is_admitted_once(ledger: Ledger) -> None:
    kept, total = len(ledger.kept), len(ledger.configs)
    cut_row = next(row for row in range(total) if row not in set(ledger.pruned.kept.tolist()))
    (cut,) = space.configs_of(ledger.configs.iloc[[cut_row]])
    foreign = replace(cut, num_stages=97)
    for config in (cut, foreign, cut, foreign):
        ledger.admit(config, 1.5)
    assert (len(ledger.kept), len(ledger.configs)) == (kept + 2, total + 1)
    candidates = ledger.candidates()
    assert candidates.loc[foreign.name, ["num_stages", "predicted_us"]].tolist() == [97, 1.5]
    assert space.configs_of(candidates) == list(ledger.kept.values())
    settled(ledger)
    ledger.assert_complete()


def test_what_a_search_learns_from(ledger: Ledger) -> None:
    fast, slow, loser, twin, dead, untouched, *_ = list(ledger.kept)
    ledger.record_timing(Timing(SIZE, slow, Status.OK, (9.0, 8.0, 7.0)), "screen")
    ledger.record_timing(Timing(SIZE, fast, Status.OK, (2.0,)), "screen")
    ledger.record_timing(Timing(SIZE, loser, Status.EARLY_STOPPED, (1.0,)), "screen")
    ledger.copy_timing(fast, twin)
    ledger.record_timing(Timing(SIZE, dead, Status.CRASHED), "screen")
    ledger.copy_timing(untouched, untouched)  # of one that has not ended there is nothing to copy
    assert ledger.screened_us() == {slow: 8.0, fast: 2.0, loser: 1.0, twin: 2.0}
    assert ledger.failed() == {dead} and ledger.best_screened_us() == 2.0
    assert ledger.fastest(9) == [fast, slow] and ledger.fastest(1) == [fast]
    assert [ledger.may_run(name) for name in (fast, loser, dead, untouched)] == [True, True, False, True]
    assert not ledger.ended(untouched)


def test_one_is_blamed_for_deaths_that_it_was_at_often(ledger: Ledger) -> None:
    often, once, timed, *_ = list(ledger.kept)
    ledger.record_timing(Timing(SIZE, timed, Status.OK, (1.0,)), "screen")
    ledger.blame({often: 2, once: 1, timed: 5, "of another space": 9}, 2)
    assert ledger.failed() == {often} and not ledger.ended(once)
    assert not ledger.may_run(timed)  # in finals or a check: it has a time, and kills the run
