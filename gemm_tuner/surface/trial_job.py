"""What another process gets in order to build and launch a factory's kernels."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.surface import used_globals
from gemm_tuner.surface.gpu import require_shared
from gemm_tuner.surface.profile_args import ProfileArgs
from gemm_tuner.surface.tunables import Arguments, Function, Tunable, name_of

HINT = "isolate=False tunes it in this process alone"


@dataclass(frozen=True)
class Code:
    """A function that another process loads. module: "" to load only what it needs from ``file``."""

    module: str
    file: str
    qualname: str


@dataclass(frozen=True)
class Job:
    """The job of a worker. program: supplies inputs; without it ``supply``, a distribution, or "" to launch nothing.
    path: sys.path."""

    function: Code
    program: Code | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    compile_args: Mapping[str, Any]
    supply: str
    path: tuple[str, ...]


def job_of(tunable: Function, profile: ProfileArgs, given: Any) -> Job:
    """The job of a factory. Raises UserError naming what another process cannot rebuild."""
    name = name_of(tunable.function)
    origin, call = _unbound(tunable)
    function, fault = code_of(origin)
    if function is None:
        raise UserError(f"{fault}: another process cannot build it", where=name, hint=HINT)
    values = [call.args, dict(call.kwargs), asdict(tunable.compile_args)]
    try:
        json.dumps(values)
    except (TypeError, ValueError) as error:
        raise UserError(f"has arguments that are no plain values: {error}", where=name, hint=HINT) from error
    program = program_of(profile)[0]
    launches = given is None and (profile.supply_prog is None or program is not None)
    if launches:
        require_shared("isolate=", HINT)
    return Job(
        function=function,
        program=program if launches else None,
        args=call.args,
        kwargs=dict(call.kwargs),
        compile_args=asdict(tunable.compile_args),
        supply=profile.supply_type.name if launches else "",
        path=tuple(os.path.abspath(one) for one in sys.path),
    )


def code_of(function: Any) -> tuple[Code | None, str]:
    """(where another process loads a function from, "") or (None, why it cannot)."""
    under = used_globals.function_under(function)
    if under is None or "<locals>" in under.__qualname__ or "<lambda>" in under.__qualname__:
        return None, "is not at the top level of a module"
    is_script, file = under.__module__ == "__main__", os.path.realpath(under.__code__.co_filename)
    if is_script and not os.path.isfile(file):
        return None, "is of no file"
    return Code("" if is_script else under.__module__, file, under.__qualname__), ""


def program_of(profile: ProfileArgs) -> tuple[Code | None, str]:
    """(where another process loads supply_prog from, "") or (None, why it cannot; "" without one).

    Only what its module holds by its name is the same there: not a partial, whose arguments would be lost."""
    if profile.supply_prog is None:
        return None, ""
    code, fault = code_of(profile.supply_prog)
    under = used_globals.function_under(profile.supply_prog)
    if code is None or under is None:
        return None, fault
    held: Any = sys.modules.get(under.__module__)
    for part in code.qualname.split("."):
        held = getattr(held, part, None)
    return (code, "") if held is profile.supply_prog else (None, f"is not what its module holds as {code.qualname}")


def _unbound(tunable: Function) -> tuple[Any, Arguments]:
    """(the function without partials, its call including what they bind)."""
    function, args, kwargs = tunable.function, tunable.call.args, dict(tunable.call.kwargs)
    while hasattr(function, "func") and hasattr(function, "keywords"):
        args, kwargs, function = (*function.args, *args), {**function.keywords, **kwargs}, function.func
    return function, Arguments(args, kwargs)


def warn_of_no_launch(tunable: Tunable, profile: ProfileArgs, given: Any) -> None:
    """Warns if a factory's kernels are only built in other processes, since their inputs are of this one."""
    why = "the tensors of set_autotune_inputs are" if given is not None else ""
    if not why and (fault := program_of(profile)[1]):
        why = f"supply_prog {fault}, so that its tensors are"
    if why and isinstance(tunable, Function):
        what = f"isolate=True builds kernels in other processes, and does not launch them there: {why} of this process"
        warnings.warn(what, stacklevel=2)
