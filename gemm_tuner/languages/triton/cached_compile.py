"""One kernel from Triton's cache on disk, or from its compiler: the right one, and marked as used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gemm_tuner.core.workload import Launch
from gemm_tuner.languages.kernel_cache import mark_used

TRIES = 3


def warm_up(launch: Launch) -> tuple[Any, bool]:
    """The compiled kernel, and whether it was there already.

    Triton's cache key has no symbol, the kernel's name in the binary: an entry with another one, written by a script
    that names the same source in another way, is compiled again and replaced. So is one that another run's eviction
    removes meanwhile. Raises what Triton raises.
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
            except FileNotFoundError:  # removed between Triton's look and its read
                kernel.device_caches.clear()
                continue
            if not events:
                return found, True  # from this process's memory, where it was looked at before
            hit, files = events[-1]
            if not hit:
                return found, False
            is_there = mark_used(Path(next(iter(files.values()))).parent)
            if is_there and found.metadata.name == symbol:
                return found, True
            kernel.device_caches.clear()
            triton.knobs.compilation.always_compile = is_there
        return kernel.warmup(*args, grid=grid, **options), False
