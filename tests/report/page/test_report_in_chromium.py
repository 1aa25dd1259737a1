"""The report's page in a real browser; skipped where Playwright or a Chromium is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_runs import HOSTILE, configs, hostile_run, large_run, predicted_run, served, size, write_run

from gemm_tuner.report import data, html
from gemm_tuner.store import run_record

playwright = pytest.importorskip("playwright.sync_api")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        own = Path(started.chromium.executable_path)
        found = str(own) if own.exists() else next(filter(None, map(shutil.which, BROWSERS)), None)
        if found is None:
            pytest.skip("no Chromium here")
        made = started.chromium.launch(executable_path=found)
        yield made
        made.close()


class Opened:
    """A run's page in a browser, with what the browser said and asked for."""

    def __init__(self, browser: Any, folder: Path, width: int = 1400, scheme: str = "light", hash_: str = "") -> None:
        file = folder / "report.html"
        file.write_text(html.render(data.load(folder)), encoding="utf-8")
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(f"{file.as_uri()}{hash_}")
        self.own = file.as_uri()

    def __call__(self, script: str) -> Any:
        return self.page.evaluate(script)

    def assert_quiet(self) -> None:
        """No word on the console, no dialog, no request but for the file itself."""
        assert self.said == []
        assert [url.partition("#")[0] for url in self.asked] == [self.own]

    def names(self) -> list[str]:
        """The first column of the table of configurations, as shown."""
        return list(self("[...document.querySelectorAll('#configs-table tbody th')].map((cell) => cell.textContent)"))


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (400, "dark"),
        (1400, "light"),
        *(pytest.param(*one, marks=pytest.mark.grid) for one in ((400, "light"), (1400, "dark"))),
    ],
)
def test_the_page_opens_without_a_word_and_fits(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    opened = Opened(browser, write_run(tmp_path, size(), size(768, chosen="", failure="none")), width, scheme)
    assert opened("document.documentElement.scrollWidth") <= width
    assert opened("[...charts.keys()].sort()") == ["finals", "points", "roofline", "vendor"]
    background = opened("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 29)")
    opened.assert_quiet()


def test_every_kept_configuration_is_a_point(browser: Any, tmp_path: Path) -> None:
    opened = Opened(browser, write_run(tmp_path, size()))
    points = opened("charts.get('points').data.datasets.slice(1).flatMap((d) => d.data).filter((p) => p.row >= 0)")
    at = {(point["row"], point["x"], point["y"]) for point in points if point["timed"]}
    assert at == {(0, 9, 10.5), (1, 11, 10.25), (2, 12, 20)}
    below = [point for point in points if not point["timed"]]
    assert [(point["row"], point["x"]) for point in below] == [(3, 13)]
    assert opened("charts.get('points').scales.y.min") < below[0]["y"] < 10
    assert opened("tableOf(0).names") == [one.name for one in configs()]
    opened.page.select_option("#axis", "num_stages")
    assert opened("charts.get('points').data.datasets.map((d) => d.label).filter((l) => l.startsWith('num'))") == [
        "num_stages 2",
        "num_stages 3",
    ]
    opened.assert_quiet()


def test_tables_sort_and_filter(browser: Any, tmp_path: Path) -> None:
    opened = Opened(browser, write_run(tmp_path, size()))
    by_time = [configs()[row].name for row in (1, 0, 2, 3)]
    assert opened.names() == by_time
    heading = opened.page.locator("#configs-table thead button", has_text="predicted_us")
    heading.click()
    heading.click()
    assert opened.names() == [one.name for one in reversed(configs())]
    opened.page.select_option("#status", "ok")
    assert opened.names() == [configs()[1].name, configs()[0].name]
    opened.page.fill("#filter", "s3")
    assert opened.names() == [configs()[1].name]
    first = "document.querySelector('#time tbody th').textContent"
    opened.page.locator("#time thead button", has_text="stage").click()
    assert opened(first) == "compile"
    opened.page.locator("#time thead button", has_text="stage").click()
    assert opened(first) == "screen"
    opened.assert_quiet()


def test_the_address_and_the_buttons_choose_the_size(browser: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path, size(), size(768), size(1024, chosen="", failure="nothing was right", finals=()))
    opened = Opened(browser, folder, hash_=f"#{size(768).key}")
    assert opened("at('size').value") == size(768).key
    opened.page.click("#after")
    assert opened("location.hash") == f"#{size(1024).key}"
    assert opened.page.inner_text("#size-failure") == "No configuration: nothing was right"
    assert opened.page.is_visible("#no-finals")
    opened.page.locator("#sizes tbody a").first.click()
    opened.page.wait_for_function("at('size').selectedIndex === 0")
    opened.assert_quiet()


@pytest.mark.parametrize("width", [400, pytest.param(1400, marks=pytest.mark.grid)])
def test_what_is_served_stands_beside_the_winner(browser: Any, tmp_path: Path, width: int) -> None:
    """10 us won; each server with its ratios to its default and to that."""
    timed = size(
        served=served(vllm=(12.5, 20.0), sglang=(11.0, None)), overruled={configs()[0].name: "wrong: off by 3"}
    )
    opened = Opened(browser, write_run(tmp_path, timed, size(768)), width)

    def rows(part: str) -> list[list[str]]:
        script = f"[...document.querySelectorAll('{part} tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
        return list(opened(script))

    assert {(row[1], row[2], row[4], row[5]) for row in rows("#served")} == {
        ("vllm", "12.50", "1.600", "1.250"),
        ("sglang", "11.00", "-", "1.100"),
    }
    assert [(row[0], row[3], row[4]) for row in rows("#served-table")] == [
        ("vllm", "1.600", "1.250"),
        ("sglang", "-", "1.100"),
    ]
    assert all(configs()[2].name in row for row in (*rows("#served"), *rows("#served-table")))
    assert configs()[0].name in opened.page.inner_text("#overruled")
    assert opened("document.documentElement.scrollWidth") <= width
    opened.page.click("#after")
    assert not opened.page.is_visible("#served-part") and not opened.page.is_visible("#overruled")
    opened.assert_quiet()


def test_text_from_files_does_nothing(browser: Any, tmp_path: Path) -> None:
    opened = Opened(browser, hostile_run(tmp_path))
    assert opened("document.images.length") == 0
    assert HOSTILE in opened.names()
    opened.page.click("#after")
    assert HOSTILE in opened.page.inner_text("#size-failure")
    opened.assert_quiet()


def test_what_is_missing_breaks_nothing_in_the_browser(browser: Any, tmp_path: Path) -> None:
    guess = Opened(browser, predicted_run(tmp_path))
    assert guess("charts.get('points').options.scales.x.title.text") == "rank by prediction"
    assert guess("charts.get('points').data.datasets[1].data.map((p) => p.y)") == [8, 9, 10, 11]
    assert guess.names() == [configs()[row].name for row in (1, 0, 2, 3)]
    on_the_roof = guess("charts.get('roofline').data.datasets.find((d) => d.label === 'not timed').data[0].y")
    assert on_the_roof == pytest.approx(2 * 512**3 / 5e-6 / 1e12)
    guess.assert_quiet()
    for path in (tmp_path / run_record.TABLES).iterdir():
        path.unlink()
    bare = Opened(browser, tmp_path)
    assert bare.page.is_visible("#no-table")
    bare.assert_quiet()
    run_record.write(tmp_path, run_record.RunRecord((), 0.0, {}, {}, {}, {}, (), ""))
    Opened(browser, tmp_path).assert_quiet()


def test_print_is_light_and_fits_the_paper(browser: Any, tmp_path: Path) -> None:
    opened = Opened(browser, write_run(tmp_path, size()), 720, "dark")
    opened.page.emulate_media(media="print", color_scheme="dark")
    assert opened("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert opened("charts.get('points').options.scales.x.grid.color ?? Chart.defaults.borderColor") == "#e3e6ea"
    assert opened("document.documentElement.scrollWidth") <= 720
    opened.assert_quiet()


@pytest.mark.parametrize(("sizes", "rows"), [(2, 1000), pytest.param(20, 3000, marks=pytest.mark.grid)])
def test_a_page_of_many_configurations_opens_and_turns(browser: Any, tmp_path: Path, sizes: int, rows: int) -> None:
    """Of 2000, and of 60 000 with ``make test-all``."""
    opened = Opened(browser, large_run(tmp_path, sizes, rows))
    assert opened("document.querySelectorAll('*').length") < 5000
    assert opened("tableOf(0).rows") == rows
    opened.page.click("#after")
    assert opened("at('size').selectedIndex") == 1
    opened.page.click("#more")
    assert len(opened.names()) == 550
    opened.assert_quiet()
