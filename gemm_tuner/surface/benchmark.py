"""``gt.benchmark``: finals of functions as they are given."""

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
# However slow, a function has its finals.
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
    """Times functions against each other, in rounds, each round in another order; rows are sorted, the fastest first.

    functions: a list, or functions by name; all are called with ``inputs``, or with what a function of that returns,
               which each gets anew. ``ties`` has the names of those that are not told from the fastest.
    reference: of the same inputs: the expected outputs; without one the functions are compared with each other.
    restore:   of the same inputs: runs before each call, outside of its time.
    profiler:  such as "nsys": as for ``tune_callables``. All functions, ``inputs`` too where they are no plain values,
               must then be such that another process can import them.

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
    """A function with inputs of its own."""
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
    """As ``_call``, of functions by module and name: what another process builds."""
    loaded = {part: at_address(at) for part, at in parts.items()}
    return _call({name: at_address(at) for name, at in functions.items()}, loaded, values, tolerance, config)


def _names(functions: Sequence[Callable[..., Any]]) -> list[str]:
    """Names of the functions, those that are there already numbered."""
    seen: Counter[str] = Counter()
    found = []
    for function in functions:
        name = getattr(function, "__name__", type(function).__name__)
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found
