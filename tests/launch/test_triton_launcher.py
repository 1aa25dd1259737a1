"""The launcher as profilers start it, with a generated script of Triton: interpreted, timed by the host's clock."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from samples import TEMPLATES, device

from gemm_tuner.compile import compile_tasks
from gemm_tuner.core.language import language_of
from gemm_tuner.core.records import Status
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.launch.journal import read_journal
from gemm_tuner.launch.plan import AA_TEST, FINALS, SCREEN, VENDOR, Method, Plan, Work
from gemm_tuner.measure.launcher_process import launcher_env
from gemm_tuner.measure.parse_run import collect
from gemm_tuner.profilers.clock import Clock

SIZE = GemmProblem(17, 16, 40, "fp32", "fp32", "fp32", bias=True)
CONFIGS = [KernelConfig("gemm_tile", 16, 16, 32, 1, 2, 4, 2), KernelConfig("gemm_split_k", 16, 16, 32, 1, 2, 4, 2)]
NAMES = [config.name for config in CONFIGS]
BY_PATH = str(Path(__file__).with_name("by_path.py"))


@pytest.mark.parametrize(("stage", "start"), [(SCREEN, [BY_PATH]), (FINALS, [])])
def test_every_candidate_is_called_and_timed(tmp_path: Path, stage: str, start: list[str]) -> None:
    pairs = [(SIZE, config) for config in CONFIGS]
    scripts = compile_tasks.write_scripts(TEMPLATES, tmp_path, pairs, device("sm_90").target)
    work = Work(SIZE, tuple(enumerate(NAMES)), rounds=2)  # a script a family, in order
    if stage == FINALS:
        work = replace(work, vendor=True, again=NAMES[0])
    method = Method(timed_calls=2, early_stop_ratio=1e6, flush_bytes=4096)
    files = tuple(script.file for script in scripts.values())
    plan = Plan(stage, files, (work,), method, device="cpu", clock=True)
    (tmp_path / "start").mkdir()
    plan.write(tmp_path / "start" / "plan.json")
    language = language_of("triton")
    env = launcher_env(language, tmp_path / "cache", language.interpreter_environment() or {})
    words = [sys.executable, *start, files[0], "--plan", "start/plan.json"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = collect(plan, read_journal(tmp_path / "start" / "journal.jsonl"), Clock(), tmp_path / "start")
    wanted = [*NAMES, VENDOR, AA_TEST] if stage == FINALS else NAMES
    assert set(found) == {(SIZE, name) for name in wanted}
    assert {(timing.status, len(timing.samples_us)) for timing in found.values()} == {(Status.OK, 2)}
    assert min(us for timing in found.values() for us in timing.samples_us) > 0
