"""Draws docs/report.png, the first screens of a report, from the rows of a shipped results file.

    python docs/make_report_picture.py        # needs Playwright and a Chromium

Times, ratios and configurations are those of the file, which was measured on an H200; how many configurations the
space has and the rules keep is counted here. What the file does not hold (samples, times of all configurations) is not
in the picture.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from gemm_tuner.gemm.model import roofline_us
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.report import data, html
from gemm_tuner.space import space
from gemm_tuner.store import results, run_record
from gemm_tuner.store.results import Row
from gemm_tuner.store.run_record import Final, RunRecord, SizeRecord
from gemm_tuner.store.served import served_rows

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "tuned" / "nvidia_h200_fp8_block.yaml"
WIDTH, HEIGHT = 1200, 1050


def record() -> RunRecord:
    found = results.read(RESULTS)
    arch = str(found.header["arch"])
    rules = ROOT / "rules"
    device = space.load(space.space_path(rules, arch), arch).device
    candidates = prepare.load_space(RunOptions((), ROOT / "templates", rules, ROOT), device)

    def size(row: Row) -> SizeRecord:
        pruned, total = prepare.cut_space(candidates, row.problem, device), len(candidates.configs)
        quantiles = tuple(row.facts[key] for key in ("p20_us", "median_us", "p80_us"))
        us, processes, spread = (row.facts[key] for key in ("median_us", "processes", "process_spread_pct"))
        return SizeRecord(
            problem=row.problem,
            total=total,
            funnel=tuple({**dataclasses.asdict(one), "kind": one.kind.value} for one in pruned.funnel if one.cut),
            counts={"pruned": total - len(pruned.kept), "kept": len(pruned.kept)},
            roofline_us=roofline_us(row.problem, device),
            finals=(Final(str(row.facts["name"]), quantiles, us, None, None, processes, spread),),
            chosen=str(row.facts["name"]),
            served=served_rows(row.served, predicted=False)["served"],
        )

    sizes = tuple(map(size, found.rows))
    return RunRecord((), 0.0, dict(found.header), dataclasses.asdict(device), {}, {}, sizes, RESULTS.name)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        run_record.write(Path(folder), record())
        page_file = Path(folder) / "report.html"
        page_file.write_text(html.render(data.load(Path(folder))), encoding="utf-8")
        browser = started.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(page_file.as_uri())
        page.screenshot(path=ROOT / "docs" / "report.png")
        browser.close()


if __name__ == "__main__":
    main()
