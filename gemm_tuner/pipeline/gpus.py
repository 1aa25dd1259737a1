"""The GPUs of a run: their names, their locks, and the sensor of their clocks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import Device
from gemm_tuner.measure.device import driver_name, lock_name, visible_gpu
from gemm_tuner.measure.gpu_watch import Sensor
from gemm_tuner.measure.machine_check.gpus import are_shared, other_users, require_room, users_sentence
from gemm_tuner.pipeline.limits import Limits
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.pipeline.run_identity import gpu_labels
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.system import gpu_lock

# Name of the stage in which the run waits for another process.
WAITING = "wait for the GPU"


@dataclass
class Gpus:
    """wait_s: time to wait for a GPU that another process measures on, seconds; None for no limit.

    sensor: reads clocks, power and temperature; None if they cannot be read.
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
        """UUIDs, or the driver's numbers for GPUs without a known UUID."""
        backend, machine = self.device.target.backend, self.environment.machine
        gpus = [(machine.gpu(gpu), visible_gpu(backend, gpu, os.environ)) for gpu in self.environment.gpus]
        return [driver_name(row, visible) for row, visible in gpus]

    @property
    def are_shared(self) -> bool:
        """Whether several launchers may have contexts on a GPU at once; not in exclusive compute mode."""
        return are_shared(self.device.target.backend, self.names)

    @property
    def labels(self) -> list[str]:
        """Labels that are stored with timings, by which a resumed run recognizes its GPUs."""
        return gpu_labels(self.environment)

    @property
    def _locks(self) -> list[str]:
        machine = self.environment.machine
        return [lock_name(machine.gpu(gpu), name) for gpu, name in zip(self.environment.gpus, self.names, strict=True)]

    @contextmanager
    def held_if_free(self) -> Iterator[bool]:
        """Holds the locks of the GPUs while the block runs, if nobody else does; whether that is so. Other threads must
        not call ``held`` meanwhile. Never those of a cluster."""
        if self.environment.remote:
            yield False
            return
        with ExitStack() as locks:
            try:
                locks.enter_context(gpu_lock.held(self._locks, 0.0))
            except EnvironmentFault:  # whoever times on them says so
                yield False
                return
            yield True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the locks of the GPUs while the block times or checks on them. A recording has no locks; those of a
        cluster are held there. Blocks may be nested; the outermost one takes and releases the locks.

        The first time, it prints other processes on the GPUs. Raises EnvironmentFault after waiting for ``wait_s``, and
        for a GPU that its compute mode keeps for others.
        Waiting does not count against the budget.
        """
        if self.environment.source != "measured" or self.environment.remote or self._is_held:
            yield
            return
        begun, waits = time.monotonic(), False

        def say(text: str) -> None:
            nonlocal waits
            waits = True
            self.log.say(text)

        def stop() -> bool:
            return self.limits.interruption.requested

        with gpu_lock.held(self._locks, self.wait_s, say, stop=stop):
            if waits:
                self.limits.budget.waited_s += time.monotonic() - begun
                self.log.add_stage(WAITING, begun)
            if not self._users_named:
                self._users_named = True
                found = other_users(self.device.target.backend, self.names)
                require_room(self.device.target.backend, self.names, found)
                if found:
                    self.log.say(users_sentence(found))
            self._is_held = True
            try:
                yield
            finally:
                self._is_held = False
