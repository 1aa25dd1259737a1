"""What this machine offers a run: a launcher for each GPU, and none without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from samples import problem
from tuning import SM_90, session

from gemm_tuner.executors.local import LocalExecutor, Profilers
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.measure.launcher_process import LiveLauncher
from gemm_tuner.measure.screening import Resident, StagedLauncher
from gemm_tuner.measure.torch_ahead import TorchAhead
from gemm_tuner.profilers.ncu import Ncu
from gemm_tuner.profilers.nsys import Nsys


def executor(folder: Path, profilers: Profilers | None = None, **changes: Any) -> LocalExecutor:
    run = session(folder, problem(64, 64, 64))
    of: dict[str, Any] = {"language": LANGUAGE, "target": SM_90.target, "kind": "gemm", "folder": run.folder}
    limits = {"workers": 2, "compile_limit_s": 60.0, "launch_limit_s": 60.0, "wind_down": lambda: False, "say": print}
    return LocalExecutor(**{**of, **limits, "profilers": profilers, **changes})


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CUDA_VISIBLE_DEVICES", "GEMM_TUNER_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_each_launcher_sees_its_own_gpu_and_takes_turns_on_it_alone(tmp_path: Path) -> None:
    nsys = Nsys()
    launchers = executor(tmp_path, Profilers(nsys, nsys), gpus=(1, 3)).launchers()
    lives = [one for one in launchers if isinstance(one, LiveLauncher)]
    assert [one.environment()["CUDA_VISIBLE_DEVICES"] for one in lives] == ["1", "3"]
    assert len({one.turn for one in lives}) == 2 and all(one.overlaps for one in launchers)


def test_a_gpu_that_serves_one_process_at_a_time_has_launchers_that_do_not_overlap(tmp_path: Path) -> None:
    asked = {"gpus": (0,), "shares_gpus": lambda: False}
    for profilers in (Profilers(Nsys(), Nsys()), Profilers(Nsys(), None), Profilers(Nsys(), Ncu())):
        assert not any(one.overlaps for one in executor(tmp_path, profilers, **asked).launchers())


def test_what_has_imported_torch_waits_for_screening_in_a_process_alone(tmp_path: Path) -> None:
    for profilers, used in ((Profilers(Nsys(), None), True), (Profilers(Nsys(), Ncu()), False), (None, False)):
        ahead = TorchAhead.begin()
        first, *_ = [*executor(tmp_path, profilers, gpus=(0, 1), torch_ahead=ahead).launchers(), None]
        process = ahead.become(["-c", ""], {}, tmp_path / "log")
        assert (process is not None) is used
        if process is not None:
            process.kill()
        assert used is (isinstance(first, StagedLauncher) and isinstance(first.screening, Resident))


def test_nothing_is_timed_without_a_profiler_or_a_recording(tmp_path: Path) -> None:
    assert executor(tmp_path).launchers() == []


def test_a_session_hands_on_what_imports_torch(tmp_path: Path) -> None:
    ahead = TorchAhead()
    of = session(tmp_path, problem(64, 64, 64), torch_ahead=ahead).executor
    assert isinstance(of, LocalExecutor) and of.torch_ahead is ahead
