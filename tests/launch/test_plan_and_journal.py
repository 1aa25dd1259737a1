"""Plans, journals and recordings are data: what no launcher wrote is refused in one line, and nothing of it runs."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import ROOT, problem

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Status, Verdict
from gemm_tuner.core.workload import problem_from_dict
from gemm_tuner.launch.journal import (
    IMPORTED,
    Begin,
    Called,
    Compiles,
    DeviceUsed,
    End,
    Event,
    Fail,
    Finished,
    Journal,
    Judged,
    Process,
    Reached,
    Round,
    read_journal,
)
from gemm_tuner.launch.main import main
from gemm_tuner.launch.plan import Plan
from gemm_tuner.measure import replay

RAW = ROOT / "tests" / "data" / "h200_nsys_recording" / "raw"
STARTS = sorted(path.parent for path in RAW.glob("*/start*/plan.json"))
Change = Callable[[dict[str, Any]], object]


def one_line(error: UserError, *words: str) -> None:
    message = error.one_line()
    assert message.isprintable(), message
    for word in words:
        assert word in message


@pytest.mark.parametrize("start", STARTS, ids=lambda path: path.parent.name)
def test_recorded_plans_and_journals_are_read_whole(start: Path, tmp_path: Path) -> None:
    plan = Plan.read(start / "plan.json")
    plan.write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == plan
    rows = [json.loads(line) for line in (start / "journal.jsonl").read_text().splitlines()]
    events = read_journal(start / "journal.jsonl", len(plan.work))
    stream = io.StringIO()
    for event in events:
        Journal(stream).write(event)
    again = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(again) == len(rows)
    for row, wrote in zip(rows, again, strict=True):
        if "problem" in row:
            row["problem"] = problem_from_dict(row["problem"]).to_dict()
        later = {
            "flushes": None,
            "queued": False,
            "stable": True,
            "how": None,
            "early_stopped": False,
        }  # fields that this recording does not have
        assert wrote == {**{key: value for key, value in later.items() if key in wrote}, **row}


def test_every_event_is_read_as_it_was_written(tmp_path: Path) -> None:
    of = replace(problem(3, 5, 7), alpha=0.5)
    lost = Verdict(of, "a", False, float("inf"), float("inf"), (2, 4), "half \udce9 of \u2028 it", stable=False)
    events: list[Event] = [
        Process("7 8"), Reached(IMPORTED, 1.5), DeviceUsed("H200", "2.9"), Begin(0, "a"),
        Called(0, 0, "a", ("a", "b"), True, 3),
        Called(4, 1, "torch.mm", (), False), Round(1, 2), End(0, "a", True), Fail(1, "b", Status.CRASHED, "x\ny"),
        Judged.of(0, lost), Compiles(1, 2), Finished(),
    ]  # fmt: skip
    path = tmp_path / "journal.jsonl"
    with path.open("w", encoding="utf-8") as stream:
        journal = Journal(stream)
        for event in events:
            journal.write(event)
            if not isinstance(event, Called):  # a crash right after it loses nothing
                assert path.read_text().count("\n") == events.index(event) + 1
    assert read_journal(path, 2) == events
    assert [event.verdict for event in read_journal(path) if isinstance(event, Judged)] == [lost]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: row.update(format=2), "no plan of format 1"),
        (lambda row: row.update(stage="../x"), "stage is '../x'"),
        (lambda row: row.update(device="rm -rf /"), "device is 'rm -rf /'"),
        (lambda row: row.update(hook="import os"), "unknown key 'hook'"),
        (lambda row: row.update(scripts="x.py"), "scripts is 'x.py'"),
        (lambda row: row["work"][0].update(entries=[[7, "x"]]), "names script 7"),
        (lambda row: row["work"][0].update(entries=[[-1, "x"]]), "names script -1"),
        (lambda row: row["work"][0].update(entries=[[0, "x", 1]]), "a list of 2"),
        (lambda row: row["work"][0]["problem"].update(m=2**62), "m is 4611686018427387904"),
        (lambda row: row["work"][0]["problem"].update(layout_a="diagonal"), "layout_a is 'diagonal'"),
        (lambda row: row["method"].update(timed_calls=0), "timed_calls is 0"),
        (lambda row: row["method"].update(flush_bytes=-1), "flush_bytes is -1"),
        (lambda row: row["method"].update(flush_bytes=2**63), "flush_bytes is 9223372036854775808"),
        (lambda row: row["method"].update(early_stop_ratio=0), "early_stop_ratio is 0"),
        (lambda row: row["method"].update(early_stop_ratio=float("inf")), "early_stop_ratio is inf"),
        (lambda row: row["method"].update(hook="import os"), "method: unknown key 'hook'"),
        (lambda row: row["work"][0].update(hook="import os"), "work 1: unknown key 'hook'"),
        (lambda row: row["work"][0].pop("problem"), "work 1: lacks problem"),
        (lambda row: row["work"][0].update(entries=[[0, "\ud800"]]), "half of a character"),
        (lambda row: row["method"].update(seed=float("nan")), "seed is nan"),
        (lambda row: row["method"].update(init_type=["zeros"]), "init_type is a list"),
    ],
)
def test_a_plan_with_a_wrong_field_is_refused_by_its_name(tmp_path: Path, change: Change, words: str) -> None:
    row = json.loads((STARTS[0] / "plan.json").read_text())
    change(row)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(row))
    with pytest.raises(UserError) as caught:
        Plan.read(path)
    one_line(caught.value, words, str(path))


def test_the_launcher_refuses_a_bad_plan_before_it_runs_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, row = tmp_path / "script.py", json.loads((STARTS[0] / "plan.json").read_text())
    script.write_text("CONFIGS = {'known': {}}\n")
    path, missing = tmp_path / "plan.json", tmp_path / "missing.py"
    for scripts, name, words in (
        ([str(missing)], "known", "there is no script"),
        ([str(script)], "unknown", "has no configuration 'unknown'"),
    ):
        path.write_text(json.dumps({**row, "scripts": scripts, "work": [{**row["work"][0], "entries": [[0, name]]}]}))
        assert main(["--plan", str(path)]) == 2
        assert words in capsys.readouterr().err
        assert not (tmp_path / "journal.jsonl").exists()


def compact(line: str, **fields: Any) -> str:
    """An event with other fields, as a launcher writes the frequent ones: without spaces."""
    return json.dumps({**json.loads(line), **fields}, separators=(",", ":"))


BEGIN = '{"event": "begin", "work": 0, "name": "a"}'
GOOD = '{"event": "call", "n": 4, "work": 0, "name": "a", "symbols": ["a"], "warm": false}'


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not whole JSON"),
        ("[]", "no event"),
        ('{"event": 1}', "event is 1"),
        ('{"event": "hello"}', "event is 'hello'"),
        ('{"event": "call", "n": 9, "work": 0, "name": "a", "symbols": ["a", 1], "warm": false}', "symbols 2 is 1"),
        ('{"event": "begin", "work": 0}', "lacks name"),
        ('{"event": "begin", "work": -1, "name": "a"}', "work is -1"),
        ('{"event": "begin", "work": true, "name": "a"}', "work is true"),
        ('{"event": "begin", "work": 9, "name": "a"}', "work 9 is not in the plan"),
        ('{"event": "begin", "work": 0, "work": 0, "name": "a"}', "given twice"),
        ('{"event": "fail", "work": 0, "name": "a", "status": "fine", "message": ""}', "status is 'fine'"),
        ('{"event": "end", "work": 0, "name": "a", "early_stopped": 1}', "early_stopped is 1"),
        ('{"event": "round", "work": 0}', "lacks number"),
        ('{"event": "compiles", "compiled": -5, "from_cache": 0}', "compiled is -5"),
        ('{"event": "verdict", "work": 0, "name": "a", "problem": {"m": "1"}}', "problem: lacks m, n or k"),
        (GOOD.replace('["a"]', '"a"'), "symbols is 'a'"),
        (GOOD.replace('"n": 4', '"n": 3'), "call 3 comes after call 4"),
        (GOOD, "call 4 comes after call 4"),
        (compact(GOOD, n=-1), "n is -1"),
        (compact(GOOD, work=9), "work 9 is not in the plan"),
        (compact(GOOD, symbols=["a", 1]), "symbols 2 is 1"),
        (compact(BEGIN, work=-1), "work is -1"),
        (compact(BEGIN, work=9), "work 9 is not in the plan"),
        (compact(BEGIN, event="round"), "lacks number"),
        (compact(BEGIN, event="end", early_stopped=1), "early_stopped is 1"),
        (compact(BEGIN, event="hello"), "event is 'hello'"),
    ],
)
def test_a_line_that_no_launcher_writes_is_refused_by_its_number(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(f"{GOOD}\n{line}\n")
    with pytest.raises(UserError) as caught:
        read_journal(path, 2)
    one_line(caught.value, words, f"{path}, line 2")


def test_a_last_line_that_a_crash_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    for cut in range(len(GOOD)):
        path.write_text(f"{GOOD}\n{GOOD[:cut]}")
        assert len(read_journal(path)) == 1
    assert read_journal(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: row.pop("gpu"), "lacks gpu"),
        (lambda row: row["gpu"].update(arch="../../etc/passwd"), "arch is '../../etc/passwd'"),
        (lambda row: row["gpu"].update(num_sms=10**30), "num_sms is 1000"),
        (lambda row: row.update(profiler="sh -c true"), "profiler is 'sh -c true'"),
        (lambda row: row.update(driver=["580"]), "driver is a list"),
        (lambda row: row["how"].update(seed="0"), "seed is '0'"),
        (lambda row: row["versions"].update(torch=None), "versions, 'torch' is nothing"),
    ],
)
def test_a_recording_with_a_wrong_field_is_refused_by_its_name(tmp_path: Path, change: Change, words: str) -> None:
    row = json.loads((RAW / "recording.json").read_text())
    change(row)
    (tmp_path / "recording.json").write_text(json.dumps(row))
    with pytest.raises(UserError) as caught:
        replay.load(tmp_path)
    one_line(caught.value, words, "is no recording")


def test_a_recording_is_read_with_all_that_the_probe_says_of_a_gpu(tmp_path: Path) -> None:
    before = replay.load(RAW)
    gpu = {**before.machine.gpus[0], "uuid": "GPU-1", "pci": "0000:c3:00"}
    replay.write_recording(
        tmp_path, replace(before.machine, gpus=(gpu,)), 0, before.profiler, "1", before.how, "--search all"
    )
    assert replay.load(tmp_path).machine.gpus == (gpu,)


def test_a_recording_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "recording.json")
    with pytest.raises(UserError, match="recording"):
        replay.load(tmp_path)


def test_a_replay_of_a_spoilt_plan_or_journal_is_one_line(tmp_path: Path) -> None:
    for name in ("plan.json", "journal.jsonl"):
        raw = tmp_path / name / "raw"
        shutil.copytree(RAW, raw)
        spoilt = raw / "00-screen" / "start00" / name
        spoilt.write_text("{}\n" + spoilt.read_text())
        launcher = replay.ReplayLauncher(replay.load(raw))
        with pytest.raises(UserError) as caught:
            launcher.timings(Plan.read(RAW / "00-screen" / "start00" / "plan.json"), tmp_path)
        one_line(caught.value, str(spoilt))
