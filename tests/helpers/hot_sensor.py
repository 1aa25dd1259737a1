"""A sensor of a GPU that is throttled while finals begin."""

from __future__ import annotations

import threading
from typing import Any

from gemm_tuner.measure.gpu_watch import Sample


class HotAtFirst:
    """Throttled in the first ``hot`` blocks of finals, each of which reads the sensor from a thread of its own."""

    def __init__(self, hot: int = 1) -> None:
        self._hot, self._blocks, self._read = hot, list[threading.Thread](), threading.Condition()
        self._sampled = set[threading.Thread]()  # has read again, so that it has kept what it read

    @property
    def is_hot(self) -> bool:
        return len(self._blocks) <= self._hot

    def read(self, gpu: Any) -> Sample:
        with self._read:
            if threading.current_thread() not in self._blocks:
                self._blocks.append(threading.current_thread())
            else:
                self._sampled.add(threading.current_thread())
                self._read.notify_all()
            return Sample(gpu, 1500.0, 650.0, 88.0, throttled=self.is_hot)

    def wait_for_block(self, number: int) -> None:
        with self._read:
            assert self._read.wait_for(lambda: len(self._sampled) >= number, 240)

    def close(self) -> None: ...
