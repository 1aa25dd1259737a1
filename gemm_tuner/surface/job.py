"""What a process that times functions is given, and what it tells: JSON in a folder of the run.

Functions travel by module and name, with arguments of a partial: the other process imports them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from gemm_tuner.core.errors import UserError
from gemm_tuner.surface.records import Check, Config, Effort, Row
from gemm_tuner.system.conversion import decoded

JOB, JOURNAL = "job.json", "journal.jsonl"
SCREEN, FINALS = "screen", "finals"
AT_TOP = "a function at the top level of a module that can be imported, or functools.partial over one"
PLAIN = "numbers, texts, None, and tuples, lists and mappings of these"


class Named(msgspec.Struct, frozen=True):
    """A function by module and name. args, keywords: those of a functools.partial over it, as ``written``."""

    module: str
    name: str
    args: list[Any] = []
    keywords: dict[str, Any] = {}

    def load(self) -> Callable[..., Any]:
        found: Any = importlib.import_module(self.module)
        for part in self.name.split("."):
            found = getattr(found, part)
        if not self.args and not self.keywords:
            return found  # type: ignore[no-any-return]
        keywords = {key: read(value) for key, value in self.keywords.items()}
        return functools.partial(found, *map(read, self.args), **keywords)


class NamedCheck(msgspec.Struct, frozen=True):
    """A Check whose functions are named."""

    rtol: float
    atol: float
    max_mismatched_ratio: float
    skip: bool
    repeats: int
    reference: Named | None
    manual: Named | None

    def load(self) -> Check:
        reference, manual = (one.load() if one else None for one in (self.reference, self.manual))
        return Check(reference, self.rtol, self.atol, self.max_mismatched_ratio, manual, self.skip, self.repeats)


class Job(msgspec.Struct, frozen=True):
    """stage: "screen" builds, checks and times each alone, by the clocks of the process; "finals" makes rounds.

    configs, baselines: by name; configurations as ``written``. seed: of all random generators before each build, so
    that inputs are the same. process: number of a process of finals. host: its own clock times calls; else a profiler
    does, between markers or in scopes. capture: the profiler records from where it is told to.
    duplicate_of: the configuration that runs a second time in finals, as AA_TEST.
    """

    stage: str
    build: Named
    configs: dict[str, Any]
    check: NamedCheck
    baselines: dict[str, Named]
    effort: Effort
    seed: int
    process: int = 0
    host: bool = False
    scopes: bool = False
    capture: bool = False
    duplicate_of: str = ""


class Begun(msgspec.Struct, frozen=True, tag=True):
    """A configuration or a baseline is being run; "" for rounds of all."""

    name: str


class Told(msgspec.Struct, frozen=True, tag=True):
    """What became of a configuration; its row is without the configuration itself, which both sides know."""

    row: Row


class Turns(msgspec.Struct, frozen=True, tag=True):
    """The names of the calls that were timed, in order; samples_us: of each, where no profiler has them."""

    names: list[str]
    samples_us: list[float] = []


class Finished(msgspec.Struct, frozen=True, tag=True):
    """All was done."""


Event = Begun | Told | Turns | Finished


def told(row: Row) -> Told:
    """Of a row; derived values that have no form in JSON are told as text."""
    return Told(replace(row, config={}, details={key: _text(value) for key, value in row.details.items()}))


def _text(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def read_events(path: Path) -> Iterator[Event]:
    """The events whose lines are whole."""
    for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else ():
        yield decoded(line, Event)


def named_check(check: Check) -> NamedCheck:
    """Raises UserError for functions that another process cannot import."""
    found = [None if one is None else named(one, part) for part, one in
             (("reference", check.reference), ("manual", check.manual))]  # fmt: skip
    return NamedCheck(check.rtol, check.atol, check.max_mismatched_ratio, check.skip, check.repeats, *found)


def named(value: Any, part: str) -> Named:
    """A function as another process imports it. part: names it in the UserError for one that cannot be imported."""
    args, keywords = [], {}
    if isinstance(value, functools.partial):
        args = [written(one, part) for one in value.args]
        keywords = {key: written(one, part) for key, one in value.keywords.items()}
        value = value.func
    if why := _unnameable(value):
        raise _cannot(part, why, AT_TOP)
    return Named(value.__module__, value.__qualname__, args, keywords)


# Module, name, and the arguments of a partial: a function as plain values.
Address = tuple[str, str, tuple[Any, ...], dict[str, Any]]


def address(value: Any, part: str) -> Address:
    """Raises UserError, as ``named``."""
    found = named(value, part)
    return found.module, found.name, tuple(map(read, found.args)), {key: read(x) for key, x in found.keywords.items()}


def at_address(where: Address) -> Callable[..., Any]:
    module, name, args, keywords = where
    function = Named(module, name).load()
    return functools.partial(function, *args, **keywords) if args or keywords else function


def _unnameable(value: Any) -> str:
    """Why a function cannot be imported by module and name; "" when it can."""
    name, module = getattr(value, "__qualname__", ""), getattr(value, "__module__", "") or ""
    if not callable(value) or not name:
        return f"it is a {type(value).__name__}, which has no name"
    if inspect.ismethod(value):
        return f"{name} belongs to an object"
    if "<lambda>" in name:
        return f"{name.replace('.<locals>', '')} is a lambda"
    if "<locals>" in name:
        return f"{name.replace('.<locals>', '')} is defined in a function"
    if module == "__main__":
        return f"{name} is of the main script, which is not run again"
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return "" if found is value else f"{module}:{name} is another object"


def written(value: Any, part: str) -> Any:
    """A plain value so that JSON keeps what it is. Raises UserError for any other value."""
    if isinstance(value, tuple):
        return {"tuple": [written(one, part) for one in value]}
    if isinstance(value, list):
        return [written(one, part) for one in value]
    if isinstance(value, Mapping):
        return {"mapping": [[written(key, part), written(one, part)] for key, one in value.items()]}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise _cannot(part, f"it holds a {type(value).__name__}", PLAIN)


def read(value: Any) -> Any:
    """What ``written`` was given."""
    if isinstance(value, list):
        return [read(one) for one in value]
    if isinstance(value, dict) and "tuple" in value:
        return tuple(read(one) for one in value["tuple"])
    return {read(key): read(one) for key, one in value["mapping"]} if isinstance(value, dict) else value


def config_of(value: Any) -> Config:
    config: Config = read(value)
    return config


def _cannot(part: str, why: str, accepted: str) -> UserError:
    return UserError(f"{part} cannot be rebuilt in another process: {why}", where="profiler=", accepted=accepted)
