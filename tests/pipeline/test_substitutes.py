"""Winners in an optional language on a stand-in GPU: their rows carry the best right configuration in Triton."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import config, problem
from tuning import StandInGpu, restarted, session, state_of

from gemm_tuner.core.choice import Substitute
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.tune import Tuning
from gemm_tuner.store import results

SIZE = problem(512, 512, 512)
WINNERS = [KernelConfig("gemm_cute", 128, n, 64, 8, 1, 0, 0) for n in (144, 160, 176, 208, 112, 80)]
FAST = KernelConfig("gemm_persistent", 128, 128, 64, 8, 1, 8, 3)
SLOW = config(num_stages=4)
TIMES = {**{one.name: 50.0 + at for at, one in enumerate(WINNERS)}, FAST.name: 70.0, SLOW.name: 80.0}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tuned(folder: Path, gpu: StandInGpu, *configs: KernelConfig, run: Session | None = None, **how: Any) -> Session:
    run = run or session(folder, SIZE, search="full", compile_stage=False, finalists=2, **how)
    Tuning(run, [state_of(SIZE, configs or (*WINNERS, FAST, SLOW))], (gpu,)).run()
    return run


def test_a_row_carries_the_best_in_triton_however_slow(tmp_path: Path) -> None:
    done = tuned(tmp_path, StandInGpu(us=TIMES))
    choice = done.results.choices[SIZE]
    assert choice.config == WINNERS[0] and choice.median_us == pytest.approx(50.0)
    assert choice.substitute == Substitute(FAST, 70.0, Verified.TRUE)
    (row,) = results.read(done.results.path).rows
    assert row.substitute == choice.substitute


def test_a_wrong_one_gives_way_to_the_next(tmp_path: Path) -> None:
    choice = tuned(tmp_path, StandInGpu(us=TIMES, wrong={FAST.name})).results.choices[SIZE]
    assert choice.substitute == Substitute(SLOW, 80.0, Verified.TRUE)


def test_a_winner_in_triton_carries_none(tmp_path: Path) -> None:
    choice = tuned(tmp_path, StandInGpu(us={**TIMES, FAST.name: 40.0})).results.choices[SIZE]
    assert choice.config == FAST and choice.substitute is None


def test_without_one_that_is_right_there_is_none(tmp_path: Path) -> None:
    choice = tuned(tmp_path, StandInGpu(us=TIMES, wrong={FAST.name, SLOW.name})).results.choices[SIZE]
    assert choice.config == WINNERS[0] and choice.substitute is None


def test_it_survives_a_second_start(tmp_path: Path) -> None:
    first = tuned(tmp_path, StandInGpu(us=TIMES))
    again = tuned(tmp_path, StandInGpu(us={}), run=restarted(first))
    assert again.results.choices[SIZE].substitute == Substitute(FAST, 70.0, Verified.TRUE)


def test_one_that_a_later_run_finds_wrong_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "tuned.yaml"
    tuned(tmp_path / "first", StandInGpu(us=TIMES), results_file=out)
    (row,) = results.read(out).rows
    assert row.substitute is not None
    other = {**TIMES, **{one.name: 90.0 for one in WINNERS}}
    wrong = {FAST.name, SLOW.name, *(one.name for one in WINNERS)}
    tuned(tmp_path / "second", StandInGpu(us=other, wrong=wrong), results_file=out)
    (row,) = results.read(out).rows
    assert row.facts["found_wrong"] and row.substitute is None


@pytest.mark.parametrize(
    ("value", "said"), [(7, "not a mapping"), ({}, "no config"), ({**SLOW.options()}, "median_us"), ({"x": 1}, "x")]
)
def test_a_substitute_that_is_none_is_refused(value: object, said: str) -> None:
    from gemm_tuner.gemm.problem_keys import Defaults
    from gemm_tuner.store.size_rows import parse_row

    with pytest.raises(UserError, match=said):
        parse_row({"M": 8, "N": 8, "K": 8, "substitute": value}, "a file", Defaults())


def test_rows_that_differ_in_it_alone_are_read_apart(tmp_path: Path) -> None:
    """The configuration of a substitute of another family, with the fields of that family."""
    from gemm_tuner.gemm.workload import WORKLOAD
    from gemm_tuner.store.substitutes import substitute_of, substitute_row

    for one in (Substitute(FAST, 7.125, Verified.TRUE), Substitute(replace(SLOW, SPLIT_K=4), 9.0, Verified.AGREED)):
        assert substitute_of(substitute_row(one), "a row", WORKLOAD.entries) == one
    assert substitute_row(None) == {} and substitute_of({}, "a row", WORKLOAD.entries) is None
