"""Two results side by side: what counts as a change, what is warned of, and what CI is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from run_samples import HEADER, TILES, choice, named, size, write_results, write_run, write_table
from samples import problem
from screens import TUNED, WIDTHS, Screen

from gemm_tuner.cli.commands.compare import closing, document, show_table
from gemm_tuner.cli.main import main
from gemm_tuner.core.choice import Choice, ServedChoice
from gemm_tuner.core.errors import EXIT_INPUT, EXIT_OK, EXIT_UNVERIFIED, UserError
from gemm_tuner.core.labels import labels
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.gemm.short_forms import short_config
from gemm_tuner.report.compare import judge, sides
from gemm_tuner.report.compare.judge import Compared, ComparedVerdict, Comparison
from gemm_tuner.store.run_record import Final

P, Q, R = problem(64, 64, 64), problem(128, 64, 64), problem(256, 64, 64)
A, B = TILES["a"], TILES["b"]


def files(tmp_path: Path, before: list[Choice], after: list[Choice]) -> tuple[Path, Path]:
    return write_results(tmp_path / "a.yaml", before), write_results(tmp_path / "b.yaml", after)


def compared(tmp_path: Path, before: Choice, after: Choice, tolerance: float = 0.02) -> Compared:
    a, b = files(tmp_path, [before], [after])
    return judge.compare(sides.load(a), sides.load(b), tolerance).compared[0]


@pytest.mark.parametrize(
    ("after_us", "spread", "tolerance", "verdict", "regression"),
    [
        (100.0, 0.01, 0.02, ComparedVerdict.SAME, False),
        (101.5, 0.01, 0.02, ComparedVerdict.SAME, False),  # the ranges touch
        (110.0, 0.01, 0.02, ComparedVerdict.SLOWER, True),
        (110.0, 0.01, 0.15, ComparedVerdict.SLOWER, False),  # slower, and tolerated
        (90.0, 0.01, 0.02, ComparedVerdict.FASTER, False),
        (110.0, 0.20, 0.02, ComparedVerdict.UNCLEAR, False),  # the noise is larger than the difference
        (110.0, None, 0.02, ComparedVerdict.SLOWER, True),  # nothing known of the noise
        (101.0, None, 0.02, ComparedVerdict.SAME, False),
    ],
)
def test_rows_are_judged_by_their_quantiles(
    tmp_path: Path, after_us: float, spread: float | None, tolerance: float, verdict: ComparedVerdict, regression: bool
) -> None:
    one = compared(tmp_path, choice(P, A, 100.0, spread), choice(P, A, after_us, spread), tolerance)
    assert (one.verdict, one.regression) == (verdict, regression)
    assert one.ratio == pytest.approx(after_us / 100)


def run_of(folder: Path, us: float, spread: float, chosen: str = "a") -> Path:
    """A run of five processes; its interval is this share of the time to either side."""
    final = Final(named(chosen), (us, us * 1.03), us, us / (1 + spread), us * (1 + spread), 5, 100 * spread)
    return write_run(folder, [replace(size(P, chosen), finals=(final,))])


def judged(a: Path, b: Path) -> Comparison:
    return judge.compare(sides.load(a), sides.load(b), 0.02)


def test_runs_are_judged_by_their_intervals_over_processes(tmp_path: Path) -> None:
    a, b = run_of(tmp_path / "a", 100.0, 0.01), run_of(tmp_path / "b", 105.0, 0.01, "b")
    (one,) = judged(a, b).compared
    assert one.noise == "processes" and one.ratio == pytest.approx(1.05)
    assert one.interval == pytest.approx((1.05 / 1.0142, 1.05 * 1.0142), abs=1e-3)
    assert one.verdict == ComparedVerdict.SLOWER and one.regression and one.config_changed
    (back,) = judged(b, a).compared
    assert back.verdict == ComparedVerdict.FASTER and not back.regression
    assert judged(a, run_of(tmp_path / "c", 105.0, 0.05, "b")).compared[0].verdict == ComparedVerdict.UNCLEAR


def rows_of(us: float, spread: float | None, seed: int, processes: int = 5) -> list[Choice]:
    """Rows of 20 sizes of the same true time over which processes move it by this relative standard deviation."""
    dice = np.random.default_rng(seed)
    rows = []
    for m in range(64, 64 * 21, 64):
        times = np.exp(dice.normal(0, spread or 0.0, processes))
        published = us * float(np.exp(np.log(times[-2:]).mean()))
        spread_pct = None if spread is None else (times.max() / times.min() - 1) * 100
        made = choice(problem(m, 64, 64), A, published)
        rows.append(replace(made, processes=processes, process_spread_pct=spread_pct))
    return rows


def test_files_are_judged_by_how_far_processes_lay_apart(tmp_path: Path) -> None:
    """Equal sizes of two runs whose processes differ by 2 %: some 1 in 20 is called different."""
    verdicts: list[ComparedVerdict] = []
    for seed in range(10):
        before, after = rows_of(100.0, 0.02, 2 * seed), rows_of(100.0, 0.02, 2 * seed + 1)
        comparison = judged(*files(tmp_path, before, after))
        assert {one.noise for one in comparison.compared} == {"processes"}
        verdicts += [one.verdict for one in comparison.compared]
    assert sum(one in (ComparedVerdict.FASTER, ComparedVerdict.SLOWER) for one in verdicts) <= 0.09 * len(verdicts)
    slower = judged(*files(tmp_path, rows_of(100.0, 0.002, 0), rows_of(104.0, 0.002, 1)))
    assert all(one.verdict == ComparedVerdict.SLOWER for one in slower.compared)


def test_one_process_says_nothing_of_others(tmp_path: Path) -> None:
    (one, *_) = judged(*files(tmp_path, rows_of(100.0, 0.001, 0), rows_of(100.0, None, 1, processes=1))).compared
    assert one.noise == "p20-p80"


def test_a_run_without_finals_takes_the_time_of_its_table(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [size(P, "a")])
    write_table(folder, P, {"a": (Status.OK, 42.0, None)})
    assert sides.load(folder).sizes[P].median_us == 42.0


def test_a_folder_and_a_file_can_be_compared(tmp_path: Path) -> None:
    a = run_of(tmp_path / "run", 100.0, 0.01)
    b = write_results(tmp_path / "b.yaml", [choice(P, A, 200.0)])
    (one,) = judged(a, b).compared
    assert one.noise == "p20-p80" and one.regression and not one.config_changed


def test_sizes_of_one_side_and_sizes_that_lost_their_config(tmp_path: Path) -> None:
    a = write_results(tmp_path / "a.yaml", [choice(P, A, 1.0), choice(Q, A, 1.0)])
    b = write_results(tmp_path / "b.yaml", [choice(R, A, 1.0)], too_large=P)
    comparison = judged(a, b)
    assert (comparison.only_a, comparison.only_b) == ((Q,), (R,))
    (one,) = comparison.compared
    assert one.verdict == ComparedVerdict.LOST and one.regression and one.why == "too_large"
    (back,) = judged(b, a).compared
    assert back.verdict == ComparedVerdict.FOUND and not back.regression
    both = write_results(tmp_path / "c.yaml", [choice(R, A, 1.0)], slow=P)
    assert [c.verdict for c in judged(b, both).compared] == [ComparedVerdict.SAME, ComparedVerdict.NOT_COMPARABLE]


def test_a_prediction_is_not_compared_with_a_measurement(tmp_path: Path) -> None:
    predicted = choice(P, A, 1.0, None, "predicted")
    assert compared(tmp_path, choice(P, A, 100.0), predicted).verdict == ComparedVerdict.NOT_COMPARABLE
    assert compared(tmp_path, predicted, predicted).verdict == ComparedVerdict.SAME


def test_a_comparison_of_predictions_says_so(tmp_path: Path) -> None:
    def predicted_lines(before: list[Choice]) -> tuple[list[bool], list[str]]:
        comparison, screen = judged(*files(tmp_path, before, before)), Screen(0)
        show_table(screen.console, comparison)
        shown = [screen.lines[0], *closing(screen.console, comparison, 0.02, [])]
        return [one["predicted"] for one in document(comparison, 0.02)["sizes"]], [x for x in shown if "predict" in x]

    guessed, timed = choice(P, A, 1.0, None, "predicted"), choice(Q, A, 1.0)
    flags, said = predicted_lines([guessed])
    assert flags == [True] and len(said) == 2  # the table's title, and below it
    flags, said = predicted_lines([guessed, timed])
    assert flags == [True, False] and len(said) == 1 and "1 of 2" in said[0]
    assert predicted_lines([timed]) == ([False], [])


def test_what_differs_beside_the_sizes_is_warned_of(tmp_path: Path) -> None:
    a = write_results(tmp_path / "a.yaml", [choice(P, A, 1.0)])
    other = replace(HEADER, device="NVIDIA H100", driver="580.1", triton="3.9.0", profiler="proton", l2="rotating")
    b = write_results(tmp_path / "b.yaml", [choice(P, A, 1.0)], other)
    assert judged(a, b).warnings == (
        "device differs: device NVIDIA H200 and NVIDIA H100, driver 570.86 and 580.1",
        "versions differs: triton 3.6.0 and 3.9.0",
        "method differs: profiler nsys and proton, l2 flushed and rotating",
    )
    assert judged(a, a).warnings == ()
    later = write_results(tmp_path / "c.yaml", [choice(P, A, 1.0)], replace(HEADER, date="2027-01-01T00:00:00Z"))
    assert judged(a, later).warnings == ()


def test_the_exit_status_is_for_ci(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = map(
        str, files(tmp_path, [choice(P, A, 100.0), choice(Q, A, 50.0)], [choice(P, B, 106.0), choice(Q, A, 40.0)])
    )
    assert main(["compare", a, a]) == EXIT_OK
    assert main(["compare", b, a, "--tolerance", "30%"]) == EXIT_OK
    assert main(["compare", a, b, "--tolerance", "7%"]) == EXIT_OK
    capsys.readouterr()
    assert main(["compare", a, b]) == EXIT_UNVERIFIED
    shown = capsys.readouterr().out
    assert "slower (regression)" in shown and "1 slower, " not in shown.split("sizes of both")[0]
    assert "1 faster, 1 slower; 1 with another configuration" in shown
    assert "B / A, geometric mean: 0.921" in shown and "regressions beyond 2 %: 1" in shown
    file = str(tmp_path / "compared.json")
    assert main(["compare", a, b, "--json", "-o", file]) == EXIT_UNVERIFIED
    document = json.loads(capsys.readouterr().out)
    assert json.loads(Path(file).read_text()) == document
    assert [entry["verdict"] for entry in document["sizes"]] == ["slower", "faster"]
    assert document["sizes"][0]["b_config"] == B.name and document["regressions"] == 1


def exit_of(a: Path, b: Path, *flags: str) -> int:
    return main(["compare", str(a), str(b), *flags])


def test_what_could_not_be_compared_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = write_results(tmp_path / "both.yaml", [choice(P, A, 1.0), choice(Q, A, 1.0)])
    fewer = write_results(tmp_path / "fewer.yaml", [choice(P, A, 1.0)])
    other = write_results(tmp_path / "other.yaml", [choice(R, A, 1.0)])
    none = write_results(tmp_path / "none.yaml", [])
    half = [choice(P, A, 1.0), choice(Q, A, 1.0, None, "predicted")]
    mixed = write_results(tmp_path / "mixed.yaml", half)
    guessed = write_results(tmp_path / "guessed.yaml", [choice(P, A, 1.0, None, "predicted")])
    for b, strict, allowed in (
        (fewer, EXIT_UNVERIFIED, EXIT_OK),
        (mixed, EXIT_UNVERIFIED, EXIT_OK),
        (other, EXIT_UNVERIFIED, EXIT_UNVERIFIED),
        (none, EXIT_UNVERIFIED, EXIT_UNVERIFIED),
        (guessed, EXIT_UNVERIFIED, EXIT_UNVERIFIED),
        (both, EXIT_OK, EXIT_OK),
    ):
        assert (exit_of(both, b), exit_of(both, b, "--allow_missing")) == (strict, allowed), b.name
    assert exit_of(fewer, both) == EXIT_OK  # more sizes than before
    assert exit_of(none, none) == EXIT_UNVERIFIED
    capsys.readouterr()
    exit_of(both, fewer)
    assert "1 size of A missing in B" in capsys.readouterr().out.splitlines()[-1]
    exit_of(both, fewer, "--json")
    assert json.loads(capsys.readouterr().out)["faults"] == ["1 size of A missing in B"]


@pytest.mark.parametrize("width", [0, 60])
@pytest.mark.parametrize("missing", [2, 30])
def test_sizes_of_one_side_are_named_as_far_as_a_line_has_room(tmp_path: Path, missing: int, width: int) -> None:
    gone = [problem(64 * m, 64, 64) for m in range(1, missing + 1)]
    a, b = files(tmp_path, [choice(one, A, 1.0) for one in gone], [choice(problem(32, 64, 64), A, 1.0)])
    comparison, screen = judged(a, b), Screen(width)
    (line,) = (line for line in closing(screen.console, comparison, 0.02, []) if line.startswith("only in A"))
    names = [one.key for one in gone] if not width else [*labels(gone).of.values()]
    assert f"({missing})" in line
    assert [name for name in names if name in line] == names[:3]
    assert (str(missing - 3) in line and "--json" in line) == (missing > 3)
    assert [one["key"] for one in document(comparison, 0.02)["only_a"]] == [one.key for one in gone]


def test_what_a_server_is_given_is_compared_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def written(name: str, *served: tuple[str, float]) -> Path:
        given = tuple(ServedChoice(consumer, B, us, Verified.TRUE) for consumer, us in served)
        return write_results(tmp_path / f"{name}.yaml", [replace(choice(P, A, 100.0), served=given)])

    before = written("before", ("vllm", 110.0), ("sglang", 120.0))
    assert exit_of(before, before) == EXIT_OK
    told = capsys.readouterr().out
    assert "sizes of both: 1;" in told and "3 same" in told
    slower = written("slower", ("vllm", 130.0), ("sglang", 120.0))
    assert exit_of(before, slower) == EXIT_UNVERIFIED and exit_of(slower, before) == EXIT_OK
    capsys.readouterr()
    exit_of(before, slower, "--json")
    told = {row["consumer"]: row["verdict"] for row in json.loads(capsys.readouterr().out)["sizes"]}
    assert told == {"": "same", "vllm": "slower", "sglang": "same"}
    fewer = written("fewer", ("vllm", 110.0))
    assert (exit_of(before, fewer), exit_of(before, fewer, "--allow_missing")) == (EXIT_UNVERIFIED, EXIT_OK)
    assert exit_of(fewer, before) == EXIT_OK
    guessed = write_results(tmp_path / "guessed.yaml", [choice(P, A, 100.0, None, "predicted")])
    capsys.readouterr()
    assert exit_of(before, guessed, "--json") == EXIT_UNVERIFIED
    assert json.loads(capsys.readouterr().out)["faults"][0] == "1 size of A not comparable"


@pytest.mark.parametrize(("spread_pct", "verdict"), [(0.5, "slower"), (40.0, "unclear")])
def test_served_times_are_judged_by_their_intervals_over_processes(
    spread_pct: float, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def written(name: str, us: float) -> Path:
        given = ServedChoice("vllm", B, us, Verified.TRUE, processes=5, process_spread_pct=spread_pct)
        return write_results(tmp_path / f"{name}.yaml", [replace(choice(P, A, 100.0), served=(given,))])

    exit_of(written("a", 110.0), written("b", 116.0), "--json")
    (_, served) = json.loads(capsys.readouterr().out)["sizes"]
    assert (served["consumer"], served["verdict"], served["noise"]) == ("vllm", verdict, "processes")


def test_a_size_without_a_config_in_either_is_no_fault(tmp_path: Path) -> None:
    both = write_results(tmp_path / "a.yaml", [choice(P, A, 1.0)], slow=Q)
    assert exit_of(both, both) == EXIT_OK


@pytest.mark.parametrize("width", WIDTHS)
def test_real_files_compared_fit_the_terminal(width: int) -> None:
    before = sides.load(TUNED[0])
    after = replace(before, sizes={
        problem: replace(timed, config=B.name, median_us=timed.median_us * 1.3) if at % 3 else timed
        for at, (problem, timed) in enumerate(before.sizes.items()) if timed.median_us
    })  # fmt: skip
    comparison = judge.compare(before, after, 0.02)
    screen = Screen(width)
    show_table(screen.console, comparison)
    assert max(map(len, screen.lines)) <= width
    words = " ".join(screen.lines).split()
    named = labels(before.sizes)
    for one in comparison.compared:
        assert one.a and one.b and one.ratio
        configs = (short_config(side.config) for side in (one.a, one.b)) if one.config_changed else ()
        for text in (named.of[one.problem], f"{one.b.median_us:.2f}", f"{one.ratio:.3f}", *configs):
            assert all(word in words for word in text.split())
    piped = Screen(0)
    show_table(piped.console, comparison)
    for one in comparison.compared:
        assert one.a and one.b and one.a.median_us
        begins = [one.problem.key, *filter(None, [one.consumer]), f"{one.a.median_us:.2f}"]
        (line,) = (line for line in piped.lines if line.split()[: len(begins)] == begins)
        assert one.a.config in line and one.b.config in line


def test_a_tolerance_is_in_percent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = map(str, files(tmp_path, [choice(P, A, 100.0)], [choice(P, A, 104.0)]))
    assert main(["compare", a, b, "--tolerance", "5"]) == EXIT_OK
    assert main(["compare", a, b, "--tolerance", "3"]) == EXIT_UNVERIFIED
    capsys.readouterr()
    assert main(["compare", a, b, "--tolerance=5 %", "--json"]) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["tolerance"] == 0.05
    assert main(["compare", a, b, "--tolerance", "0.02"]) == EXIT_INPUT
    assert "write '0.02%' or '2%'" in capsys.readouterr().err


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.yaml"
    sizes.write_text("- {M: 1, N: 1, K: 1}\n")
    for path in (sizes, tmp_path, tmp_path / "none"):
        with pytest.raises(UserError):
            sides.load(path)
