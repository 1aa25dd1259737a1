"""This machine's CPU as a device, for languages that compile for the CPU."""

from __future__ import annotations

import platform
import re
import socket
from pathlib import Path

import psutil

from gemm_tuner.measure import probe
from gemm_tuner.measure.device import Machine
from gemm_tuner.system.cores import usable_cores

UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def look() -> Machine:
    """The CPU in the form of a GPU: "num_sms" is the number of cores that this process may use, "l2_bytes" the largest
    cache. Unknown values are 0."""
    cpu = {
        "id": 0,
        "uuid": f"CPU-{re.sub(r'[^A-Za-z0-9.-]', '-', socket.gethostname())}",
        "pci": "",
        "name": cpu_name(),
        "arch": platform.machine(),
        "num_sms": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "l2_bytes": largest_cache_bytes(),
        "shared_memory_bytes": 0,
    }
    return Machine((cpu,), probe.versions(), "")


def cpu_name(root: Path = Path("/")) -> str:
    """The model from /proc/cpuinfo, else the architecture."""
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return " ".join(found[1].split()) if found else platform.machine()


def largest_cache_bytes(root: Path = Path("/")) -> int:
    """The size of the largest cache from sysfs, where sizes look like "32768K"; 0 if unknown."""
    sizes = []
    for path in root.glob("sys/devices/system/cpu/cpu0/cache/index*/size"):
        found = re.fullmatch(r"(\d+)([KMG]?)", path.read_text(encoding="ascii", errors="replace").strip())
        if found:
            sizes.append(int(found[1]) * UNITS.get(found[2], 1))
    return max(sizes, default=0)
