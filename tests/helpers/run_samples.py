"""Runs' folders for tests: run.json, the table of each size, and the results file, all by the tuner's own writers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from result_files import write_choices
from samples import config

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.store import run_record
from gemm_tuner.store.results import Header
from gemm_tuner.store.run_record import Final, RunRecord, SizeRecord

HEADER = Header(
    tool_version="0.1.0", date="2026-01-31T12:00:00Z", device="NVIDIA H200", arch="sm_90", num_sms=132, driver="570.86",
    triton="3.6.0", torch="2.11.0", python="3.12.3", profiler="nsys", profiler_version="2023.4.4", init_type="randn",
    seed=0, l2="flushed", source="measured",
)  # fmt: skip
TILES = {letter: config(BLOCK_SIZE_M=16 << i) for i, letter in enumerate("abcdef")}  # six different configs


def named(letter: str) -> str:
    return TILES[letter].name


def choice(
    problem: GemmProblem, kernel: KernelConfig, median_us: float, spread: float | None = 0.01, source: str = "measured"
) -> Choice:
    """A row; spread: p20 and p80 lie this share below and above the median."""
    p20, p80 = (None, None) if spread is None else (median_us * (1 - spread), median_us * (1 + spread))
    return Choice(
        problem, kernel, source, Verified.TRUE, median_us, p20, p80, 30, None, 0.0, 0.1, "", None, False, 50.0
    )


def write_results(path: Path, choices: list[Choice], header: Header = HEADER, **failures: GemmProblem) -> Path:
    write_choices(path, header, choices, [(problem, reason) for reason, problem in failures.items()])
    return path


def write_table(
    folder: Path, problem: GemmProblem, times: Mapping[str, tuple[Status, float | None, float | None]]
) -> None:
    """times: by letter of TILES the status, the screening median and that of the finals, in microseconds."""
    rows = []
    for letter, (status, screen_us, finals_us) in times.items():
        measured = {"screen_us": screen_us, "screen_samples": 5, "finals_us": finals_us, "finals_samples": 30}
        rows.append({"name": named(letter), **TILES[letter].to_dict(), "status": status.value, **measured})
    (folder / "configs").mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(folder / "configs" / f"{problem.key}.csv.gz", index=False)


def write_run(folder: Path, sizes: list[SizeRecord], header: Header = HEADER) -> Path:
    """A run's folder with ``run.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    record = RunRecord(
        ("tune_gemm.py",), 1.0, asdict(header), {"name": header.device}, {}, {}, tuple(sizes), "tuned.yaml"
    )
    run_record.write(folder, record)
    return folder


def size(problem: GemmProblem, chosen: str = "", finals: Mapping[str, tuple[float, ...]] | None = None) -> SizeRecord:
    """A size of a run: the letter of the chosen config, and the finals' samples by letter."""
    named_finals = tuple(Final(named(letter), samples) for letter, samples in (finals or {}).items())
    failure = "" if chosen else "no configuration has a time"
    return SizeRecord(problem, 6, (), {"ok": 6}, 1.0, named_finals, named(chosen) if chosen else "", failure)
