"""Records clocks, power and temperature of GPUs during measurements, without changing them.

Uses NVML for NVIDIA and amdsmi for AMD. ``find_sensor`` says why a GPU cannot be read.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gemm_tuner.system.nvml import SLOWED, Nvml

PERIOD_S = 0.2
# A GPU counts as throttled if this share of the samples is; a single one may be a transient.
THROTTLED_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of one GPU at one moment. gpu: its UUID or the driver's number, as text."""

    gpu: str
    sm_clock_mhz: float
    power_w: float
    temperature_c: float
    throttled: bool


class Sensor(Protocol):
    """Reads the state of GPUs."""

    def read(self, gpu: str) -> Sample:
        """The present state of the GPU. Raises what the library raises."""

    def close(self) -> None: ...


class NvmlSensor:
    """NVIDIA GPUs, by UUID (NVML and CUDA number GPUs differently) or by NVML's index."""

    def __init__(self) -> None:
        self._nvml = Nvml()

    def read(self, gpu: str) -> Sample:
        nvml = self._nvml
        throttled = any(nvml.reasons(gpu) & bit for bit in SLOWED)
        return Sample(gpu, float(nvml.sm_clock_mhz(gpu)), nvml.power_w(gpu), nvml.temperature_c(gpu), throttled)

    def close(self) -> None:
        self._nvml.close()


class AmdSmiSensor:
    """AMD GPUs, by amdsmi's index."""

    def __init__(self) -> None:
        import amdsmi

        self._smi: Any = amdsmi
        amdsmi.amdsmi_init()
        self._handles = amdsmi.amdsmi_get_processor_handles()

    def read(self, gpu: str) -> Sample:
        metrics = self._smi.amdsmi_get_gpu_metrics_info(self._handles[int(gpu)])
        return Sample(
            gpu,
            float(metrics["current_gfxclk"]),
            float(metrics["average_socket_power"]),
            float(metrics["temperature_hotspot"]),
            bool(metrics.get("throttle_status") or 0),
        )

    def close(self) -> None:
        self._smi.amdsmi_shut_down()


def find_sensor(backend: str, gpus: Sequence[str]) -> tuple[Sensor | None, str]:
    """(a sensor that can read all of these GPUs, ""), or (None, the reason). A CPU's clocks are not recorded."""
    if backend == "cpu":
        return None, ""
    kind = NvmlSensor if backend == "cuda" else AmdSmiSensor
    try:
        sensor: Sensor = kind()
    except ImportError as error:
        return None, f"the package {error.name} is not installed"
    except Exception as error:  # amdsmi has its own errors for a missing driver or permission
        return None, _reason(error)
    try:
        for gpu in gpus:
            sensor.read(gpu)
    except Exception as error:
        sensor.close()
        return None, _reason(error)
    return sensor, ""


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def watching(sensor: Sensor | None, gpus: Sequence[str]) -> Iterator[list[Sample]]:
    """A list to which a thread appends samples of the GPUs while the block runs; it stays empty without a sensor."""
    samples: list[Sample] = []
    if sensor is None:
        yield samples
        return
    end = threading.Event()

    def run() -> None:
        while not end.wait(PERIOD_S):
            for gpu in gpus:
                with contextlib.suppress(Exception):  # a failed reading is skipped
                    samples.append(sensor.read(gpu))

    thread = threading.Thread(target=run, name="gpu watch", daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        end.set()
        thread.join()


def throttled(samples: Sequence[Sample]) -> bool:
    """Whether heat or the power supply slowed a GPU down in at least THROTTLED_SHARE of the samples."""
    return sum(sample.throttled for sample in samples) > THROTTLED_SHARE * max(1, len(samples))


def summary(samples: Sequence[Sample]) -> dict[str, Any]:
    """Median, minimum and maximum of each quantity over all GPUs; empty without samples."""
    if not samples:
        return {}
    found: dict[str, Any] = {"samples": len(samples), "throttled": throttled(samples)}
    for name in ("sm_clock_mhz", "power_w", "temperature_c"):
        values = [getattr(sample, name) for sample in samples]
        found[name] = [round(value, 1) for value in (min(values), statistics.median(values), max(values))]
    return found
