"""The GPUs of a run: their names, their locks, and what watches their clocks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from gemm_tuner.core.records import Device
from gemm_tuner.measure.device import driver_name, lock_name
from gemm_tuner.measure.gpu_watch import Sensor
from gemm_tuner.measure.launcher_process import visible_gpu
from gemm_tuner.measure.machine_check.gpus import other_users, users_sentence
from gemm_tuner.pipeline.limits import Limits
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.pipeline.run_identity import gpu_labels
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.system import gpu_lock, nvml
from gemm_tuner.system.nvml import NvmlError

# The stage in which another process holds the GPU.
WAITING = "wait for the GPU"


@dataclass
class Gpus:
    """wait_s: how long to wait for a GPU that another process measures on; None has no limit.

    sensor: reads clocks, power and heat; None where nothing can.
    """

    environment: Environment
    limits: Limits
    log: RunLog
    wait_s: float | None = None
    sensor: Sensor | None = None
    _users_named: bool = field(default=False, init=False)
    _is_held: bool = field(default=False, init=False)

    @property
    def device(self) -> Device:
        return self.environment.device

    @property
    def names(self) -> list[str]:
        """By UUID, or as the driver numbers them where none is known."""
        backend, machine = self.device.target.backend, self.environment.machine
        gpus = [(machine.gpu(gpu), visible_gpu(backend, gpu, os.environ)) for gpu in self.environment.gpus]
        return [driver_name(row, visible) for row, visible in gpus]

    @property
    def are_shared(self) -> bool:
        """Whether launchers of one GPU may be started side by side: not in its exclusive compute mode."""
        if self.device.target.backend != "cuda":
            return True
        with suppress(NvmlError), nvml.opened() as connection:
            return all(connection.is_shared(name) for name in self.names)
        return True

    @property
    def labels(self) -> list[str]:
        """What timings are stored with, so that a resumed run knows its GPUs again."""
        return gpu_labels(self.environment)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the locks of the GPUs while the block times or checks on them; of a recording there are none.
        Blocks may be nested: the outermost one takes and releases the locks.

        The first time, other processes on the GPUs are named. Raises EnvironmentFault when they stay in use for
        longer than ``wait_s``. Waiting does not count against the budget.
        """
        if self.environment.source != "measured" or self._is_held:
            yield
            return
        begun, waits = time.monotonic(), False

        def say(text: str) -> None:
            nonlocal waits
            waits = True
            self.log.say(text)

        def stop() -> bool:
            return self.limits.interruption.requested

        machine = self.environment.machine
        locks = [lock_name(machine.gpu(gpu), name) for gpu, name in zip(self.environment.gpus, self.names, strict=True)]
        with gpu_lock.held(locks, self.wait_s, say, stop=stop):
            if waits:
                self.limits.budget.waited_s += time.monotonic() - begun
                self.log.add_seconds(WAITING, time.monotonic() - begun)
            if not self._users_named:
                self._users_named = True
                found = other_users(self.device.target.backend, self.names)
                if found:
                    self.log.say(users_sentence(found))
            self._is_held = True
            try:
                yield
            finally:
                self._is_held = False
