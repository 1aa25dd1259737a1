"""Where a launcher runs: on which GPU, in which environment, beside which scripts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from launcher_runs import TWO
from samples import ROOT, config, device

from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.launch.journal import Judged, read_journal
from gemm_tuner.launch.plan import VERIFY, Method, Plan, Work
from gemm_tuner.measure.device import visible_gpu
from gemm_tuner.measure.launcher_process import LiveLauncher, launcher_env
from gemm_tuner.profilers.nsys import Nsys
from gemm_tuner.source import codegen


@pytest.mark.parametrize(
    ("backend", "gpu", "env", "expected"),
    [
        ("cuda", 1, {}, "1"),
        ("cuda", 0, {"CUDA_VISIBLE_DEVICES": "3"}, "3"),
        ("cuda", 1, {"CUDA_VISIBLE_DEVICES": "GPU-ab12, GPU-cd34"}, "GPU-cd34"),
        ("cuda", 0, {"CUDA_VISIBLE_DEVICES": ""}, "0"),
        ("hip", 1, {"ROCR_VISIBLE_DEVICES": "4,6"}, "6"),
        ("hip", 0, {"HIP_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "4,6"}, "6"),
        ("hip", 1, {"CUDA_VISIBLE_DEVICES": "2,5"}, "5"),
        ("hip", 0, {"HIP_VISIBLE_DEVICES": "7", "CUDA_VISIBLE_DEVICES": "2"}, "7"),
    ],
)
def test_the_gpu_is_the_one_that_torch_numbers(backend: str, gpu: int, env: dict[str, str], expected: str) -> None:
    assert visible_gpu(backend, gpu, env) == expected


def test_the_environment_of_a_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    env = LiveLauncher(LANGUAGE, Nsys(), tmp_path, tmp_path, "cuda", 1).environment()
    assert (env["CUDA_VISIBLE_DEVICES"], env["TRITON_CACHE_DIR"]) == ("3", str(tmp_path))
    assert "TRITON_INTERPRET" not in env and env["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    with monkeypatch.context() as with_own:
        with_own.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "4")
        env = LiveLauncher(LANGUAGE, Nsys(), tmp_path, tmp_path, "cuda", 1).environment()
        assert env["CUDA_DEVICE_MAX_CONNECTIONS"] == "4"
    env = LiveLauncher(LANGUAGE, Nsys(), tmp_path, tmp_path, "hip", 1).environment()
    assert env["ROCR_VISIBLE_DEVICES"] == "3"
    assert not {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS"} & set(env)


def test_a_plan_runs_where_its_scripts_have_been_moved_to(tmp_path: Path) -> None:
    """It names two of them and no folder: the launcher finds them beside the one that is started."""
    made, moved = tmp_path / "made", tmp_path / "moved"
    made.mkdir()
    families = [config(family=family, BLOCK_SIZE_M=64, BLOCK_SIZE_N=64) for family in ("gemm_tile", "gemm_persistent")]
    target = device("sm_80").target
    scripts = [codegen.write_script(ROOT / "templates", made, one.family, TWO, [one], target) for one in families]
    work = Work(TWO, tuple((index, one.name) for index, one in enumerate(families)))
    names, method = tuple(script.file for script in scripts), Method()
    Plan(VERIFY, names, (work,), method, device="cpu", stop_at_first_right=False).write(tmp_path / "plan.json")
    made.rename(moved)
    command = [sys.executable, str(moved / names[0]), "--plan", str(tmp_path / "plan.json")]
    env = launcher_env(LANGUAGE, tmp_path / "cache", {"TRITON_INTERPRET": "1"})
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    events = read_journal(tmp_path / "journal.jsonl", 1)
    assert {event.name for event in events if isinstance(event, Judged) and event.ok} == {one.name for one in families}
