"""The limits of cores and memory that a container, or a service, has by its Linux control groups."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gemm_tuner.system.input_files import text_in

ROOT = Path("/")
# In place of /proc/self/cgroup where it is not readable: what a container finds of its own at the root.
UNNAMED = "0::/\n1:memory:/\n1:cpu:/"


def core_limit(root: Path = ROOT) -> float | None:
    """The smallest quota of cores of this process's groups, such as 1.5; None without one. root: has proc and sys."""
    return min(filter(None, map(_core_limit, _groups(root))), default=None)


def memory_limit_bytes(root: Path = ROOT) -> int | None:
    """The smallest limit of memory of this process's groups; None without one or if unknown."""
    return min(filter(None, map(_memory_limit, _groups(root))), default=None)


def _groups(root: Path) -> Iterable[Path]:
    """The control groups of this process and their parents: version 2, and memory and cpu of version 1."""
    for line in (text_in(root / "proc/self/cgroup") or UNNAMED).splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        mounts = ["sys/fs/cgroup"] if number == "0" else [f"sys/fs/cgroup/{name}" for name in controllers.split(",")]
        for mount in mounts:
            group = root / mount / path.lstrip("/")
            while group.is_relative_to(root / mount):
                yield group
                group = group.parent


def _memory_limit(group: Path) -> int | None:
    """The limit in bytes; version 1 represents "no limit" by a number larger than any memory."""
    text = text_in(group / "memory.max") or text_in(group / "memory.limit_in_bytes")
    return int(text) if text.isdigit() and 0 < int(text) < 2**60 else None


def _core_limit(group: Path) -> float | None:
    """The limit in cores: quota divided by period."""
    words = text_in(group / "cpu.max").split() or [
        text_in(group / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    ]
    both = len(words) == 2 and all(word.isdigit() and int(word) for word in words)
    return int(words[0]) / int(words[1]) if both else None
