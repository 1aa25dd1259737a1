"""What the drivers say of a real GPU, its lock, and a budget: ``pytest -m gpu tests/gpu/test_gpu_state.py``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from announced_floor import Floor, announced_floor
from gpu_work import Gpu

from gemm_tuner.measure import device, probe
from gemm_tuner.measure.device import driver_name, lock_name, visible_gpu
from gemm_tuner.measure.gpu_watch import find_sensor
from gemm_tuner.measure.machine_check.gpus import other_users
from gemm_tuner.store import results
from gemm_tuner.system import nvml
from gemm_tuner.system.gpu_lock import held
from gemm_tuner.system.processes import own_pids

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def name(gpu: Gpu) -> str:
    backend = gpu.device.target.backend
    return driver_name(device.look().gpu(0), visible_gpu(backend, 0, os.environ))


def test_throttling_is_watched(gpu: Gpu, name: str) -> None:
    sensor, reason = find_sensor(gpu.device.target.backend, [name])
    assert sensor is not None, reason
    sample = sensor.read(name)
    sensor.close()
    assert 0 < sample.sm_clock_mhz < 10_000 and 0 < sample.power_w < 5000 and 0 < sample.temperature_c < 120


def test_nvml_and_torch_name_the_same_gpu(gpu: Gpu, name: str) -> None:
    if gpu.device.target.backend != "cuda":
        pytest.skip("of NVIDIA's library")
    with nvml.opened() as connection:
        assert connection.name(name) == gpu.device.name and connection.driver_version()
        assert name in connection.uuids() or name.startswith("MIG-")


def test_the_driver_and_torch_say_the_same_of_every_gpu(gpu: Gpu) -> None:
    import torch

    if gpu.device.target.backend != "cuda":
        pytest.skip("of NVIDIA's driver")
    found, of_torch = probe.gpus_of_driver(torch.version.cuda), probe.gpus_of_torch()
    assert found == of_torch or (not found and any("MIG" in one["name"] for one in of_torch))


def test_this_process_is_no_other(gpu: Gpu, name: str) -> None:
    import torch

    torch.ones(1, device="cuda")
    found = other_users(gpu.device.target.backend, [name])
    assert not {one.pid for one in found} & own_pids()


def tuner(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tune_gemm.py"), "-m", "512", "-n", "512", "-k", "512", *flags]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_a_run_that_shall_not_wait_ends_while_the_gpu_is_held(gpu: Gpu, name: str, tmp_path: Path) -> None:
    with held([lock_name(device.look().gpu(0), name)]):
        done = tuner(tmp_path, "--no_wait", "--families", "gemm_tile")
    assert done.returncode == 3 and f"process {os.getpid()} (" in done.stderr, done.stderr


@pytest.mark.parametrize("profiler", ["auto", "ncu"])
def test_a_budget_bounds_the_whole_run(gpu: Gpu, profiler: str, tmp_path: Path) -> None:
    """The promise is one of seconds. The first run measures what starts take here, and the next ones know it: they end
    within a fifth of the budget, or, where it is too short, near the floor that they announce. A budget of twice that
    is long enough."""
    if profiler == "ncu" and gpu.device.target.backend != "cuda":
        pytest.skip("of NVIDIA's profiler")
    flags = ("--profiler", profiler, "--fresh", "-o", "tuned.yaml")
    first = tuner(tmp_path, *flags, "--budget", "30s")
    if profiler == "ncu" and "ncu" in first.stderr and first.returncode == 3:
        pytest.skip(first.stderr.strip().splitlines()[-1])
    floor, took_s = bounded(tmp_path, profiler, 30, *flags)
    assert floor is None or abs(took_s - floor.whole_s) <= 0.2 * floor.whole_s + floor.start_s
    assert floor or took_s <= 1.2 * 30
    long_s = max(60, round(2 * floor.whole_s) if floor else 0)
    floor, took_s = bounded(tmp_path, profiler, long_s, *flags)
    assert floor is None and took_s <= 1.2 * long_s


def bounded(folder: Path, profiler: str, budget_s: int, *flags: str) -> tuple[Floor | None, float]:
    """(the floor that a run with this budget announces, the seconds that it took)."""
    begun = time.monotonic()
    done = tuner(folder, *flags, "--budget", f"{budget_s}s")
    took_s = time.monotonic() - begun
    assert done.returncode == 0, done.stderr
    floor = announced_floor(done.stderr)
    print(f"{profiler}: a budget of {budget_s} s took {took_s:.1f} s, {floor or 'which is enough'}")
    assert results.read(folder / "tuned.yaml").rows[0].config is not None
    return floor, took_s
