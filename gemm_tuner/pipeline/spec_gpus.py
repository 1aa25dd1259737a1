"""The GPUs that the programs of a spec are timed on, held against other runs of the tuner."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.measure import device
from gemm_tuner.system import gpu_lock


@dataclass
class SpecGpus:
    """profiled: whether a profiler times kernels on GPUs; a program with a metric of its own may use none.

    wait_s: how long to wait for them; None: until they are free. say: prints for whom. stop: True ends the waiting.
    waited_s: time spent waiting so far.
    """

    profiled: bool
    wait_s: float | None
    say: Callable[[str], None]
    stop: Callable[[], bool]
    waited_s: float = 0.0
    _locks: list[str] | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the locks of all GPUs that the programs see: which of them they use is not known. None, and says so,
        where GPUs cannot be looked for, as under a broken torch, which the programs may not need.

        Raises EnvironmentFault after waiting for ``wait_s``, and KeyboardInterrupt when stopped.
        """
        if not self.profiled:
            yield
            return
        if self._locks is None:
            try:
                self._locks = _locks_of_all()
            except EnvironmentFault as fault:
                self._locks = []
                self.say(f"other runs of the tuner may use the GPUs meanwhile: {fault.one_line()}")
        begun = time.monotonic()
        with gpu_lock.held(self._locks, self.wait_s, self.say, stop=self.stop):
            self.waited_s += time.monotonic() - begun
            yield


def _locks_of_all() -> list[str]:
    return [device.lock_name_here(gpu) for gpu in device.look().gpus]
