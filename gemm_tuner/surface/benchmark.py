"""``gt.benchmark``: finals of functions as they are given."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.surface.clocks import Clock
from gemm_tuner.surface.records import Call, Check, Config, Effort, Tuned
from gemm_tuner.surface.tuner import tune_callables

FUNCTION = "function"


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
    output_dir: Path | str | None = None,
) -> Tuned:
    """Times functions against each other, in rounds, each round in another order; rows are sorted, the fastest first.

    functions: a list, or functions by name; all are called with ``inputs``, or with what a function of that returns,
               which each gets anew. ``ties`` has the names of those that are not told from the fastest.
    reference: of the same inputs: the expected outputs; without one the functions are compared with each other.
    restore:   of the same inputs: runs before each call, outside of its time.

    Raises UserError without functions.
    """
    named = dict(functions) if isinstance(functions, Mapping) else dict(zip(_names(functions), functions, strict=True))
    if not named:
        raise UserError("there are no functions to time", where="benchmark", accepted="a list of functions")

    def build(config: Config) -> Call:
        function, arguments = named[config[FUNCTION]], tuple(inputs() if callable(inputs) else inputs)
        expected = None if reference is None else Check(lambda: reference(*arguments), rtol, atol)
        before = None if restore is None else lambda: restore(*arguments)
        return Call(lambda: function(*arguments), expected, before=before, kernel=function)

    return tune_callables(
        [{FUNCTION: name} for name in named],
        build,
        name="benchmark",
        names=list(named),
        check=Check(None, rtol, atol),
        clock=clock,
        effort=Effort(
            warmup=warmup,
            screen_calls=1,
            finalists=len(named),
            rounds=rounds,
            early_stop_ratio=0,
            within=math.inf,
            chunk=len(named),
        ),
        output_dir=output_dir,
    )


def _names(functions: Sequence[Callable[..., Any]]) -> list[str]:
    """Names of the functions, those that are there already numbered."""
    seen: Counter[str] = Counter()
    found = []
    for function in functions:
        name = getattr(function, "__name__", type(function).__name__)
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found
