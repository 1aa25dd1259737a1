"""The searches: what they ask, that they go on after a kill as they would have, and that they ask nothing twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.ensemble
from samples import FAMILIES, config, device, problem, shipped

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.workload import workload_of
from gemm_tuner.core.workload_defaults import WorkloadDefaults
from gemm_tuner.gemm import model
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.workload import WORKLOAD
from gemm_tuner.search import SEARCHES, Search, SizeView, guided, make_search
from gemm_tuner.search.compile_work import CompileWork
from gemm_tuner.search.genetic import Genetic
from gemm_tuner.search.guided import MORE_FIRST, Guided
from gemm_tuner.search.nearness import diverse_sample, neighbours
from gemm_tuner.search.remembered import Remembered, content
from gemm_tuner.space import prune
from gemm_tuner.system.installation import IMPORT_ROOT

H200 = device("sm_90")
PROBLEMS = (problem(512, 512, 512), problem(16, 4096, 4096), problem(4096, 4096, 128))


def view(of: GemmProblem, count: int = 300) -> SizeView:
    """Every few of the kept configurations of the shipped space, nothing timed; the same ones with the extra ``cute``
    and without."""
    space = shipped("sm_90", families=tuple(sorted(FAMILIES)))
    kept = prune.apply(space.columns, of, H200, space.rules).kept
    some = kept[:: max(1, len(kept) // count)]
    rows = space.configs.iloc[some]
    table = rows.assign(predicted_us=model.predict_us(prune.columns_of(rows), of, H200))
    table.index = pd.Index(space.names_of(some))
    return SizeView(of, table, {}, frozenset())


@cache
def views() -> tuple[SizeView, ...]:
    return tuple(view(one) for one in PROBLEMS)


def made_up_us(size: SizeView, name: str) -> float | None:
    """A time of which the model knows nothing; none for 256-wide tiles."""
    row = size.candidates.loc[name]
    if row.BLOCK_SIZE_N == 256:
        return None
    return float(10 + 3 * abs(np.log2(row.BLOCK_SIZE_K) - 7) + 2 * row.num_stages + abs(np.log2(row.GROUP_SIZE_M) - 1))


def told(size: SizeView, names: Sequence[str]) -> SizeView:
    """The view once these names have been timed."""
    times = {name: made_up_us(size, name) for name in names}
    failed = size.failed | {name for name, us in times.items() if us is None}
    return replace(
        size, timed_us={**size.timed_us, **{n: us for n, us in times.items() if us is not None}}, failed=failed
    )


def rounds(search: Search, sizes: Sequence[SizeView] | None = None) -> list[dict[GemmProblem, list[str]]]:
    """All rounds of a run, with what each asked. sizes: ``views()`` by default."""
    asked, sizes = [], views() if sizes is None else sizes
    while wanted := search.propose(sizes, H200):
        asked.append(wanted)
        sizes = [told(size, wanted.get(size.problem, [])) for size in sizes]
        assert len(asked) < 50
    return asked


def all_asked(asked: Sequence[dict[GemmProblem, list[str]]], of: GemmProblem) -> list[str]:
    return [name for wanted in asked for name in wanted.get(of, [])]


@cache
def whole_run(name: str) -> list[dict[GemmProblem, list[str]]]:
    return rounds(make_search(name, round_size=200))


def test_a_share_is_of_no_more_candidates_than_the_kind_of_problem_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other kinds ask for a share of all that they have."""
    size = views()[1]
    few = replace(size, candidates=size.candidates.head(200))
    monkeypatch.setattr(WORKLOAD, "most_searched", 200.0)
    search = Guided(first_share=0.2, least=1)
    (of_all,), (of_few,) = (search.propose([one], H200).values() for one in (size, few))
    assert len(of_all) == len(of_few) == 40 and len(size.candidates) > 250
    monkeypatch.setattr(WORKLOAD, "most_searched", WorkloadDefaults.most_searched)
    (of_others,) = Guided(first_share=0.2, least=1).propose([size], H200).values()
    assert len(of_others) == int(0.2 * len(size.candidates)) and workload_of("moe").most_searched > 10**6


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_asks_candidates_and_nothing_twice(name: str) -> None:
    asked = whole_run(name)
    for size in views():
        names = all_asked(asked, size.problem)
        assert names and len(names) == len(set(names))
        assert set(names) <= set(size.candidates.index)
    assert all(names for wanted in asked for names in wanted.values())


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.grid)], ids=["some", "every"])
@pytest.mark.parametrize("name", SEARCHES)
def test_a_run_that_was_killed_within_a_round_goes_on_with_what_it_would_have_asked(name: str, every: bool) -> None:
    """In a round in the middle, of some searches in the first or the last; in every round with ``make test-all``."""
    whole = whole_run(name)
    some = {"genetic": 0, "quick": 0, "full": -1}.get(name, len(whole) // 2)
    for killed_in in range(len(whole)) if every else [some % len(whole)]:
        sizes = list(views())
        for wanted in whole[:killed_in]:
            sizes = [told(size, wanted.get(size.problem, [])) for size in sizes]
        sizes = [told(size, whole[killed_in].get(size.problem, [])[::2]) for size in sizes]
        again = rounds(make_search(name, round_size=200), sizes)
        if name != "full":  # whose rounds are shares of what is left
            rest = {p: names[1::2] for p, names in whole[killed_in].items() if names[1::2]}
            assert again[0] == rest if rest else True
        for size in sizes:
            known = {*size.timed_us, *size.failed}
            assert known | set(all_asked(again, size.problem)) == set(all_asked(whole, size.problem))


def test_full_asks_everything_best_first_in_rounds_of_a_bounded_number() -> None:
    asked = whole_run("full")
    assert len(asked) == -(-sum(len(size.candidates) for size in views()) // 200)
    for wanted in asked:
        assert sum(map(len, wanted.values())) <= 200 + len(views())
    for size in views():
        assert all_asked(asked, size.problem) == size.by_prediction()


def test_quick_asks_the_sixteen_predicted_best_once() -> None:
    assert rounds(make_search("quick")) == [{size.problem: size.by_prediction()[:16] for size in views()}]


def best_of(size: SizeView, names: Sequence[str]) -> float:
    return min(us for name in names if (us := made_up_us(size, name)) is not None)


def test_genetic_breeds_what_neither_the_model_nor_the_lot_finds() -> None:
    """Against as many that are half predicted best and half drawn by lot, as its first generation is."""
    bred, drawn = [], []
    for seed in range(3):
        asked = rounds(Genetic(seed, least=6))
        assert len(asked) == 6
        for size in views():
            names = all_asked(asked, size.problem)
            first = Genetic(seed, least=len(names)).propose([size], H200)[size.problem]
            bred.append(best_of(size, names))
            drawn.append(best_of(size, first))
    assert np.prod(bred) < np.prod(drawn)


def test_guided_learns_in_three_rounds_at_most_what_the_model_does_not_know() -> None:
    asked = rounds(make_search("guided"))
    assert 2 <= len(asked) <= 3
    gains = []
    for size in views():
        names = all_asked(asked, size.problem)
        gains.append(best_of(size, size.by_prediction()[: len(names)]) / best_of(size, names))
    assert min(gains) >= 1 and max(gains) > 1.05


def test_failures_teach_the_learned_rounds_to_keep_away() -> None:
    first, *later = rounds(make_search("guided"))

    def failed_share(asked: Sequence[dict[GemmProblem, list[str]]]) -> float:
        pairs = [(size, name) for size in views() for name in all_asked(asked, size.problem)]
        return float(np.mean([made_up_us(size, name) is None for size, name in pairs]))

    assert failed_share([first]) > 0
    assert failed_share(later) < failed_share([first]) / 2


def test_guided_asks_on_by_prediction_where_nothing_of_a_size_has_a_time() -> None:
    size, other = views()[:2]
    first = Guided().propose([size, other], H200)
    timed, failed = told(other, first[other.problem]), frozenset(first[size.problem])
    for _ in range(MORE_FIRST):
        then = Guided().propose([replace(size, failed=failed), timed], H200)
        assert then == {size.problem: [n for n in size.by_prediction() if n not in failed][: len(failed)]}
        failed |= set(then[size.problem])
    name = then[size.problem][-1]
    found = replace(size, failed=failed - {name}, timed_us={name: 9.0})
    assert set(Guided().propose([found, timed], H200)) == {size.problem, other.problem}


def test_guided_ends_where_no_size_has_a_time() -> None:
    size, failed = views()[0], frozenset[str]()
    for _ in range(1 + MORE_FIRST):
        failed |= set(Guided().propose([replace(size, failed=failed)], H200)[size.problem])
    assert Guided().propose([replace(size, failed=failed)], H200) == {}


def test_guided_does_not_polish_where_nothing_is_to_be_gained() -> None:
    assert len(rounds(Guided(min_gain=1.0))) == 2


def test_guided_fits_what_it_knows_once_and_asks_as_one_that_remembers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[int] = []

    class Counted(sklearn.ensemble.ExtraTreesRegressor):
        def fit(self, rows: Any, targets: Any) -> Any:
            fits.append(len(rows))
            return super().fit(rows, targets)

    features: list[int] = []
    made = guided.features_of
    monkeypatch.setattr(guided, "features_of", lambda *of: features.append(1) or made(*of))  # type: ignore[func-returns-value]
    polishing = partial(Guided, min_gain=0.0)  # so that there are three rounds
    search, sizes, counts = polishing(), views(), []
    while True:
        with monkeypatch.context() as counting:
            counting.setattr(sklearn.ensemble, "ExtraTreesRegressor", Counted)
            wanted = search.propose(sizes, H200)
            likely = search.likely_next(sizes, H200, wanted, 50)
        counts.append((len(fits), len(features)))
        assert wanted == polishing().propose(sizes, H200)
        assert likely == polishing().likely_next(sizes, H200, wanted, 50)
        features.clear()
        if not wanted:
            break
        sizes = tuple(told(size, wanted.get(size.problem, [])) for size in sizes)
    assert counts == [(0, 0), (1, 1), (1, 0), (1, 0)]


def test_guided_polishes_by_what_the_learned_round_was_chosen_by() -> None:
    """Whatever that round has found of neighbours, as long as the same ones lead."""
    search, sizes = Guided(min_gain=0.0), views()
    for _ in range(2):
        wanted = search.propose(sizes, H200)
        sizes = tuple(told(size, wanted.get(size.problem, [])) for size in sizes)
    leaders = {size.problem: sorted(size.timed_us, key=lambda n: (size.timed_us[n], n))[:3] for size in sizes}
    others = [
        replace(
            size,
            timed_us={
                name: us * (1 if name in leaders[size.problem] or name not in wanted.get(size.problem, []) else 5)
                for name, us in size.timed_us.items()
            },
        )
        for size in sizes
    ]
    assert search.propose(sizes, H200) == search.propose(others, H200) != {}


@pytest.mark.parametrize(("name", "is_there"), [("guided", "True"), ("quick", "False")])
def test_what_a_search_needs_later_is_loaded_ahead(name: str, is_there: str) -> None:
    code = f"import sys; from gemm_tuner import search; search.load({name!r}); print('sklearn.ensemble' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=IMPORT_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == is_there


def test_what_is_remembered_is_of_the_same_views_only() -> None:
    asked: list[str] = []
    remembered: Remembered[str] = Remembered(2)

    def answer(key: str) -> str:
        return remembered.of(key, lambda: asked.append(key) or key)  # type: ignore[func-returns-value]

    assert [answer(key) for key in ("a", "b", "a", "c", "a", "b")] == ["a", "b", "a", "c", "a", "b"]
    assert asked == ["a", "b", "c", "b"]
    size = views()[0]
    name = size.candidates.index[0]
    others = (
        replace(size, timed_us={name: 2.0}),
        replace(size, timed_us={name: 3.0}),
        replace(size, failed=frozenset([name])),
        replace(size, candidates=size.candidates.iloc[1:]),
        replace(size, candidates=size.candidates.assign(predicted_us=size.candidates["predicted_us"] * 2)),
        replace(size, problem=PROBLEMS[1]),
    )
    assert len({content([one]) for one in (size, *others, replace(size, candidates=size.candidates.copy()))}) == 7


def test_the_number_of_threads_changes_nothing() -> None:
    some = views()[:1]
    assert rounds(make_search("guided", jobs=1), some) == rounds(make_search("guided", jobs=3), some)


@pytest.mark.parametrize("name", SEARCHES)
def test_what_is_likely_next_is_neither_known_nor_running(name: str) -> None:
    search = make_search(name, round_size=200)
    first = search.propose(views(), H200)
    then = [told(size, first.get(size.problem, [])) for size in views()]
    second = search.propose(then, H200)
    beside = {of: [*names, "searched_apart"] for of, names in second.items()}  # as a server's, which is no candidate
    for sizes, running in ((views(), first), (then, second), (then, beside)):
        for of, names in search.likely_next(sizes, H200, running, 10).items():
            size = next(one for one in sizes if one.problem == of)
            assert len(names) > 0 and (name == "full" or len(names) <= 10)  # what is certain needs no bound
            assert not [n for n in names if size.knows(n) or n in running.get(of, [])]


def test_the_full_search_knows_exactly_what_is_next() -> None:
    search = make_search("full", round_size=200)
    first, second = rounds(search)[:2]
    likely = search.likely_next(views(), H200, first, 1000)
    assert likely == second


def test_neighbours_differ_in_one_axis_by_one_step_or_any_of_the_launch() -> None:
    configs = {
        "leader": config(),
        "one step": config(BLOCK_SIZE_M=64),
        "two steps": config(BLOCK_SIZE_M=32),
        "two axes": config(BLOCK_SIZE_M=64, num_warps=8),
        "far group": config(GROUP_SIZE_M=16),
        "near group": config(GROUP_SIZE_M=2),
        "other family": replace(config(), family="gemm_persistent"),
    }
    table = pd.DataFrame([one.to_dict() for one in configs.values()], index=list(configs))
    near = table.index[neighbours(table, ["leader"], WORKLOAD.search_axes)]
    assert list(near) == ["one step", "far group", "near group"]
    assert list(table.index[neighbours(table, ["leader"], {})]) == ["one step", "near group"]


def test_configurations_without_an_axis_of_numbers_are_no_neighbours() -> None:
    """Such as those of a user's kernel whose parameters are lists."""
    table = pd.DataFrame({"family": "mine", "TILE": [(1, 1), (2, 1)], "predicted_us": 1.0}, index=["one", "two"])
    assert not neighbours(table, ["one"], {}).any()


def test_the_first_choice_is_predicted_fast_and_not_all_alike() -> None:
    size = views()[2]
    free = CompileWork(H200.target, 0.0).prices(size)
    alike, varied = (diverse_sample(size.candidates, 20, cost, WORKLOAD.search_axes, *free) for cost in (0.0, 2.0))
    assert alike == size.by_prediction()[:20]
    assert alike[0] == varied[0]
    tiles = [
        size.candidates.loc[names, ["BLOCK_SIZE_M", "BLOCK_SIZE_N", "num_warps"]].drop_duplicates()
        for names in (alike, varied)
    ]
    assert len(tiles[1]) > len(tiles[0])


def test_a_search_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(UserError, match="guided, full, quick, genetic"):
        make_search("best")
