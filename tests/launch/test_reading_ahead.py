"""Kernels that a launcher reads while it waits: those that are in the cache, which a launch then finds in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import samples

from gemm_tuner.compile.compile_tasks import write_scripts
from gemm_tuner.core.language import language_of
from gemm_tuner.launch.plan import FINALS, VERIFY

SIZE, CONFIG = samples.problem(128, 128, 128), samples.config(BLOCK_SIZE_M=32, BLOCK_SIZE_N=32, BLOCK_SIZE_K=32)
OTHER = replace(CONFIG, BLOCK_SIZE_N=64)
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
