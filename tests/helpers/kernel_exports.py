"""A user's kernel with its results, and commands that export it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from gemm_tuner.cli.main import main
from gemm_tuner.core.choice import Choice
from gemm_tuner.core.records import Verified
from gemm_tuner.cute.problem import problem_of
from gemm_tuner.kernels import kernel_spec_file
from gemm_tuner.kernels.workload import configs_of
from gemm_tuner.store import results, run_record
from gemm_tuner.store.results import Header
from gemm_tuner.store.run_record import RunRecord, SizeRecord

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "kernels"
BUCKETS = {"key": "bucket(rows)", "buckets": {"small": 256, "medium": 2048, "large": "inf"}}
HEADER = Header(
    "1", "2026-01-31T12:00:00Z", "NVIDIA H200", "sm_90", 132, "", "3.6", "2.11", "3.12", "nsys", "1", "randn", 0,
    "flushed", "measured", "",
)  # fmt: skip
ONE, FOUR = "softmax_rows_ROWS1_num_warps4", "softmax_rows_ROWS4_num_warps4"
# By rows: the time of each configuration. At 1000 and 1500 rows the best of each is not the best of both.
TIMES: Mapping[int, Mapping[str, float]] = {
    128: {ONE: 2.0, FOUR: 3.0},
    1000: {ONE: 5.0, FOUR: 6.0},
    1500: {ONE: 20.0, FOUR: 7.0},
    4096: {ONE: 40.0, FOUR: 30.0},
}


def tuned(
    folder: Path,
    how: Mapping[int, Verified] | None = None,
    source: str = "measured",
    times_of: Mapping[int, Mapping[str, float]] = TIMES,
    **keys: Any,
) -> Path:
    """A results file and its run, as one on a GPU would have left them. how: rows that were checked otherwise."""
    folder.mkdir(exist_ok=True)
    (folder / "softmax.py").write_text((EXAMPLE / "softmax.py").read_text())
    cases = {"rows": list(times_of), "cols": 100, "dtype": "fp16"}
    params = {"ROWS": [1, 4], "num_warps": [4]}
    spec = {**yaml.safe_load((EXAMPLE / "softmax.yaml").read_text()), "cases": cases, "params": params, **keys}
    spec = {key: value for key, value in spec.items() if value is not None}
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    read, of = kernel_spec_file.read(folder / "spec.yaml")
    problems = [problem_of(read, case) for case in of]
    configs = {one.name: one for one in configs_of(read)}
    (folder / "configs").mkdir()
    rows, sizes = [], []
    for problem, times in zip(problems, times_of.values(), strict=True):
        best = min(times, key=times.__getitem__)
        verified = (how or {}).get(dict(problem.case)["rows"], Verified.TRUE)
        table = pd.DataFrame(
            {"name": list(times), "status": "ok", "finals_us": None, "screen_us": list(times.values())}
        )
        table.to_csv(folder / "configs" / f"{problem.key}.csv.gz", index=False)
        choice = Choice(
            problem,
            configs[best],
            source,
            verified,
            times[best],
            1.0,
            2.0,
            10,
            None,
            0.0,
            0.1,
            "",
            None,
            False,
            0.0,
        )
        rows.append(results.choice_row(choice))
        sizes.append(SizeRecord(problem, 2, (), {"ok": 2}, 0.0, chosen=best))
    header = {**vars(HEADER), "run": str(folder)}
    run_record.write(folder, RunRecord((), 1.0, header, {}, {}, {}, tuple(sizes), "tuned.yaml"))
    results.write_rows(folder / "tuned.yaml", header, rows, [])
    return folder / "tuned.yaml"


def export(path: Path, to: str, *more: str) -> int:
    return main(["export", str(path), "--to", to, "-o", str(path.parent / "out"), *more])
