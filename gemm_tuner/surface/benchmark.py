"""``gt.benchmark``: compares the times of given functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.surface.clocks import Clock
from gemm_tuner.surface.job import Address, address, at_address, written
from gemm_tuner.surface.records import Call, Check, Config, Effort, Tuned
from gemm_tuner.surface.tuner import tune_callables

FUNCTION = "function"
# No function is excluded from the finals for being slow.
ALL = 1e9


def benchmark(
    functions: Sequence[Callable[..., Any]] | Mapping[str, Callable[..., Any]],
    inputs: Sequence[Any] | Callable[[], Sequence[Any]] = (),
    *,
    reference: Callable[..., Any] | None = None,
    rtol: float = 1e-2,
    atol: float = 1e-2,
    restore: Callable[..., Any] | None = None,
    warmup: int = 3,
    rounds: int = 30,
    clock: str | Clock = "auto",
    profiler: str = "",
    processes: int = 3,
    output_dir: Path | str | None = None,
    seed: int = 0,
) -> Tuned:
    """Compares the times of functions, in rounds with a different order each; rows are sorted, fastest first.

    functions: a list, or functions by name. All are called with ``inputs``; if that is a function, each one gets a new
               result of it. ``ties`` of the result has the names that cannot be distinguished from the fastest.
    reference: takes the inputs and returns the expected outputs; without it the functions are compared with each other.
    restore:   takes the inputs; called before each call, outside of the timed interval.
    profiler:  as for ``tune_callables``. Another process must then be able to import all functions, and ``inputs`` if
               they are not plain values.

    Raises UserError without functions.
    """
    named = dict(functions) if isinstance(functions, Mapping) else dict(zip(_names(functions), functions, strict=True))
    if not named:
        raise UserError("there are no functions to time", where="benchmark", accepted="a list of functions")

    parts = {"restore": restore, "reference": reference, **({"inputs": inputs} if callable(inputs) else {})}
    if profiler:
        at = {part: address(one, part) for part, one in parts.items() if one is not None}
        functions_at = {name: address(one, name) for name, one in named.items()}
        values = () if callable(inputs) else tuple(inputs)
        written(values, "inputs")
        build: Any = partial(rebuilt, functions_at, at, values, (rtol, atol))
    else:
        build = partial(_call, named, parts, () if callable(inputs) else tuple(inputs), (rtol, atol))
    return tune_callables(
        [{FUNCTION: name} for name in named],
        build,
        name="benchmark",
        names=list(named),
        check=Check(None, rtol, atol),
        clock=clock,
        profiler=profiler,
        seed=seed,
        effort=Effort(
            warmup=warmup,
            screen_calls=1,
            finalists=len(named),
            rounds=rounds,
            processes=processes,
            early_stop_ratio=0,
            within=ALL,
            chunk=len(named),
        ),
        output_dir=output_dir,
    )


def _call(
    functions: Mapping[str, Callable[..., Any]],
    parts: Mapping[str, Callable[..., Any] | None],
    values: tuple[Any, ...],
    tolerance: tuple[float, float],
    config: Config,
) -> Call:
    """The call of a function with its inputs."""
    make, restore, reference = parts.get("inputs"), parts.get("restore"), parts.get("reference")
    function, arguments = functions[config[FUNCTION]], values if make is None else tuple(make())
    return Call(
        lambda: function(*arguments),
        None if reference is None else Check(lambda: reference(*arguments), *tolerance),
        before=None if restore is None else lambda: restore(*arguments),
        kernel=function,
    )


def rebuilt(
    functions: Mapping[str, Address],
    parts: Mapping[str, Address],
    values: tuple[Any, ...],
    tolerance: tuple[float, float],
    config: Config,
) -> Call:
    """As ``_call``, for another process: functions are given by module and name."""
    loaded = {part: at_address(at) for part, at in parts.items()}
    return _call({name: at_address(at) for name, at in functions.items()}, loaded, values, tolerance, config)


def _names(functions: Sequence[Callable[..., Any]]) -> list[str]:
    """Unique names of the functions; repeated names are numbered."""
    seen: Counter[str] = Counter()
    found = []
    for function in functions:
        name = getattr(function, "__name__", type(function).__name__)
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found
