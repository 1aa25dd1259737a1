"""A launcher process that is called here, with kernels that idle."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from samples import problem

from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL
from gemm_tuner.launch.bench import Bench
from gemm_tuner.launch.journal import Event, Journal, event_of
from gemm_tuner.launch.plan import SCREEN, STOP_FILE, Method, Plan, Work
from gemm_tuner.launch.processor import Cpu

SIZE = problem(16, 16, 16)
NAMES = ("a", "b", "c")
SYMBOLS = (BEGIN_SYMBOL, END_SYMBOL, FLUSH_SYMBOL)


class Kernel:
    """Counts its launches; ``does`` is what a launch comes to."""

    def __init__(self, does: Callable[[], None]) -> None:
        self._does = does

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *positional, **options: self._does()


class Script(ModuleType):
    """A generated script with three configurations."""

    def __init__(self, **does: Callable[[], None]) -> None:
        super().__init__("script")
        self.CONFIGS = {name: {"name": name} for name in NAMES}
        self._does = does

    def scratch(self, config: Any, size: Any, num_sms: int) -> tuple[int, int]:
        return 0, 0

    def calls(self, config: Any, size: Any, operands: Any, scratch: Any, num_sms: int) -> list[Any]:
        does = self._does.get(config["name"], lambda: None)
        return [(f"{config['name']}_kernel", Kernel(does), (1,), (), {})]


class IdlingCpu(Cpu):
    """Its clocks fall in a pause, as a GPU's do."""

    idles = True


class Launcher:
    """A launcher's insides on the CPU: nothing is waited for, since nothing runs elsewhere.

    support: what a launch of one of the measurement's own kernels comes to. flush: the same of a flush of so many
    sweeps, if it is another.
    """

    def __init__(
        self,
        folder: Path,
        *,
        deadline: float = 0.0,
        process: int = 0,
        support: Callable[[str], None] = lambda symbol: None,
        flush: Callable[[int], None] | None = None,
        **method: Any,
    ) -> None:
        self._journal, self.stop = io.StringIO(), folder / STOP_FILE
        how = Method(warmup_calls=1, timed_calls=3, **method)
        plan = Plan(SCREEN, (), (), how, device="cpu", deadline=deadline, process=process)
        kernels: dict[str, Callable[..., None]] = {symbol: partial(support, symbol) for symbol in SYMBOLS}
        kernels[FLUSH_SYMBOL] = flush or (lambda sweeps: support(FLUSH_SYMBOL))
        language: Any = SimpleNamespace(support_calls=lambda flush_bytes, device: kernels)
        self.bench = Bench(plan, Journal(self._journal), self.stop, language, IdlingCpu())

    def journal(self) -> list[Event]:
        return [event_of(line, "journal") for line in self._journal.getvalue().splitlines()]

    def events(self, *kinds: str) -> list[tuple[str, str]]:
        rows = [json.loads(line) for line in self._journal.getvalue().splitlines()]
        return [(row["event"], row["name"]) for row in rows if row["event"] in kinds]

    def stopped_early(self) -> dict[str, bool]:
        rows = [json.loads(line) for line in self._journal.getvalue().splitlines()]
        return {row["name"]: row["early_stopped"] for row in rows if row["event"] == "end"}

    def calls(self) -> list[tuple[str, list[str], bool]]:
        rows = [json.loads(line) for line in self._journal.getvalue().splitlines()]
        return [(row["name"], row["symbols"], row["warm"]) for row in rows if row["event"] == "call"]


def work(*names: str, **fields: Any) -> Work:
    return Work(SIZE, tuple((0, name) for name in names), **fields)
