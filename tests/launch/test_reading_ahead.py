"""Kernels that a launcher reads while it waits: those that are in the cache, which a launch then finds in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import samples

from gemm_tuner.compile.compile_tasks import write_scripts
from gemm_tuner.core.language import language_of
from gemm_tuner.launch import waiting
from gemm_tuner.launch.loading import LoadedAhead
from gemm_tuner.launch.plan import FINALS, SCREEN, VERIFY, Method, Plan, Work
from gemm_tuner.launch.reading_ahead import read_ahead

SIZE, CONFIG = samples.problem(128, 128, 128), samples.config(BLOCK_SIZE_M=32, BLOCK_SIZE_N=32, BLOCK_SIZE_K=32)
OTHER = replace(CONFIG, BLOCK_SIZE_N=64)
GEMM = Work(SIZE, ((0, CONFIG.name),))
CHILD = Path(__file__).with_name("reads_ahead.py")


@pytest.mark.parametrize("stage", [FINALS, VERIFY])
def test_what_is_in_the_cache_is_read_and_nothing_is_compiled(stage: str, tmp_path: Path) -> None:
    """Of a check neither the kernel of the companion size, which nobody has compiled."""
    target = samples.device("sm_90").target
    scripts = write_scripts(samples.TEMPLATES, tmp_path, [(SIZE, CONFIG), (SIZE, OTHER)], target)
    (script,) = scripts.values()
    where = os.pathsep.join([str(samples.ROOT), str(samples.ROOT / "tests" / "helpers")])
    env = {**os.environ, **language_of("triton").environment(tmp_path / "cache"), "PYTHONPATH": where}
    sizes = json.dumps([SIZE.m, SIZE.n, SIZE.k])
    command = [sys.executable, str(CHILD), str(tmp_path / script.file), CONFIG.name, OTHER.name, sizes, stage]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == {"none": [], "ahead": ["cache"], CONFIG.name: [], OTHER.name: ["compiler"]}


@pytest.mark.parametrize("other", [{"stage": SCREEN}, {"device": "cpu"}], ids=["screening", "no GPU"])
def test_plans_that_gain_nothing_read_nothing(other: dict[str, str]) -> None:
    plan = replace(Plan(FINALS, ("",), (GEMM,), Method(), device="cuda"), **other)
    read_ahead(plan, [], stop=lambda: pytest.fail("it was asked whether to go on"))


def test_a_launcher_that_waits_reads_what_a_check_will_launch_until_its_plan_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the very scripts that it then launches. A line that came with the one before is seen, too."""
    scripts = write_scripts(samples.TEMPLATES, tmp_path, [(SIZE, CONFIG)], samples.device("sm_90").target)
    (script,) = scripts.values()
    plan, path = Plan(VERIFY, (script.file,), (GEMM,), Method(), device="cpu"), tmp_path / "plan.json"
    plan.write(path)
    loaded: list[str] = []
    seen: list[tuple[Plan, list[ModuleType], list[bool]]] = []

    def load(path: str) -> ModuleType:
        loaded.append(path)
        module = ModuleType(path)
        module.CONFIGS = {CONFIG.name: {}}  # type: ignore[attr-defined]
        return module

    def reads(plan: Plan, scripts: list[ModuleType], stop: Callable[[], bool]) -> None:
        was = stop()
        if not seen:
            os.write(end, b"plan.json\n")
        seen.append((plan, scripts, [was, stop()]))

    monkeypatch.setattr(waiting, "read_ahead", reads)
    start, end = os.pipe()
    with open(start, "rb", buffering=0) as stream:
        arguments = Namespace(scripts_dir=tmp_path, turn=None)
        for _ in range(2):
            waiting.open_for(path, arguments, load, stream, LoadedAhead())
        assert waiting.line_of(stream) == "plan.json"
    os.close(end)
    assert [one[0] for one in seen] == [plan, plan] and loaded == [str(tmp_path / script.file)] * 2
    assert [one[2] for one in seen] == [[False, True], [True, True]]
