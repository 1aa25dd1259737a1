"""Stations of a cluster in threads of this process: what calls take and give goes through pickle, as over a network."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from gemm_tuner.executors.cluster.worker import WorkerLost


@dataclass
class ThreadWorker:
    """station: answers calls until ``kill``; what is being asked then is never answered by it."""

    station: Any
    name: str = "worker"
    node: str = "node"
    calls: list[str] = field(default_factory=list)
    alive: bool = True
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))
    _asked: list[Future[Any]] = field(default_factory=list)
    _ending: threading.Lock = field(default_factory=threading.Lock)

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        self.calls.append(method)
        if not self.alive:
            answer.set_exception(WorkerLost(self.name))
            return answer
        self._asked.append(answer)
        sent = pickle.dumps(arguments)

        def ask() -> None:
            try:
                result = pickle.dumps(getattr(self.station, method)(*pickle.loads(sent)))
            except BaseException as error:
                self._end(answer, error, None)
                return
            self._end(answer, None, pickle.loads(result))

        self._pool.submit(ask)
        return answer

    def _end(self, answer: Future[Any], error: BaseException | None, result: Any) -> None:
        """Gives an answer, once; ``kill`` may come at the same moment."""
        with self._ending:
            if not answer.done():
                answer.set_result(result) if error is None else answer.set_exception(error)

    def kill(self) -> None:
        self.alive = False
        for answer in list(self._asked):
            self._end(answer, WorkerLost(self.name), None)
