"""What times screening: proton in the launcher where it runs, else what was asked for or the profiler of finals."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import problem
from tuning import run_options

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.pipeline.open_run import screener_of
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.profilers import PROFILERS
from gemm_tuner.profilers.proton import Proton

BY_NAME = {one.name: one for one in PROFILERS}
SIZE = problem(64, 64, 64)


def asked(tmp_path: Path, name: str) -> RunOptions:
    return run_options(tmp_path, SIZE, screen_with=name)


@pytest.mark.skipif(Proton().version() is None, reason="needs Triton's proton")
@pytest.mark.parametrize("name", ["auto", "in_process"])
@pytest.mark.parametrize("backend", ["cuda", "hip"])
def test_proton_in_the_launcher_screens_whatever_profiles_finals(tmp_path: Path, name: str, backend: str) -> None:
    finals = BY_NAME["nsys" if backend == "cuda" else "rocprofv3"]
    assert screener_of(asked(tmp_path, name), finals, backend) is None


def test_where_proton_cannot_run_finals_profiler_screens_and_in_process_is_refused(tmp_path: Path) -> None:
    finals = BY_NAME["clock"]
    assert screener_of(asked(tmp_path, "auto"), finals, "cpu") is finals
    with pytest.raises(EnvironmentFault, match="--screen_with: proton cannot time cpu kernels"):
        screener_of(asked(tmp_path, "in_process"), finals, "cpu")


def test_an_external_profiler_screens_where_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFault) as fault:
        screener_of(asked(tmp_path, "ncu"), BY_NAME["nsys"], "cuda")
    assert "--screen_with" in fault.value.one_line() and "ncu" in fault.value.one_line()
    assert screener_of(asked(tmp_path, "clock"), BY_NAME["clock"], "cpu") is BY_NAME["clock"]
