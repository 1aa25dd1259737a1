"""Searches over landscapes: figures worked out by hand, and the bounds that the guided search keeps on an H200."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from samples import config, device, problem
from test_benchmarks import load

from gemm_tuner.search import make_search

replay = load("search_replay")
H200 = device("sm_90")


def landscape(times: dict[int, float]) -> object:
    """One size whose configurations differ in GROUP_SIZE_M, with these times, us."""
    configs = [config(GROUP_SIZE_M=group) for group in times]
    names = [one.name for one in configs]
    table = pd.DataFrame([one.to_dict() for one in configs], index=names).assign(predicted_us=10.0)
    return replay.Landscape(problem(512, 512, 512), table, pd.Series(list(times.values()), index=names))


def test_regret_is_how_much_slower_the_best_asked_for_is_than_the_best_of_all() -> None:
    quick = make_search("quick")
    found = replay.replay(quick, [landscape({1: 5.0, 2: np.nan, 4: 4.0, 8: 3.2})], H200, seed=0, budget=0.8)
    assert [(one.asked, one.of, one.rounds) for one in found] == [(3, 4, 1)]
    assert found[0].regret_pct == pytest.approx(25.0)


def test_shaken_predictions_differ_from_seed_to_seed_and_times_do_not() -> None:
    one = landscape({1: 5.0, 2: 6.0, 4: 4.0, 8: 3.2})
    (first,), (second,), (again,) = (replay.shaken([one], 1.0, seed) for seed in (0, 1, 0))
    of_first, of_second = (shaken.candidates["predicted_us"].to_numpy() for shaken in (first, second))
    assert (of_first != of_second).all() and (of_first == again.candidates["predicted_us"].to_numpy()).all()
    assert 0 < np.abs(of_first / 10.0 - 1).max() < 0.05 and first.time_us.equals(one.time_us)  # type: ignore[attr-defined]


def test_the_summary_counts_each_size_once_and_shares_by_configuration() -> None:
    replays = [replay.Outcome("a", 0, 0.0, 10, 100, 2), replay.Outcome("b", 0, 3.0, 10, 900, 3)]
    figures = replay.summary(replays)
    assert figures["regret_mean_pct"] == 1.5 and figures["regret_worst_pct"] == 3.0
    assert figures["timed_share_pct"] == pytest.approx(2.0)
    assert figures["timed_share_mean_pct"] == pytest.approx((10 + 10 / 9) / 2)
    assert figures["rounds"] == 3


@pytest.mark.parametrize(
    ("of", "count", "classes"),
    [
        ("landscapes/[68]*_bf16_nn.csv.gz", 4, 1),
        ("landscapes_cute/2*_bf16_nn.csv.gz", 3, 1),
        pytest.param("landscapes/*", 40, 2, marks=pytest.mark.grid),
    ],
)
def test_the_guided_search_keeps_its_bounds_on_the_h200_landscapes(
    tmp_path: Path, of: str, count: int, classes: int
) -> None:
    """Of four sizes of one class of problems; of all with ``make test-all``."""
    for path in replay.LANDSCAPES.parent.glob(of):
        shutil.copy(path, tmp_path)
    landscapes = replay.load(tmp_path, H200)
    runs = replay.runs(landscapes, alone=False)
    assert (len(landscapes), len(runs)) == (count, classes)
    for sizes in runs:
        replays = replay.replay(make_search("guided", jobs=2), sizes, H200, seed=0, budget=1.0)
        figures = replay.summary(replays)
        assert figures["regret_mean_pct"] <= 1.5
        assert figures["regret_worst_pct"] <= 4.0
        assert figures["timed_share_pct"] <= 8.0
        assert figures["rounds"] <= 3


def test_the_model_ranks_kernels_for_unaligned_rows_as_h200s_do() -> None:
    """Of kernels that load such rows through pointers, pack them, or read them in place."""
    ranks = []
    for one in replay.load(replay.LANDSCAPES.with_name("landscapes_unaligned"), H200):
        predicted = one.candidates["predicted_us"]
        ranks.append(predicted.rank().corr(one.time_us.rank()))
    assert len(ranks) == 60 and np.mean(ranks) > 0.65


def test_the_command_prints_a_document_and_a_table_that_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("512x512x512_bf16_nn.csv.gz", "8192x8192x128_bf16_nt.csv.gz"):
        shutil.copy(replay.LANDSCAPES / name, tmp_path)
    words = ["search_replay.py", "--search", "random", "--budget", "0.1", "--landscapes", str(tmp_path)]
    said = []
    for more in ((), ("--json",)):
        monkeypatch.setattr(sys, "argv", [*words, *more])
        assert replay.main() == 0
        said.append(capsys.readouterr().out)
    document = json.loads(said[1])
    assert [(one["size"], one["asked"], one["of"]) for one in document["sizes"]] == [
        ("512x512x512_bf16_nn", 13, 138),
        ("8192x8192x128_bf16_nt", 44, 448),
    ]
    assert f"{document['summary']['regret_worst_pct']:.2f}" in said[0].splitlines()[-1]
