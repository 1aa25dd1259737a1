"""Clocks, power and temperature while a block runs: real threads, and sensors that say what a test wants."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest
from nvml_recording import Gpu, h200, install

from gemm_tuner.measure import gpu_watch
from gemm_tuner.measure.gpu_watch import AmdSmiSensor, NvmlSensor, Sample, find_sensor, watching
from gemm_tuner.system import nvml


class Script:
    """A sensor that gives each reading once, then says that all are given. None is a reading that fails."""

    def __init__(self, *readings: Sample | None) -> None:
        self._left = list(readings)
        self.all_given, self.asked = threading.Event(), list[str]()

    def read(self, gpu: str) -> Sample:
        self.asked.append(gpu)
        if not self._left:
            self.all_given.set()
            raise RuntimeError("nothing more")
        one = self._left.pop(0)
        if one is None:
            raise RuntimeError("GPU is lost")
        return one

    def close(self) -> None: ...


def state(mhz: float, *, slow: bool = False, gpu: str = "0") -> Sample:
    return Sample(gpu, mhz, mhz / 3, 50.0 + mhz / 100, slow)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_watch, "PERIOD_S", 0.001)


def watched(*readings: Sample | None, gpus: tuple[str, ...] = ("0",)) -> tuple[list[Sample], Script]:
    sensor = Script(*readings)
    with watching(sensor, gpus) as samples:
        assert sensor.all_given.wait(120)
    return samples, sensor


def test_what_was_read_is_summed_up() -> None:
    samples, _ = watched(state(1500.0), state(1980.0), state(1800.0))
    assert gpu_watch.summary(samples) == {
        "samples": 3,
        "throttled": False,
        "sm_clock_mhz": [1500.0, 1800.0, 1980.0],
        "power_w": [500.0, 600.0, 660.0],
        "temperature_c": [65.0, 68.0, 69.8],
    }


@pytest.mark.parametrize(("slow", "of", "throttled"), [(0, 20, False), (2, 20, False), (3, 20, True), (20, 20, True)])
def test_a_moment_of_throttling_is_none(slow: int, of: int, throttled: bool) -> None:
    samples, _ = watched(*(state(1500.0, slow=index < slow) for index in range(of)))
    assert gpu_watch.throttled(samples) == throttled


def test_a_reading_that_fails_is_one_sample_less() -> None:
    samples, _ = watched(state(1500.0), None, state(1600.0))
    assert [sample.sm_clock_mhz for sample in samples] == [1500.0, 1600.0]


def test_every_gpu_is_asked() -> None:
    _, sensor = watched(state(1.0), state(2.0), gpus=("3", "5"))
    assert sensor.asked[:4] == ["3", "5", "3", "5"]


def test_the_watch_ends_with_the_block() -> None:
    watched(state(1500.0))
    assert not [thread for thread in threading.enumerate() if thread.name == "gpu watch"]


def test_without_a_sensor_nothing_is_known_and_nothing_runs() -> None:
    with watching(None, ["0"]) as samples:
        assert not [thread for thread in threading.enumerate() if thread.name == "gpu watch"]
    assert gpu_watch.summary(samples) == {} and not gpu_watch.throttled(samples)


@pytest.mark.parametrize(
    ("reasons", "throttled"), [(0x0, False), (0x4, False), (0x1, False), (0x8, True), (0x44, True)]
)
def test_nvml_is_asked_as_its_manual_says(reasons: int, throttled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """0x4, the power cap, is how a busy GPU runs; 0x8 and 0x40 are hardware and thermal slow-downs."""
    busy = h200(
        "GPU-84e91197", ClockInfo=1755, PowerUsage=650_000, Temperature=61, CurrentClocksThrottleReasons=reasons
    )
    recording = install(monkeypatch, h200(), busy)
    sensor, reason = find_sensor("cuda", ["GPU-84e91197"])
    assert isinstance(sensor, NvmlSensor) and reason == ""
    assert sensor.read("1") == Sample("1", 1755.0, 650.0, 61.0, throttled)
    assert sensor.read("GPU-84e91197") == Sample("GPU-84e91197", 1755.0, 650.0, 61.0, throttled)
    sensor.close()
    assert recording.said == ["init", "shutdown"]


@pytest.mark.parametrize(("status", "throttled"), [(None, False), (0, False), (4, True)])
def test_amdsmi_is_asked_for_its_metrics(status: int | None, throttled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = {
        "current_gfxclk": 2100,
        "average_socket_power": 700,
        "temperature_hotspot": 71,
        "throttle_status": status,
    }
    smi = SimpleNamespace(
        amdsmi_init=lambda: None,
        amdsmi_shut_down=lambda: None,
        amdsmi_get_processor_handles=lambda: ["first", "second"],
        amdsmi_get_gpu_metrics_info=lambda handle: {"second": metrics}[handle],
    )
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    sensor, _ = find_sensor("hip", ["1"])
    assert isinstance(sensor, AmdSmiSensor)
    assert sensor.read("1") == Sample("1", 2100.0, 700.0, 71.0, throttled)


@pytest.mark.parametrize(("backend", "library"), [("cuda", "pynvml"), ("hip", "amdsmi")])
def test_a_library_that_is_not_installed_is_named(backend: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    sensor, reason = find_sensor(backend, ["0"])
    named = {"pynvml": "nvidia-ml-py"}.get(library, library)
    assert sensor is None and named in reason and "not installed" in reason


def test_a_missing_driver_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, init_error="Driver Not Loaded")
    assert find_sensor("cuda", ["0"]) == (None, "NVML: Driver Not Loaded")

    def fails() -> None:
        raise RuntimeError("no driver")

    monkeypatch.setitem(sys.modules, "amdsmi", SimpleNamespace(amdsmi_init=fails))
    assert find_sensor("hip", ["0"]) == (None, "no driver")


def test_a_gpu_that_does_not_answer_is_the_reason_and_the_library_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user without the permission: a sensor that cannot be read would watch nothing."""
    recording = install(monkeypatch, Gpu("GPU-1"))
    assert find_sensor("cuda", ["GPU-1"]) == (None, "NVML: Not Supported")
    assert recording.said == ["init", "shutdown"]


def test_of_a_part_of_a_gpu_the_whole_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML tells clocks and power of a whole GPU only."""
    whole = h200("GPU-1", ClockInfo=1755)
    install(monkeypatch, Gpu("MIG-2", {"DeviceHandleFromMigDeviceHandle": whole}))
    sensor, _ = find_sensor("cuda", ["MIG-2"])
    assert sensor is not None and sensor.read("MIG-2").sm_clock_mhz == 1755.0


@pytest.mark.parametrize(("mode", "shared"), [(0, True), (3, False)])
def test_a_gpu_in_its_exclusive_mode_is_not_shared(mode: int, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, h200("GPU-a", ComputeMode=mode), h200("GPU-b"))
    with nvml.opened() as connection:
        assert (connection.is_shared("GPU-a"), connection.is_shared("GPU-b")) == (shared, True)
