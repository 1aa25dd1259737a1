"""A results file while a run finishes its sizes: merged by problem, and written rarely."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from run_samples import HEADER, TILES, choice, write_results
from samples import problem
from tuning import session

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Verified
from gemm_tuner.export.gemm.module.rows import select
from gemm_tuner.export.trust import Trust
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.store import results
from gemm_tuner.store.results_file import Judgement, ResultsFile

ONE, TWO, THREE, FOUR = (problem(512 << i, 512, 512) for i in range(4))
LATER = dataclasses.replace(HEADER, date="2026-02-28T12:00:00Z", triton="3.9.0")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuned.yaml"


def rows(path: Path) -> list[tuple[GemmProblem, str, str | None]]:
    """(problem, configuration, kept_from) of each row."""
    found = results.read(path).rows
    return [(row.problem, row.config.name if row.config else "", row.facts.get("kept_from")) for row in found]


def finished(path: Path, order: list[GemmProblem], outcome: dict[GemmProblem, str], source: str = "measured") -> None:
    """Writes as a run does: outcome has a letter of TILES, or "" for a size of which none was right."""
    file = ResultsFile(path, order)
    for size, letter in outcome.items():
        found = choice(size, TILES[letter], 10.0, source=source) if letter else None
        file.record_outcome(size, found, "" if letter else "none is right")
    file.write(dataclasses.replace(LATER, source=source))


def test_a_row_stays_until_its_problem_has_a_new_one(path: Path) -> None:
    write_results(path, [choice(size, TILES["a"], 10.0) for size in (ONE, TWO, THREE)])
    finished(path, [TWO, FOUR], {TWO: "b", FOUR: "c"})
    a, b, c = (TILES[letter].name for letter in "abc")
    assert rows(path) == [(ONE, a, HEADER.date), (TWO, b, None), (THREE, a, HEADER.date), (FOUR, c, None)]
    found = results.read(path)
    assert found.header["date"] == LATER.date and [one["triton"] for one in found.earlier_headers] == [HEADER.triton]
    # A third run: rows of both before keep their dates, and both headers are there.
    finished_header = dataclasses.replace(LATER, date="2026-03-31T12:00:00Z")
    file = ResultsFile(path, [THREE])
    file.record_outcome(THREE, choice(THREE, TILES["d"], 9.0))
    file.write(finished_header)
    assert [kept for _, _, kept in rows(path)] == [HEADER.date, LATER.date, None, LATER.date]
    found = results.read(path)
    assert [one["date"] for one in found.earlier_headers] == [HEADER.date, LATER.date]
    assert [found.header_of(row)["triton"] for row in found.rows] == ["3.6.0", "3.9.0", "3.9.0", "3.9.0"]


def test_a_run_says_how_its_rows_were_merged(path: Path) -> None:
    def said(outcome: dict[GemmProblem, str], source: str = "measured") -> list[str]:
        file = ResultsFile(path, list(outcome))
        for size, letter in outcome.items():
            file.record_outcome(size, choice(size, TILES[letter], 10.0, source=source))
        file.write(LATER)
        file.write(LATER)  # the second time with nothing to write
        return [word for word in file.merged_text().replace(",", "").split() if word.isdecimal()]

    assert said({ONE: "a", TWO: "a", THREE: "a"}) == []  # there was no file
    assert said({FOUR: "a"}) == ["1", "3"]
    assert said({FOUR: "b", problem(64, 64, 64): "a"}) == ["1", "1", "3"]
    assert said({ONE: "b"}, "predicted") == ["5"]  # a time stays


def test_runs_that_began_in_the_same_second_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    runs = [session(tmp_path / str(number), size, results_file=path) for number, size in enumerate((ONE, TWO, THREE))]
    for run, size in zip(runs, (ONE, TWO, THREE), strict=True):
        run.results.record(size, choice(size, TILES["a"], 10.0))
        run.results.write()
    found = results.read(path)
    named = [str(found.header_of(row)["run"]) for row in found.rows]
    assert named == [str(run.results.header.run) for run in runs] and len(set(named)) == 3


def test_a_row_that_stays_is_whole(path: Path) -> None:
    write_results(path, [choice(ONE, TILES["a"], 10.0)])
    before = results.read(path).rows[0].facts
    finished(path, [TWO], {TWO: "b"})
    assert {**results.read(path).rows[0].facts} == {**before, "kept_from": HEADER.date}


def test_a_predicted_row_of_the_first_format_was_checked_in_the_interpreter(path: Path) -> None:
    write_results(path, [choice(ONE, TILES["a"], 10.0, source="predicted")])
    text = path.read_text().replace("format_version: 2", "format_version: 1")
    path.write_text(text.replace("verified: interpreted", "verified: true"))
    finished(path, [TWO], {TWO: "b"})
    assert results.read(path).rows[0].verified is Verified.INTERPRETED


def test_a_size_that_fails_now_keeps_its_row(path: Path) -> None:
    write_results(path, [choice(ONE, TILES["a"], 10.0)], failed=THREE)
    file = ResultsFile(path, [ONE, TWO])
    file.record_outcome(ONE, None, "none is right")
    file.record_outcome(TWO, None, "none is right")
    file.write(LATER)
    assert rows(path) == [(ONE, TILES["a"].name, None)]
    assert dict(results.read(path).without_config) == {TWO: "none is right", THREE: "failed"}
    assert file.kept_instead() == {ONE: "none is right"}


def test_rows_of_another_gpu_that_were_written_meanwhile_are_left_alone(path: Path) -> None:
    file = ResultsFile(path, [ONE])
    file.record_outcome(ONE, choice(ONE, TILES["a"], 10.0))
    write_results(path, [choice(TWO, TILES["a"], 10.0)], dataclasses.replace(HEADER, device="NVIDIA H100"))
    with pytest.raises(UserError, match="holds rows of NVIDIA H100"):
        file.write(HEADER)
    assert [size for size, _, _ in rows(path)] == [TWO]


@pytest.mark.parametrize(
    ("source", "found_by", "verified"),
    [
        ("measured", "measured", Verified.FALSE),
        ("predicted", "measured", Verified.FALSE),
        ("predicted", "predicted", Verified.FALSE),
        ("measured", "predicted", Verified.TRUE),
    ],
)
def test_a_row_that_is_found_wrong_is_no_longer_verified(
    source: str, found_by: str, verified: Verified, path: Path
) -> None:
    right = [choice(size, TILES["a"], 10.0) for size in (TWO, THREE)]
    write_results(path, [choice(ONE, TILES["a"], 10.0, source=source), *right])
    file = ResultsFile(path, [ONE, TWO])
    file.record_outcome(ONE, None, "none is right", Judgement({TILES["a"].name: "wrong: at 512 x 512 x 512"}))
    file.record_outcome(
        TWO, None, "none is right", Judgement({TILES["b"].name: "unstable"})
    )  # another one than the row's
    file.write(dataclasses.replace(LATER, source=found_by))
    one, *others = results.read(path).rows
    assert one.verified is verified and [row.verified for row in others] == [Verified.TRUE] * 2
    if verified is Verified.FALSE:
        assert one.facts["found_wrong"] == "wrong: at 512 x 512 x 512"
        assert results.read(path).header_of(one)["date"] == HEADER.date
    assert not any("found_wrong" in row.facts for row in others)
    found = results.read(path)
    tuned, _ = select(found, Trust(predicted=True, unverified=True))
    assert (ONE in [one.problem for one in tuned]) is (verified is Verified.TRUE)
    # A later run that finds it right writes a row that says nothing of it.
    finished(path, [ONE], {ONE: "a"})
    assert results.read(path).rows[0].verified is Verified.TRUE
    assert "found_wrong" not in results.read(path).rows[0].facts


def test_a_row_without_a_source_has_that_of_its_own_run_s_header(path: Path) -> None:
    write_results(
        path, [choice(ONE, TILES["a"], 10.0, source="predicted")], dataclasses.replace(HEADER, source="predicted")
    )
    path.write_text(path.read_text().replace("  source: predicted\n  verified: true", "  verified: true"))
    finished(path, [TWO], {TWO: "b"})
    found = results.read(path)
    assert "source" not in found.rows[0].facts
    tuned, _ = select(found, Trust())
    assert [one.problem for one in tuned] == [TWO]


def test_a_size_that_failed_before_is_no_failure_once_it_has_a_row(path: Path) -> None:
    write_results(path, [], failed=ONE)
    finished(path, [ONE], {ONE: "a"})
    assert rows(path) == [(ONE, TILES["a"].name, None)] and results.read(path).without_config == ()


def test_a_prediction_does_not_replace_a_time(path: Path) -> None:
    write_results(path, [choice(ONE, TILES["a"], 10.0), choice(TWO, TILES["a"], 10.0, source="predicted")])
    finished(path, [ONE, TWO], {ONE: "b", TWO: "b"}, "predicted")
    assert [name for _, name, _ in rows(path)] == [TILES["a"].name, TILES["b"].name]


def test_a_run_that_gives_no_row_leaves_the_header_of_the_rows(path: Path) -> None:
    write_results(path, [choice(ONE, TILES["a"], 10.0)], HEADER)
    finished(path, [TWO], {TWO: "a"})
    before = results.read(path)
    finished(path, [ONE, TWO, THREE], {ONE: "b", TWO: "b", THREE: ""}, "predicted")
    after = results.read(path)
    assert (after.header, after.rows, after.earlier_headers) == (before.header, before.rows, before.earlier_headers)
    assert dict(after.without_config) == {THREE: "none is right"}


def test_a_prediction_beside_times_leaves_them_the_header_of_their_run(path: Path) -> None:
    write_results(path, [choice(ONE, TILES["a"], 10.0)])
    finished(path, [ONE, TWO], {ONE: "b", TWO: "b"}, "predicted")
    found = results.read(path)
    assert [found.header_of(row)["source"] for row in found.rows] == ["measured", "predicted"]


def test_the_order_is_the_run_s_whichever_size_ends_first(path: Path) -> None:
    finished(path, [ONE, TWO, THREE], {THREE: "a"})
    finished(path, [ONE, TWO, THREE], {TWO: "a", ONE: "a", THREE: "a"})
    assert [size for size, _, _ in rows(path)] == [ONE, TWO, THREE]


def test_two_runs_at_one_file_keep_each_other_s_rows(path: Path) -> None:
    one, other = ResultsFile(path, [ONE, TWO]), ResultsFile(path, [THREE, FOUR])
    for file, first, second in ((one, ONE, TWO), (other, THREE, FOUR)):
        file.record_outcome(first, choice(first, TILES["a"], 10.0))
        file.write(HEADER)
        file.record_outcome(second, choice(second, TILES["b"], 10.0))
    one.write(HEADER)
    other.write(HEADER)
    assert {size for size, _, _ in rows(path)} == {ONE, TWO, THREE, FOUR}


def rows_rendered(path: Path, sizes: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Rows that were written, over all writes, while so many sizes were finished, one a tenth of a second."""
    clock, written = [0.0], [0]

    def counted(path: Path, rows: list[object], **_: object) -> None:
        written[0] += len(rows)
        clock[0] += 1e-3 * len(rows)  # a write takes its time

    monkeypatch.setattr(results, "write_rows", counted)
    order = [problem(index + 1, 64, 64) for index in range(sizes)]
    file = ResultsFile(path, order, lambda: clock[0])
    for size in order:
        file.record_outcome(size, choice(size, TILES["a"], 10.0))
        file.write_when_due(HEADER)
        clock[0] += 0.1
    file.write(HEADER)
    return written[0]


def test_settling_costs_the_same_however_many_sizes_there_are(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (rows_rendered(path, sizes, monkeypatch) / sizes for sizes in (250, 4000))
    assert many < 4 * few  # rewritten whole for each size, it would be 16 times


def test_a_size_can_be_written_at_once(path: Path) -> None:
    file = ResultsFile(path, [ONE])
    file.record_outcome(ONE, choice(ONE, TILES["a"], 10.0))
    file.write_when_due(HEADER)
    assert len(rows(path)) == 1


def test_nothing_finished_writes_nothing(path: Path) -> None:
    ResultsFile(path, [ONE]).write(HEADER)
    assert not path.exists()


def test_a_file_that_was_spoilt_meanwhile_is_left_alone(path: Path) -> None:
    file = ResultsFile(path, [ONE])
    file.record_outcome(ONE, choice(ONE, TILES["a"], 10.0))
    path.write_text("- mine\n")
    with pytest.raises(UserError, match="cannot be merged"):
        file.write(HEADER)
    assert path.read_text() == "- mine\n"
