"""The supported profilers, one module per tool.

May import core, system, launch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.profilers.base import TRACE_COLUMNS, NotRecorded, Profiler, TraceError
from gemm_tuner.profilers.clock import Clock
from gemm_tuner.profilers.ncu import Ncu
from gemm_tuner.profilers.nsys import Nsys
from gemm_tuner.profilers.proton import Proton
from gemm_tuner.profilers.rocprof import Rocprof
from gemm_tuner.profilers.rocprofv3 import Rocprofv3

__all__ = [
    "AUTO",
    "AUTO_ORDER",
    "PROFILERS",
    "TRACE_COLUMNS",
    "NotRecorded",
    "Profiler",
    "TraceError",
    "VersionOf",
    "installed",
    "look_ahead",
    "others",
    "select",
    "version_here",
]

AUTO = "auto"
PROFILERS: tuple[Profiler, ...] = (Rocprofv3(), Rocprof(), Nsys(), Ncu(), Proton(), Clock())
AUTO_ORDER = {"hip": ("rocprofv3", "rocprof", "proton"), "cuda": ("nsys", "proton", "ncu"), "cpu": ("clock",)}
# The version of a profiler where kernels are timed; None if it is not installed there or does not start.
VersionOf = Callable[[Profiler], "str | None"]


def version_here(profiler: Profiler) -> str | None:
    return profiler.version()


def installed(backend: str) -> dict[str, str]:
    """The versions of the profilers on this machine that can time such kernels, by their names."""
    versions = {one.name: one.version() for one in PROFILERS if one.supports(backend)}
    return {name: version for name, version in versions.items() if version is not None}


def select(name: str, backend: str, flag: str = "--profiler", version_of: VersionOf = version_here) -> Profiler:
    """The profiler called ``name``; 'auto' is the first installed one of AUTO_ORDER.

    backend: 'cuda', 'hip' or 'cpu'. flag: the flag to name in errors. version_of: where kernels are timed.

    Raises UserError for an unknown name, and EnvironmentFault for a tool that is not installed or does not support the
    backend.
    """
    by_name = {profiler.name: profiler for profiler in PROFILERS}
    if name == AUTO:
        return first_installed([by_name[one] for one in AUTO_ORDER.get(backend, ())], backend, version_of)
    if name not in by_name:
        raise UserError(f"there is no profiler {name!r}", where=flag, accepted=", ".join((AUTO, *by_name)))
    profiler = by_name[name]
    if not profiler.supports(backend):
        raise unusable(f"{name} cannot time {backend} kernels", backend, flag=flag, version_of=version_of)
    if version_of(profiler) is None:
        what = f"{name} is not installed or does not start"
        raise unusable(what, backend, profiler.install_hint, flag, version_of)
    return profiler


def look_ahead(name: str) -> None:
    """Asks the tools that ``select`` is likely to ask for their versions, in a thread of its own."""
    likely = [names[0] for names in AUTO_ORDER.values()] if name == AUTO else [name]
    tools = [profiler for profiler in PROFILERS if profiler.name in likely]

    def ask() -> None:
        for profiler in tools:
            profiler.version()

    threading.Thread(target=ask, name="profiler", daemon=True).start()


def others(tool: Profiler, backend: str) -> list[Profiler]:
    """The installed profilers of AUTO_ORDER after ``tool``, which may be used if it does not work."""
    by_name = {profiler.name: profiler for profiler in PROFILERS}
    order = AUTO_ORDER.get(backend, ())
    after = order[order.index(tool.name) + 1 :] if tool.name in order else ()
    return [by_name[name] for name in after if by_name[name].version() is not None]


def first_installed(candidates: list[Profiler], backend: str, version_of: VersionOf) -> Profiler:
    for profiler in candidates:
        if version_of(profiler) is not None:
            return profiler
    hints = "; or ".join(profiler.install_hint for profiler in candidates)
    raise unusable(f"no profiler for {backend} is installed", backend, hints, version_of=version_of)


def unusable(
    what: str, backend: str, hint: str = "", flag: str = "--profiler", version_of: VersionOf = version_here
) -> EnvironmentFault:
    """The error for a profiler that cannot be used; it lists those that can. flag: that has named it."""
    usable = [profiler.name for profiler in PROFILERS if profiler.supports(backend) and version_of(profiler)]
    available = f"available: {', '.join(usable) or 'none'}"
    return EnvironmentFault(what, where=flag, hint="; ".join(filter(None, (hint, available))))
