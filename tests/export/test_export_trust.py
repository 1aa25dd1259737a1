"""What may leave the tuner: only what was checked, or what the user asks for by name; and what is said of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from export_samples import FILE, H20, VLLM, Judge, collected, edited, export, files, rows, side, with_table
from samples import ROOT, config, device, gpu

from gemm_tuner.consumers.consumer import Offer
from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EXIT_INPUT, EnvironmentFault
from gemm_tuner.core.records import Verified
from gemm_tuner.export.offers import LeftOut
from gemm_tuner.export.trust import Trust
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.measure.device import Machine
from gemm_tuner.measure.launcher_process import InterpreterLauncher
from gemm_tuner.pipeline import check_now
from gemm_tuner.store import results
from gemm_tuner.system import gpu_lock


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves the seconds of looking for one, and is the same on a machine that has one."""
    monkeypatch.setattr("gemm_tuner.measure.device.look", lambda: Machine((), {}, ""))


TILE = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 128}
FAST, SLOW = config(**TILE, num_stages=5), config(**TILE, num_stages=4)
EVERYTHING = ("--predicted", "--unverified")
WHAT = ("dtype", "layout", "scaling", "bias")  # fields of a row that are of its size


def offered(
    folder: Path, trust: Trust, find_check: Callable[[], check_now.CheckNow]
) -> tuple[list[Offer], list[LeftOut]]:
    """What vLLM is offered of a size that gemm_split_k won, beside two tiles that it can launch."""
    return collected(with_table(folder, (FAST, 13.0, 12.9), (SLOW, 14.2, 14.0)), "vllm", trust, find_check)


@pytest.mark.parametrize(
    ("how", "right", "trust", "taken"),
    [
        (Verified.TRUE, {FAST, SLOW}, Trust(), (FAST, Verified.TRUE)),
        (Verified.TRUE, {SLOW}, Trust(), (SLOW, Verified.TRUE)),
        (Verified.TRUE, set(), Trust(), None),
        (Verified.TRUE, set(), Trust(predicted=True, unverified=True), None),  # known to be wrong
        (Verified.INTERPRETED, {FAST}, Trust(), None),
        (Verified.INTERPRETED, {FAST}, Trust(predicted=True), (FAST, Verified.INTERPRETED)),
        (Verified.INTERPRETED, {FAST}, Trust(unverified=True), (FAST, Verified.FALSE)),
    ],
)
def test_a_stand_in_is_offered_only_when_a_check_finds_it_right(
    how: Verified, right: set[KernelConfig], trust: Trust, taken: tuple[KernelConfig, Verified] | None, tmp_path: Path
) -> None:
    judge = Judge(how, *right)
    found, left_out = offered(tmp_path, trust, lambda: judge)
    assert [(one.config, one.verified) for one in found] == ([taken] if taken else [])
    assert len(left_out) == (not taken)


def test_where_no_check_can_run_a_stand_in_is_left_out_with_the_reason(tmp_path: Path) -> None:
    def broken() -> check_now.CheckNow:
        raise EnvironmentFault("no room on the disk")

    found, (left_out,) = offered(tmp_path / "a", Trust(), broken)
    assert not found and "no room on the disk" in left_out.reason
    found, _ = offered(tmp_path / "b", Trust(unverified=True), broken)
    assert [one.verified for one in found] == [Verified.FALSE]


def test_a_file_of_one_row_gives_no_entry_of_a_config_that_no_check_saw(tmp_path: Path, capsys: Any) -> None:
    """It gave vLLM 18 entries of a tile that was screened and never checked, without a word."""
    results_file = with_table(tmp_path, (FAST, 13.0, None))
    assert export(results_file, "--to", "vllm", "-o", tmp_path / "out") == 1
    assert not (tmp_path / "out").exists()
    last = capsys.readouterr().err.splitlines()[-1]
    assert "1 of 1 sizes are NOT in the files" in last and "64x4096x7168" in last
    assert export(results_file, "--to", "vllm", "-o", tmp_path / "out", "--unverified") == 0
    told = capsys.readouterr().out
    assert f"64 {FAST.name}: not checked" in told
    (notes,) = side(tmp_path / "out" / VLLM)["files"].values()
    assert notes["64"]["check"] == "false"
    assert not any(note.get("verified") for note in notes.values())


@pytest.mark.parametrize("wait", [("--no_wait",), ("--wait", "1s")])
def test_an_export_waits_for_a_gpu_in_use_as_long_as_it_is_told(
    wait: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stand-in is to be checked, and another process measures on the only GPU."""
    here = Machine(({**gpu(0), "uuid": "GPU-1"},), {}, "")
    monkeypatch.setattr("gemm_tuner.measure.device.look", lambda: here)
    monkeypatch.setenv("GEMM_TUNER_LOCK_DIR", str(tmp_path))
    results_file = with_table(tmp_path / "run", (FAST, 13.0, 12.9))
    with gpu_lock.held(["GPU-1"]):
        assert export(results_file, "--to", "vllm", "-o", tmp_path / "out", *wait) == EXIT_ENVIRONMENT
    assert not (tmp_path / "out").exists()
    lines = capsys.readouterr().err.splitlines()
    assert "GPU-1 is in use by process" in lines[-1]
    assert any("waiting for GPU GPU-1" in line for line in lines) == ("--wait" in wait)


def test_a_module_checks_nothing_and_takes_no_time_to_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(H20, "--to", "module", "-o", tmp_path, "--no_wait") == EXIT_INPUT
    assert "--no_wait" in capsys.readouterr().err


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], check_now.CheckNow]:
    def of(templates: Path) -> check_now.CheckNow:
        work = tmp_path_factory.mktemp("check")
        folders = work / check_now.CACHE, work / check_now.SCRIPTS
        for folder in folders:
            folder.mkdir()
        launcher = InterpreterLauncher(LANGUAGE, *folders)
        return check_now.CheckNow(launcher, Verified.INTERPRETED, device("sm_90").target, templates, work)

    return of


def test_the_check_of_stand_ins_finds_a_wrong_kernel(tmp_path: Path, interpreter: Any) -> None:
    problem = GemmProblem(64, 64, 64, "fp16", "fp16", "fp16", Layout.ROW, Layout.COL)
    tile = config(BLOCK_SIZE_M=32, BLOCK_SIZE_N=32, BLOCK_SIZE_K=32)
    wanted = {problem: [tile]}
    assert interpreter(ROOT / "templates").first_right(wanted)[problem].name == tile.name
    templates = tmp_path / "templates"
    shutil.copytree(ROOT / "templates", templates)
    spoilt = 0
    for path in templates.rglob("*.j2"):
        text = path.read_text()
        path.write_text(text.replace("tl.dot(a, b, accumulator", "tl.dot(a, b, accumulator + 1"))
        spoilt += text.count("tl.dot(a, b, accumulator")
    assert spoilt
    finding = interpreter(templates).first_right(wanted)[problem]
    assert not finding.name and tile.name in finding.why and "wrong" in finding.why


def checked_as(out: Path, value: object, **more: object) -> Path:
    """The first row of the hand-made file, with another word on how it was checked."""
    return edited(
        H20, out, format_version=lambda _: 2, configs=lambda found: [{**found[0], "verified": value, **more}],
        without_config=lambda _: [],
    )  # fmt: skip


def name_in(results_file: Path) -> str:
    (row,) = results.read(results_file).rows
    assert row.config is not None
    return row.config.name


@pytest.mark.parametrize("to", ["vllm", "csv", "json", "triton"])
@pytest.mark.parametrize(
    ("value", "flag", "word"),
    [
        (True, "", ""),
        ("agreed", "", "compared with other configurations only"),
        ("interpreted", "--predicted", "checked in the interpreter only"),
        (False, "--unverified", "not checked"),
    ],
)
def test_each_row_goes_out_by_how_it_was_checked(
    to: str, value: object, flag: str, word: str, tmp_path: Path, capsys: Any
) -> None:
    results_file = checked_as(tmp_path / "r.yaml", value)
    others = [one for one in EVERYTHING if one != flag]
    if flag:
        assert export(results_file, "--to", to, "-o", tmp_path / "out", *others) == 1
        assert flag in capsys.readouterr().err and not (tmp_path / "out").exists()
    assert export(results_file, "--to", to, "-o", tmp_path / "out", *([flag] if flag else [])) == 0
    told = capsys.readouterr().out
    assert (name_in(results_file) in told and word in told) if word else "checked" not in told
    assert files(tmp_path / "out")


@pytest.mark.parametrize("to", ["vllm", "csv", "triton", "module"])
@pytest.mark.parametrize("value", [True, "agreed"])
def test_what_was_never_timed_needs_predicted_however_it_was_checked(to: str, value: object, tmp_path: Path) -> None:
    timed = checked_as(tmp_path / "timed.yaml", value)

    def guessed(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        names = {*KernelConfig.__dataclass_fields__, "M", "N", "K", "verified"}
        kept = {key: held for key, held in found[0].items() if key in names or key.startswith(WHAT)}
        return [{**kept, "source": "predicted", "predicted_us": 9.0}]

    results_file = edited(timed, tmp_path / "guessed.yaml", configs=guessed)
    assert export(results_file, "--to", to, "-o", tmp_path / "out", "--unverified") == 1
    assert not (tmp_path / "out").exists()
    assert export(results_file, "--to", to, "-o", tmp_path / "out", "--predicted") == 0


def test_a_row_that_does_not_say_how_it_was_checked_was_not(tmp_path: Path) -> None:
    def silent(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{key: value for key, value in found[0].items() if key != "verified"}]

    results_file = edited(H20, tmp_path / "r.yaml", configs=silent)
    assert export(results_file, "--to", "vllm", "-o", tmp_path / "out") == 1
    assert not (tmp_path / "out").exists()


def test_an_entry_that_was_not_checked_never_takes_the_place_of_one_that_was(tmp_path: Path) -> None:
    good = checked_as(tmp_path / "good.yaml", True)
    faster = checked_as(tmp_path / "faster.yaml", False, median_us=1.0, num_stages=2)
    export(good, "--to", "vllm", "-o", tmp_path)
    before = (tmp_path / FILE).read_text()
    export(faster, "--to", "vllm", "-o", tmp_path, "--unverified")
    assert (tmp_path / FILE).read_text() == before
    other = tmp_path / "other"
    export(faster, "--to", "vllm", "-o", other, "--unverified")
    export(good, "--to", "vllm", "-o", other)
    assert (other / FILE).read_text() == before


def test_the_tables_are_found_where_the_header_names_the_run(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "results" / "run"
    run.mkdir(parents=True)
    there = with_table(run, (FAST, 13.0, 12.9))
    away = tmp_path / "tuned.yaml"
    edited(there, away, header=lambda header: {**header, "run": "results/run"}, format_version=lambda _: 2)
    there.unlink()
    words = (away, "--to", "vllm", "-o", tmp_path / "out", "--unverified")
    assert export(*words, "--check") == 1
    assert FAST.name in capsys.readouterr().out
    shutil.rmtree(run)
    assert export(*words) == 1
    err = capsys.readouterr().err
    assert "gone" in err and str(run) in err


def test_sizes_that_share_an_entry_are_not_missing(tmp_path: Path) -> None:
    """Two types of C at one M: vLLM's file holds one of them."""

    def both(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in found if row["M"] == 4096 and row["N"] == 7168]

    results_file = edited(H20, tmp_path / "r.yaml", configs=both, without_config=lambda _: [])
    assert len(rows(results_file)) == 2
    assert export(results_file, "--to", "vllm", "-o", tmp_path) == 0
