"""Few configs for many sizes: the cover is the least, what serves was timed, ranges have no gap."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from run_samples import HEADER, TILES, choice, named, size, write_results, write_run, write_table
from samples import load_sizes, problem
from screens import Screen

from gemm_tuner.cli.commands.compact import closing, show_table
from gemm_tuner.cli.main import main
from gemm_tuner.core.choice import ServedChoice
from gemm_tuner.core.errors import EXIT_INPUT, EXIT_OK, UserError
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.export.gemm.compact import cover, plan, tuned
from gemm_tuner.export.gemm.compact.cover import EXACT, GREEDY
from gemm_tuner.export.gemm.compact.plan import LEARNED, POW2, assign, group_sizes, ranges_of
from gemm_tuner.export.gemm.compact.tuned import TunedRun, TunedSize
from gemm_tuner.export.gemm.run_timings import TimedConfig, read_timings
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.store import results
from gemm_tuner.store.results_file import ResultsFile

P, Q, R = problem(16, 64, 64), problem(64, 64, 64), problem(256, 64, 64)
OK = Status.OK


def timed_size(shape: GemmProblem, chosen: str, **times: float) -> TunedSize:
    """A size with finals' times by letter."""
    timed = {named(letter): TimedConfig(TILES[letter], us, None, 30) for letter, us in times.items()}
    return TunedSize(shape, named(chosen), timed, 1.0)


def letters(names: tuple[str, ...] | list[str]) -> str:
    return "".join(next(letter for letter in TILES if named(letter) == name) for name in names)


def least_by_force(sets: dict[str, frozenset[int]]) -> int:
    items = frozenset().union(*sets.values())
    for count in range(1, len(sets) + 1):
        for some in itertools.combinations(sets.values(), count):
            if frozenset().union(*some) == items:
                return count
    raise AssertionError


def random_sets(seed: int) -> dict[str, frozenset[int]]:
    generator = random.Random(seed)
    return {f"s{i}": frozenset(generator.sample(range(10), generator.randint(1, 5))) for i in range(9)}


@pytest.mark.parametrize("seed", range(40))
def test_the_cover_is_the_least_there_is(seed: int) -> None:
    sets = random_sets(seed)
    cost = dict.fromkeys(sets, 0.0)
    found = cover.smallest(sets, cost)
    assert found.method == EXACT
    assert frozenset().union(*(sets[name] for name in found.names)) == frozenset().union(*sets.values())
    assert len(found.names) == least_by_force(sets)


def test_what_is_too_large_for_the_solver_is_covered_greedily_and_said_to_be() -> None:
    """Greedy takes the set of 4 first, needs both others after it, and then finds it needless."""
    sets = {"big": frozenset((1, 2, 4, 5)), "left": frozenset((1, 2, 3)), "right": frozenset((4, 5, 6))}
    cost = dict.fromkeys(sets, 0.0)
    assert cover.smallest(sets, cost).names == ("left", "right")
    greedy = cover.smallest(sets, cost, max_cells=0)
    assert greedy.names == ("left", "right") and greedy.method == GREEDY
    for seed in range(20):
        sets = random_sets(seed)
        found = cover.smallest(sets, dict.fromkeys(sets, 0.0), max_cells=0)
        assert frozenset().union(*(sets[name] for name in found.names)) == frozenset().union(*sets.values())
        assert found.method == GREEDY and len(found.names) >= least_by_force(sets)


def test_of_sets_that_hold_the_same_the_cheapest_stands_for_all() -> None:
    sets = {"a": frozenset((1, 2)), "b": frozenset((1, 2)), "c": frozenset((1,)), "d": frozenset((3,))}
    cost = {"a": 0.02, "b": 0.01, "c": 0.0, "d": 0.0}
    assert list(cover.undominated(sets, cost)) == ["b", "d"]
    assert cover.smallest(sets, cost).names == ("b", "d")


def test_a_config_serves_only_sizes_that_it_was_timed_for_within_the_loss() -> None:
    sizes = (
        timed_size(P, "a", a=100, b=101.9, c=150),
        timed_size(Q, "b", b=100, a=102.1),
        timed_size(R, "c", c=100, a=100.1),  # b was never timed here
    )
    sets, _ = plan.serving_sets(sizes, 0.02)
    assert {letters([name]): places for name, places in sets.items()} == {
        "a": frozenset((0, 2)), "b": frozenset((0, 1)), "c": frozenset((2,))}  # fmt: skip


def run_of(*sizes: TunedSize) -> tuned.TunedRun:
    return tuned.TunedRun({"source": "measured"}, sizes, (), Path())


def test_a_run_needs_fewer_configs_the_more_loss_is_allowed() -> None:
    run = run_of(
        timed_size(P, "a", a=100, d=104), timed_size(Q, "b", b=100, d=104), timed_size(R, "c", c=100, d=109, a=101)
    )
    counts = {loss: len(plan.compact(run, loss, POW2).names) for loss in (0.0, 0.01, 0.02, 0.05, 0.1)}
    assert counts == {0.0: 3, 0.01: 2, 0.02: 2, 0.05: 2, 0.1: 1}
    few = plan.compact(run, 0.1, POW2)
    assert letters(few.names) == "d" and few.configs_before == 3 and few.method == EXACT
    assert [round(serving.loss, 3) for serving in few.servings] == [0.04, 0.04, 0.09]


def test_times_of_two_stages_are_not_compared() -> None:
    """The finals ran at lower clocks: b's screening is to be read beside a's screening."""
    a, b = TimedConfig(TILES["a"], 110.0, 100.0, 30), TimedConfig(TILES["b"], None, 105.0, 5)
    found = TunedSize(P, named("a"), {named("a"): a, named("b"): b}, None)
    assert found.loss(named("b")) == pytest.approx(0.05)
    assert TimedConfig(TILES["b"], 105.0, 90.0, 30).slower_than(a) == pytest.approx(105 / 110 - 1)


def at(m: int, chosen: str, **times: float) -> TunedSize:
    return timed_size(problem(m, 64, 64), chosen, **times)


def assign_by_force(group: list[TunedSize], names: list[str], loss: float) -> tuple[int, float]:
    """The least (changes, summed loss) of all ways to serve a group."""
    able = [[n for n in names if n in one.timed and one.loss(n) <= loss] for one in group]
    return min(
        (sum(x != y for x, y in itertools.pairwise(way)), sum(one.loss(n) for one, n in zip(group, way, strict=True)))
        for way in itertools.product(*able)
    )


def without(one: TunedSize, letter: str) -> TunedSize:
    return replace(one, timed={name: timed for name, timed in one.timed.items() if name != named(letter)})


@pytest.mark.parametrize("seed", range(30))
def test_configs_change_least_often_along_m_and_then_cost_least(seed: int) -> None:
    generator = random.Random(seed)
    group = [at(1 << i, "a", a=100, **{c: generator.randint(98, 104) for c in "bcd"}) for i in range(6)]
    group = [without(one, generator.choice("bcd")) for one in group]
    names = [named(letter) for letter in "bcda"]
    way = assign(group, names, 0.02)
    least = assign_by_force(group, names, 0.02)
    lost = sum(one.loss(name) for one, name in zip(group, way, strict=True))
    assert sum(x != y for x, y in itertools.pairwise(way)) == least[0]
    assert lost == pytest.approx(least[1], abs=1e-12)


def spans(group: list[TunedSize], boundaries: str, loss: float = 0.0) -> list[tuple[str, int, int | None]]:
    names = [named(letter) for letter in "ab"]
    return [(letters([one.name]), one.low, one.high) for one in ranges_of(group, names, loss, boundaries).ranges]


def test_ranges_end_at_powers_of_two_and_leave_no_gap() -> None:
    assert spans([at(10, "a", a=1.0), at(64, "b", b=1.0)], POW2) == [("a", 1, 16), ("b", 17, None)]
    assert spans([at(16, "a", a=1.0), at(64, "b", b=1.0)], POW2) == [("a", 1, 16), ("b", 17, None)]
    # No power of two parts 20 and 30.
    assert spans([at(20, "a", a=1.0), at(30, "b", b=1.0)], POW2) == [("a", 1, 20), ("b", 21, None)]
    assert spans([at(1, "a", a=1.0), at(2, "b", b=1.0), at(4, "a", a=1.0)], POW2) == [
        ("a", 1, 1), ("b", 2, 2), ("a", 3, None)]  # fmt: skip
    assert spans([at(5, "a", a=1.0), at(7, "a", a=1.0)], POW2) == [("a", 1, None)]


def test_learned_boundaries_lie_where_the_times_cross() -> None:
    # Symmetric about the geometric mean of 16 and 64.
    assert spans([at(16, "a", a=1.0, b=1.2), at(64, "b", a=1.2, b=1.0)], LEARNED) == [("a", 1, 32), ("b", 33, None)]
    # a loses little at 64 and b much at 16: a stays ahead for longer. ln 2 against ln 1.1 of log2(M) from 4 to 6.
    assert spans([at(16, "a", a=1.0, b=2.0), at(64, "b", a=1.1, b=1.0)], LEARNED)[0] == ("a", 1, 54)
    # Without the times of both at both: the geometric mean. Between neighbours there is but one place.
    assert spans([at(16, "a", a=1.0), at(64, "b", b=1.0)], LEARNED)[0] == ("a", 1, 32)
    assert spans([at(16, "a", a=1.0), at(17, "b", b=1.0)], LEARNED) == [("a", 1, 16), ("b", 17, None)]


def test_sizes_that_differ_in_more_than_m_are_groups_of_their_own() -> None:
    shapes = [P, Q, problem(16, 128, 64), problem(16, 64, 64, "fp16"), replace(R, bias=True), R]
    groups = group_sizes(timed_size(shape, "a", a=1.0) for shape in shapes)
    assert [[one.problem for one in group] for group in groups] == [[P, Q, R], *([shape] for shape in shapes[2:5])]


def run_folder(tmp_path: Path) -> Path:
    """Three sizes, and one that has no config; ``d`` serves all at 4 %, screened only for R."""
    sizes = [size(P, "a"), size(Q, "b"), size(R, "c"), size(problem(9, 9, 9))]
    folder = write_run(tmp_path / "run", sizes)
    write_table(folder, P, {"a": (OK, 99.0, 100.0), "d": (OK, 101.0, 104.0), "e": (Status.WRONG, 10.0, 10.0)})
    write_table(folder, Q, {"b": (OK, 99.0, 100.0), "d": (OK, 101.0, 103.0), "e": (Status.EARLY_STOPPED, 90.0, None)})
    write_table(folder, R, {"c": (OK, 99.0, 110.0), "d": (OK, 101.0, None), "f": (OK, None, None)})
    return folder


def test_only_what_ended_well_has_a_time(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    assert letters(list(read_timings(folder, P.key, named("a")))) == "ad"
    assert letters(list(read_timings(folder, R.key, named("c")))) == "cd"
    timed = read_timings(folder, R.key, named("c"))[named("d")]
    assert (timed.time_us, timed.stage, timed.samples) == (101.0, "screen", 5)
    with pytest.raises(UserError, match="of another run"):
        read_timings(folder, P.key, named("f"))


def test_the_written_file_is_a_results_file_of_the_served_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = run_folder(tmp_path), tmp_path / "compact.yaml"
    assert main(["compact", str(folder), "--loss", "5%", "-o", str(out)]) == EXIT_OK
    shown = capsys.readouterr()
    assert "1 configs serve 3 tuned sizes within 5 %, where there were 3 (no smaller set exists)" in shown.out
    assert "16, 64, 256" in shown.out and "worst 4.00 %" in shown.out
    assert f"tune_gemm.py --gemm_size_file {out} --benchmark" in shown.err
    back = results.read(out)
    assert [row.config for row in back.rows] == [TILES["d"]] * 3
    assert [row.problem for row in back.rows] == [P, Q, R]
    assert [row.verified for row in back.rows] == [Verified.FALSE] * 3
    assert [row.facts.get("median_us") for row in back.rows] == [104.0, 103.0, None]
    assert {row.facts["source"] for row in back.rows} == {"measured"} and not any("tie" in r.facts for r in back.rows)
    assert [reason for _, reason in back.without_config] == ["no configuration has a time"]
    assert back.header["device"] == HEADER.device and back.header["date"] != HEADER.date
    assert "# loss 4.00 % against " + named("a") in out.read_text()
    assert [entry.config for entry in load_sizes(out, Defaults()).entries] == [TILES["d"]] * 3


@pytest.mark.parametrize("width", [0, 60, 80])
def test_a_config_tuned_at_one_m_promises_nothing_of_others(width: int) -> None:
    alone = timed_size(problem(256, 512, 512), "a", a=100.0)
    sizes = (timed_size(P, "a", a=100.0), timed_size(Q, "a", a=104.0), alone)
    compacted = plan.compact(TunedRun({}, sizes, (), Path()), 0.02, POW2)
    screen = Screen(width)
    show_table(screen.console, compacted)
    assert not width or max(map(len, screen.lines)) <= width
    (line,) = (line for line in screen.lines if "N=512" in line)
    assert " 256 only " in line and "and more" not in line and " 1 " not in line
    (line,) = (line for line in screen.lines if "N=64" in line)
    assert " 16, 64 " in line
    told = closing(screen.console, compacted, 0.02)
    assert any("M = 256 only" in line for line in told) and any("1 of 2 pairs" in line for line in told)
    told = closing(screen.console, plan.compact(TunedRun({}, sizes[:2], (), Path()), 0.02, POW2), 0.02)
    assert not any("only" in line for line in told)


def test_the_sizes_own_configs_stay_verified(tmp_path: Path) -> None:
    out = tmp_path / "compact.yaml"
    assert main(["compact", str(run_folder(tmp_path)), "--loss", "0%", "-o", str(out)]) == EXIT_OK
    assert [row.verified for row in results.read(out).rows] == [Verified.TRUE] * 3


def test_a_row_keeps_how_it_was_checked_and_what_it_serves(tmp_path: Path) -> None:
    folder, out = run_folder(tmp_path), tmp_path / "compact.yaml"
    served = (ServedChoice("vllm", TILES["d"], 104.0, Verified.TRUE, 120.0),)
    rows = [choice(shape, TILES[letter], 100.0) for shape, letter in ((P, "a"), (Q, "b"), (R, "c"))]
    rows[0] = replace(rows[0], verified=Verified.FALSE, served=served)
    file = write_results(folder / "tuned.yaml", rows)
    for given, first in ((file, Verified.FALSE), (folder, Verified.TRUE)):
        out.unlink(missing_ok=True)
        assert main(["compact", str(given), "--loss", "0%", "-o", str(out)]) == EXIT_OK
        back = results.read(out).rows
        assert [row.verified for row in back] == [first, Verified.TRUE, Verified.TRUE]
        assert [row.served for row in back] == [served, (), ()]


def test_a_results_file_with_its_tables_does_as_well_as_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(tmp_path)
    rows = [choice(shape, TILES[letter], 100.0) for shape, letter in ((P, "a"), (Q, "b"), (R, "c"))]
    file = write_results(folder / "tuned.yaml", rows)
    answers = []
    for path in (folder, file):
        assert main(["compact", str(path), "--loss", "5%", "--json"]) == EXIT_OK
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
    assert answers[0]["configs"] == [{"name": named("d"), "sizes": 3}] and answers[0]["method"] == EXACT
    assert answers[0]["groups"][0]["ranges"] == [
        {"low": 1, "high": None, "config": named("d"), "tuned_m": [16, 64, 256]}]  # fmt: skip
    assert [round(one["loss"], 4) for one in answers[0]["sizes"]] == [0.04, 0.03, 0.0202]


def test_what_has_no_tables_or_was_never_timed_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lone = write_results(tmp_path / "lone.yaml", [choice(P, TILES["a"], 1.0)])
    assert main(["compact", str(lone)]) == EXIT_INPUT
    assert "and configs/," in capsys.readouterr().err
    predicted = write_run(tmp_path / "predicted", [size(P, "a")], replace(HEADER, source="predicted"))
    write_table(predicted, P, {"a": (OK, None, None)})
    assert main(["compact", str(predicted)]) == EXIT_INPUT
    told = capsys.readouterr().err
    assert "nothing was measured" in told and "and configs/," not in told  # a run's folder was given
    assert main(["compact", str(write_run(tmp_path / "empty", [size(P)]))]) == EXIT_INPUT
    foreign = write_run(tmp_path / "foreign", [size(P, "a")], replace(HEADER, source="guessed"))
    write_table(foreign, P, {"a": (OK, 1.0, 1.0)})
    capsys.readouterr()
    assert main(["compact", str(foreign)]) == EXIT_INPUT
    assert "source is 'guessed'" in capsys.readouterr().err
    assert main(["compact", str(lone), "--boundaries", "round"]) == EXIT_INPUT


def a_run(folder: Path, *sizes: GemmProblem) -> Path:
    """A run that chose config a for each size."""
    for one in sizes:
        write_table(folder, one, {"a": (OK, 10.0, 10.0), "b": (OK, 10.1, 10.1)})
    return write_run(folder, [size(one, "a") for one in sizes])


def test_a_file_with_other_rows_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = a_run(tmp_path / "run", P, Q), tmp_path / "out.yaml"
    assert main(["compact", str(run), "-o", str(out)]) == EXIT_OK
    assert main(["compact", str(run), "-o", str(out)]) == EXIT_OK  # its own output of before
    write_results(out, [choice(P, TILES["a"], 10.0), choice(R, TILES["a"], 10.0)])
    before = out.read_text()
    capsys.readouterr()
    assert main(["compact", str(run), "-o", str(out)]) == EXIT_INPUT
    assert "rows of 1 other sizes" in capsys.readouterr().err and out.read_text() == before
    own = write_results(run / "tuned.yaml", [choice(P, TILES["a"], 10.0), choice(Q, TILES["a"], 10.0)])
    assert main(["compact", str(own), "-o", str(own)]) == EXIT_INPUT
    assert main(["compact", str(run), "-o", str(own)]) == EXIT_INPUT
    assert len(results.read(own).rows) == 2


def test_a_row_of_an_earlier_run_is_read_beside_the_tables_of_that_run(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    for name, shape, date in (("one", P, "2026-01-01T00:00:00Z"), ("two", Q, "2026-02-02T00:00:00Z")):
        a_run(tmp_path / name, shape)
        header = replace(HEADER, run=name, date=date)
        file = ResultsFile(path, [shape])
        file.record_outcome(shape, choice(shape, TILES["a"], 10.0))
        file.write(header)
    assert {one.problem for one in tuned.load(path).sizes} == {P, Q}
