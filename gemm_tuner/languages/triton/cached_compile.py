"""Gets one kernel from Triton's disk cache or compiler, makes sure it has the right symbol, and marks it as used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gemm_tuner.core.workload import Launch
from gemm_tuner.languages.kernel_cache import mark_used
from gemm_tuner.system.replaced import replaced

TRIES = 3


class NotCachedError(LookupError):
    """A kernel is not in Triton's cache."""


@contextlib.contextmanager
def only_from_cache() -> Iterator[None]:
    """A context in which Triton raises NotCachedError instead of compiling a kernel."""
    from triton.backends import backends

    def refuse(*_: Any) -> None:
        raise NotCachedError

    with contextlib.ExitStack() as stack:
        for backend in backends.values():
            stack.enter_context(replaced(backend.compiler, "add_stages", refuse))
        yield


def warm_up(launch: Launch) -> tuple[Any, bool]:
    """Returns (the compiled kernel, whether it was a cache hit).

    Triton's cache key does not contain the symbol (the kernel's name in the binary), so a hit may have the symbol of
    another script with the same source. Such an entry is compiled again and replaced, and so is an entry that the
    eviction of another run removes in the meantime. Raises what Triton raises.
    """
    import triton

    symbol, kernel, grid, args, options = launch

    events: list[tuple[bool, dict[str, str]]] = []

    def note(*, cache_hit: bool, metadata_group: dict[str, str], **_: Any) -> None:
        events.append((cache_hit, metadata_group))

    with triton.knobs.compilation.scope():
        triton.knobs.compilation.listener = note
        for _ in range(TRIES):
            events.clear()
            try:
                found = kernel.warmup(*args, grid=grid, **options)
            except FileNotFoundError:  # removed after Triton looked it up and before it read it
                kernel.device_caches.clear()
                continue
            if not events:
                return found, True  # from the memory of this process, where it was verified before
            hit, files = events[-1]
            if not hit:
                return found, False
            is_there = mark_used(Path(next(iter(files.values()))).parent)
            if is_there and found.metadata.name == symbol:
                return found, True
            kernel.device_caches.clear()
            triton.knobs.compilation.always_compile = is_there
        return kernel.warmup(*args, grid=grid, **options), False
