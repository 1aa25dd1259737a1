"""Rows C9, C10, R3 and T25 of docs/parity.md on GPUs: one run of a user's kernel, by all GPUs of the machine."""

from __future__ import annotations

import contextlib
import io
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pytest
import yaml
from gpu_work import ROOT, Gpu

from gemm_tuner.cli import main as cli
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.core.errors import EXIT_INPUT, EXIT_OK
from gemm_tuner.core.records import Verified
from gemm_tuner.decide.finals_plan import LEAST_PART, MOST_TIMES
from gemm_tuner.launch.journal import Called, Compiles, End, Event, read_journal
from gemm_tuner.launch.plan import FINALS, SCREEN, Plan
from gemm_tuner.measure import device
from gemm_tuner.measure.machine_check import facts, findings
from gemm_tuner.measure.machine_check.gpus import NOT_LOCKED
from gemm_tuner.search.genetic import GENERATIONS, LEAST
from gemm_tuner.store import results
from gemm_tuner.store.results import Row
from gemm_tuner.store.store import STORE_FILE, Store

WARM, ITERS, WORKERS = 3, 20, 16
KERNEL = f"{ROOT / 'examples' / 'kernels' / 'softmax.py'}"


def spec_of(cases: int) -> dict[str, object]:
    return {
        "kernel": f"{KERNEL}:softmax_rows",
        "cases": {"rows": [256 * (1 + case) for case in range(cases)], "cols": 1000, "dtype": "fp16"},
        "tensors": {
            "x": {"shape": ["rows", "cols"], "dtype": "dtype"},
            "out": {"shape": ["rows", "cols"], "dtype": "dtype", "output": True},
        },
        "args": {"stride": "cols", "n_rows": "rows", "n_cols": "cols", "BLOCK": "next_power_of_2(cols)"},
        "params": {"ROWS": [1, 2, 4, 8, 16, 32, 64], "num_warps": [1, 2, 4, 8, 16], "num_stages": [1, 2, 3, 4]},
        "grid": ["cdiv(rows, ROWS)"],
        "reference": f"{KERNEL}:reference",
    }


@dataclass(frozen=True)
class Run:
    """workers: the most compile workers that there were at once."""

    folder: Path
    rows: tuple[Row, ...]
    workers: int

    def starts(self, stage: str) -> list[tuple[Plan, list[Event]]]:
        """The plan and the journal of each launcher's work of a stage."""
        plans = [(Plan.read(path), path) for path in sorted(self.folder.glob(f"raw/*-{stage}/start*/plan.json"))]
        return [(plan, read_journal(path.with_name("journal.jsonl"), len(plan.work))) for plan, path in plans]


@pytest.fixture(scope="module")
def run(gpu: Gpu, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder, workers = tmp_path_factory.mktemp("parity"), [0]
    count = len(device.look().gpus)
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec_of(count)))
    hand_out = CompilePool._hand_out

    def counted(pool: CompilePool, *given: object) -> None:
        hand_out(pool, *given)  # type: ignore[arg-type]
        workers[0] = max(workers[0], len(pool._workers))

    words = ["kernel", "--spec", str(folder / "spec.yaml"), "--output_dir", str(folder), "-o", str(folder / "t.yaml")]
    words += ["--search", "genetic", "--warmup", str(WARM), "--iters", str(ITERS), "--num_threads", str(WORKERS)]
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        patch.setattr(CompilePool, "_hand_out", counted)
        patch.setenv("GEMM_TUNER_CACHE_DIR", str(folder / "cache"))
        status = cli.main([*words, "--profiler", "proton", "--ngpus", str(count), "--keep"])
    assert status == EXIT_OK, said.getvalue()
    found = results.read(folder / "t.yaml")
    at = results.run_folder(folder / "t.yaml", found.header)
    assert at is not None and len(found.rows) == count
    yield Run(at, found.rows, workers[0])


def test_a_genetic_search_times_generations_and_not_the_whole_space(run: Run) -> None:
    for row in run.rows:
        table = pd.read_csv(run.folder / "configs" / f"{row.problem.key}.csv.gz")
        asked = table["screen_us"].notna().sum()
        assert LEAST < asked <= GENERATIONS * LEAST < len(table)
        assert row.verified is Verified.TRUE and row.facts["median_us"] > 0
    assert len(run.starts(SCREEN)) > 1


def calls(events: list[Event]) -> Counter[tuple[int, str, bool]]:
    """How many calls of a work's configuration were made: to warm up, and timed."""
    return Counter((event.work, event.name, event.warm) for event in events if isinstance(event, Called))


def test_warm_ups_and_rounds_are_as_many_as_asked_for(run: Run) -> None:
    for plan, events in run.starts(SCREEN):
        made, ends = calls(events), [event for event in events if isinstance(event, End)]
        assert ends
        for end in ends:
            assert made[end.work, end.name, True] == WARM
            assert made[end.work, end.name, False] == (2 if end.early_stopped else plan.method.timed_calls)
    for plan, events in run.starts(FINALS):
        assert plan.method.timed_calls == ITERS
        made, ends = calls(events), [event for event in events if isinstance(event, End)]
        assert ends
        for end in ends:
            rounds = plan.work[end.work].rounds or ITERS
            assert math.ceil(LEAST_PART * ITERS) <= rounds <= MOST_TIMES * ITERS
            assert made[end.work, end.name, False] == rounds
            assert made[end.work, end.name, True] == WARM + 1  # the first of all shows whether it runs


def test_the_command_that_locks_clocks_has_the_highest_clock_of_this_gpu(gpu: Gpu, tmp_path: Path) -> None:
    """Whether clocks are locked shows only on an idle GPU, so that is set here."""
    seen = facts.gather(tmp_path, ROOT / "rules", "auto", "")
    assert seen.states and seen.states[0].vendor == ("amd" if gpu.device.target.backend == "hip" else "nvidia")
    mends = [one.mend for one in findings.judge(replace(seen, states=(replace(seen.states[0], clocks=NOT_LOCKED),)))]
    if gpu.device.target.backend == "hip":
        assert any("rocm-smi" in mend for mend in mends)
        return
    clock_mhz = seen.states[0].max_sm_clock_mhz
    assert clock_mhz is not None and clock_mhz > 500
    assert any(f"--lock-gpu-clocks={clock_mhz},{clock_mhz}" in mend for mend in mends)


def test_as_many_workers_compile_as_asked_for_and_launchers_compile_nothing(run: Run) -> None:
    assert run.workers == WORKERS
    launchers = [events for stage in (SCREEN, FINALS) for _, events in run.starts(stage)]
    compiled = [event.compiled for events in launchers for event in events if isinstance(event, Compiles)]
    assert len(compiled) == len(launchers) and not any(compiled)


def test_all_gpus_time_their_share_and_more_than_there_are_is_refused(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count, store = len(run.rows), Store(run.folder / STORE_FILE)
    used = [label for row in run.rows for label in store.timed_on(row.problem, SCREEN)]
    store.close()
    assert len(used) == len(set(used)) == count
    words = ["-m", "64", "-n", "64", "-k", "64", "--output_dir", str(tmp_path), "--ngpus", str(count + 1)]
    assert cli.main(words) == EXIT_INPUT
    assert f"1 to {count}" in capsys.readouterr().err
