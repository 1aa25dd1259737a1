"""A cluster without Ray: its machines as they are given, and stations in threads that look at GPUs as these say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thread_workers import ThreadWorker

from gemm_tuner.executors.cluster.nodes import Node


@dataclass
class Looking:
    """A station's answer about its GPU, or what it raises."""

    answer: Any

    def look(self) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@dataclass
class ClusterStandIn:
    """answers: what a GPU's station says, by the id of its machine. asked: the machines on which stations for a GPU
    were started. cores: for how many those that compile were, by machine."""

    machines: list[Node]
    answers: Mapping[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    cores: dict[str, int] = field(default_factory=dict)

    def nodes(self) -> list[Node]:
        return self.machines

    def station(self, kind: type, name: str, node: str, *of: Any, cpus: int = 0, gpus: int = 0) -> ThreadWorker:
        if gpus:
            self.asked.append(node)
        else:
            self.cores[node] = cpus
        return ThreadWorker(Looking(self.answers.get(node)), name, node)

    def keep_logs(self, run: Path) -> None: ...

    def close(self) -> None: ...
