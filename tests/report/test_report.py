"""The report of a run: what is in the files is on the page, as text, and what is missing breaks nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import report_runs
from report_runs import (
    HOSTILE,
    configs,
    hostile_run,
    measured_table,
    predicted_run,
    record,
    size,
    write_run,
    write_table,
)
from samples import ROOT

from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import EXIT_INPUT
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.launch.plan import VENDOR
from gemm_tuner.report import data, html, summary
from gemm_tuner.report.compare import judge, sides
from gemm_tuner.report.compare.sides import Timed
from gemm_tuner.store import run_record
from gemm_tuner.store.run_record import Final

CODES = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
MAPPINGS = ("device", "header", "stages", "facts", "notes")


class Page(HTMLParser):
    """The elements of a page, the JSON in it, and the text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.json: dict[str, Any] = {}
        self.scripts = 0
        self.words = ""
        self.inside: tuple[str, str] = ("", "")
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.inside = (tag, str(dict(attrs).get("id") or ""))
            self.scripts += tag == "script" and not self.inside[1]

    def handle_endtag(self, tag: str) -> None:
        if tag == self.inside[0]:
            self.inside = ("", "")

    def handle_data(self, text: str) -> None:
        tag, name = self.inside
        if name:
            self.json[name] = json.loads(text)
        elif not tag:
            self.words += text + " "


def page_of(folder: Path) -> Page:
    return Page(html.render(data.load(folder)))


def unpacked(packed: dict[str, Any]) -> dict[str, list[Any]]:
    """A packed table's columns, by the forms that summary.pack_column documents."""
    names, before = [], ""
    for one in packed["names"]:
        before = before[: int(one[:2], 16)] + one[2:]
        names.append(before)
    columns = {"name": names}
    for name, column in packed["columns"].items():
        if "all" in column:
            values = [column["all"]] * packed["rows"]
        elif "of" in column:
            values = [column["of"][CODES.index(code)] for code in column["at"]]
        elif "rows" in column:
            at = dict(zip(column["rows"], column["values"], strict=True))
            values = [at.get(row) for row in range(packed["rows"])]
        else:
            values = column["values"]
        columns[name] = values
    return columns


def test_every_cell_of_a_table_is_in_the_page(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path, size()))
    columns = unpacked(page.json["table-0"])
    expected = run_record.read_table(tmp_path, size().key).dropna(axis=1, how="all")
    assert set(columns) == set(expected.columns)
    for name in expected.columns:
        cells = [None if value != value else value for value in expected[name].tolist()]
        assert columns[name] == cells, name


@pytest.mark.parametrize(
    "values",
    [
        [1, 1, 1],
        [None, None],
        [],
        ["a", None, "b", "a"],
        [None] * 20 + [5],
        [*range(61), None],
        [*range(62), None],
        [i / 8 for i in range(200)],
    ],
)
def test_a_column_unpacks_to_what_was_packed(values: list[Any]) -> None:
    packed = json.loads(json.dumps(summary.pack_column(values)))
    assert unpacked({"rows": len(values), "names": [], "columns": {"c": packed}})["c"] == values


def test_names_unpack_to_what_was_packed() -> None:
    names = ["gemm_tile_BM16", "gemm_tile_BM16", "gemm_tile_BM128", "x", "", "a" * 300, "a" * 300 + "b"]
    assert unpacked({"rows": 7, "names": summary.pack_names(names), "columns": {}})["name"] == names


def test_the_whole_record_is_in_the_page(tmp_path: Path) -> None:
    run = record(size(), size(768, finals=(), chosen="", failure="nothing was right"))
    page = page_of(write_run(tmp_path, *run.sizes))
    shown = page.json["summary"]
    for name in ("seconds", "results_file", "facts", "header", "notes"):
        assert shown[name] == getattr(run, name)
    assert shown["stages_s"] == run.stages
    assert sum(run.stages.values()) + shown["outside_stages_s"] == pytest.approx(run.seconds)
    assert shown["outside_stages_s"] > 0
    assert shown["command"] == list(run.command)
    assert {key: shown["device"][key] for key in ("name", "num_sms", "dram_gbps")} == {
        key: run.device[key] for key in ("name", "num_sms", "dram_gbps")
    }
    for row, one in zip(shown["sizes"], run.sizes, strict=True):
        assert row["funnel"] == list(one.funnel)
        assert row["counts"] == one.counts
        assert (row["key"], row["total"], row["chosen"], row["failure"]) == (
            one.key,
            one.total,
            one.chosen,
            one.failure,
        )
        assert {f["name"]: tuple(f["samples_us"]) for f in row["finals"]} == {f.name: f.samples_us for f in one.finals}
    for text in (
        "nothing was right",
        "shared_memory_fits",
        "It must fit.",
        "noise floor",
        "580.1",
        "compile",
        "early_stopped",
    ):
        assert text in page.words


def test_the_numbers_of_a_size_follow_from_its_samples(tmp_path: Path) -> None:
    one = summary.of_report(data.load(write_run(tmp_path, size())))["sizes"][0]
    assert one["time_us"] == pytest.approx(10)
    assert one["vendor_us"] == pytest.approx(12)
    assert one["vendor_ratio"] == pytest.approx(1.2)
    assert one["tflops"] == pytest.approx(2 * 512**3 / 1e-5 / 1e12)
    assert one["roofline_pct"] == pytest.approx(50)
    assert one["intensity"] == pytest.approx(2 * 512**3 / (3 * 512 * 512 * 2))
    assert (one["kept"], one["timed"]) == (4, 3)
    low, high = one["vendor_ratio_interval"]
    assert low < one["vendor_ratio"] < high


def test_times_of_one_kind_are_compared(tmp_path: Path) -> None:
    """Few configurations have finals; the point of each is its screening."""
    report = data.load(write_run(tmp_path, size()))
    assert [row["measured_us"] for row in data.fastest(report.sizes[0], 2)] == [10.25, 10.5]


def test_the_page_and_the_results_file_give_the_same_ratio(tmp_path: Path) -> None:
    """The record's times, and not the medians of its samples, which need not be of the same rounds."""
    chosen = configs()[1].name
    finals = (
        Final(VENDOR, (12.0,) * 5 + (99.0,) * 6, 11.5, 11.0, 12.1, 5, 2.0),
        Final(chosen, (10.0,) * 5, 10.2, 10.0, 10.4, 5, 2.0),
    )
    one = summary.of_report(data.load(write_run(tmp_path, size(finals=finals))))["sizes"][0]
    assert (one["time_us"], one["vendor_us"], one["vendor_ratio"]) == (10.2, 11.5, 11.5 / 10.2)
    low, high = one["vendor_ratio_interval"]
    before, after = (  # what the subcommand compare says of the same two times
        Timed("", "measured", us, interval_us=interval) for us, interval in ((10.2, (10.0, 10.4)), (11.5, (11.0, 12.1)))
    )
    assert ((low, high), "processes") == judge.ratio_interval(before, after)
    assert 11.0 / 10.4 < low < one["vendor_ratio"] < high < 12.1 / 10.0


def test_a_run_without_finals_has_the_same_time_in_the_page_and_in_a_comparison(tmp_path: Path) -> None:
    folder = write_run(tmp_path, size(finals=()))
    shown = data.load(folder).sizes[0]
    assert not shown.finalists and shown.time_us is not None
    assert sides.load(folder).sizes[shown.problem].median_us == shown.time_us


def test_text_from_files_is_never_markup(tmp_path: Path) -> None:
    page = page_of(hostile_run(tmp_path))
    assert page.scripts == len(html.SCRIPTS)
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert page.words.count(HOSTILE) >= 10
    assert HOSTILE in unpacked(page.json["table-0"])["message"]
    assert page.json["summary"]["sizes"][1]["failure"] == HOSTILE


def test_the_page_loads_nothing_and_runs_its_own_scripts_only(tmp_path: Path) -> None:
    text = html.render(data.load(write_run(tmp_path, size())))
    page = Page(text)
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv")) or ""
    assert policy.startswith("default-src 'none'")
    assert policy.count("'sha256-") == len(html.SCRIPTS) + 1
    assert "unsafe" not in policy
    assert [a["href"] for tag, a in page.tags if tag == "link"] == ["data:,"]
    assert not [a for tag, a in page.tags if "src" in a or (tag == "a" and not str(a["href"]).startswith("#"))]
    assert "sourceMappingURL" not in text


def test_the_scripts_of_the_page_put_text_in_as_text() -> None:
    for name in html.SCRIPTS:
        script = (html.PAGE / name).read_text(encoding="utf-8")
        assert "</script" not in script.lower()
        if name != html.CHARTS:
            assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", script), name


@pytest.mark.parametrize("sizes", [3, pytest.param(20, marks=pytest.mark.grid)])
def test_a_page_of_20_sizes_of_3000_configurations_is_under_8_mib(tmp_path: Path, sizes: int) -> None:
    """As much a size where they are fewer."""
    folder = report_runs.large_run(tmp_path, sizes)
    text = html.render(data.load(folder))
    assert len(text.encode()) < sizes * 8 * 2**20 / 20
    assert sum(one["rows"] for name, one in Page(text).json.items() if name != "summary") == 3000 * sizes


def test_a_long_message_is_cut(tmp_path: Path) -> None:
    folder = write_run(tmp_path, size())
    write_table(folder, size().key, measured_table("x" * 5000))
    assert max(map(len, filter(None, unpacked(page_of(folder).json["table-0"])["message"]))) == summary.MAX_TEXT


def test_a_predicted_time_is_called_predicted_and_gives_no_speed(tmp_path: Path) -> None:
    folder = predicted_run(tmp_path)
    one = summary.of_report(data.load(folder))["sizes"][0]
    assert (one["time_us"], one["time_source"], one["timed"]) == (8.0, "predicted", 0)
    assert one["tflops"] is one["roofline_pct"] is one["vendor_ratio"] is None
    assert "predicted by the model: nothing here was timed" in page_of(folder).words


@pytest.mark.parametrize(
    ("sizes", "changes"),
    [
        ((), {}),
        ((size(finals=(), chosen=""),), {}),
        ((size(finals=(Final(configs()[1].name, ()),)),), {}),
        ((size(finals=(Final(configs()[1].name, (3.0,)),)),), {}),
        ((size(funnel=(), counts={}, total=0),), {}),
        (
            (size(),),
            {"device": {}, "header": {}, "stages": {}, "facts": {}, "notes": {}, "command": (), "seconds": 0.0},
        ),
        ((size(chosen="not_in_the_table"),), {}),
    ],
    ids=["no size", "no finals", "no samples", "one sample", "no funnel", "no environment", "no such configuration"],
)
def test_what_is_missing_breaks_nothing(tmp_path: Path, sizes: Any, changes: Any) -> None:
    page = page_of(write_run(tmp_path, *sizes, **changes))
    assert len(page.json["summary"]["sizes"]) == len(sizes)


def test_a_size_without_a_table_is_shown_without_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path, size(), size(768))
    (folder / run_record.TABLES / f"{size().key}.csv.gz").unlink()
    page = page_of(folder)
    assert [one["has_table"] for one in page.json["summary"]["sizes"]] == [False, True]
    assert set(page.json) == {"summary", "table-1"}


def test_without_the_vendor_there_is_no_ratio(tmp_path: Path) -> None:
    report = data.load(write_run(tmp_path, size(finals=size().finals[1:])))
    assert report.vendor_ratio is None
    assert report.sizes[0].time_us == pytest.approx(10)


def test_without_samples_the_time_is_the_table_s(tmp_path: Path) -> None:
    first, second = (configs()[row].name for row in (0, 1))
    runs = write_run(tmp_path, size(finals=(), chosen=second), size(768, finals=(), chosen=first))
    times = [(one.time_us, one.time_source) for one in data.load(runs).sizes]
    assert times == [(10.0, "finals"), (10.5, "screen")]


def test_the_command_writes_the_page_into_the_run_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path, size())
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == ""
    assert Page((folder / "report.html").read_text()).json["summary"]["num_chosen"] == 1


def test_json_is_the_only_thing_on_standard_output(tmp_path: Path) -> None:
    line = [sys.executable, str(ROOT / "tune_gemm.py"), "report", str(hostile_run(tmp_path)), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["sizes"][1]["failure"] == HOSTILE
    assert not (tmp_path / "report.html").exists()


def test_text_says_the_essentials_without_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    funnel = ({**report_runs.FUNNEL[0], "why": "[red]odd\x1b[31m"},)
    folder = write_run(tmp_path, size(funnel=funnel), size(768, chosen="", failure="nothing was right"))
    assert main(["report", str(folder), "--text", "--top", "1"]) == 0
    said = capsys.readouterr().out
    for text in (
        *(configs()[1].name, "10.25", "10.00", "12.00", "1.200", "shared_memory_fits", "[red]odd", "early_stopped"),
        *("nothing was right", "torch.mm", "screen", "580.1", "kernels compiled", "1 of 2 sizes"),
    ):
        assert text in said, text
    assert "\x1b" not in said
    assert configs()[0].name not in said


def test_a_folder_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == EXIT_INPUT
    assert "holds no run" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_a_size_is_reported_by_its_own_rate(tmp_path: Path) -> None:
    scaled = replace(size(), problem=GemmProblem(512, 512, 512, "fp8_e4m3", "fp8_e4m3", scaling="tensor"))
    report = data.load(write_run(tmp_path, size(), scaled))
    assert report.roofs == {"bf16": 989.0, "fp8_e4m3": 1979.0}
