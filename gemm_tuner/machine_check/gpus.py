"""What the drivers say of their GPUs: clocks, load, who else uses them. Each source is optional.

NVIDIA's is ``nvidia-smi``. AMD's are the files of the amdgpu driver under /sys, which need no tool.
"""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

TOOL_SECONDS = 30
LOCKED, NOT_LOCKED, UNKNOWN = "locked", "not locked", "unknown"
_FIELDS = (
    *("index", "name", "uuid", "clocks.current.sm", "clocks.max.sm", "clocks.applications.graphics"),
    *("clocks.default_applications.graphics", "clocks_event_reasons.active", "memory.used", "utilization.gpu"),
    *("mig.mode.current", "persistence_mode"),
)
# Bits of NVML's clocks event reasons (nvml.h).
_IDLE = 0x1
_SLOWED = {0x8: "hardware slowdown", 0x20: "heat, by the driver", 0x40: "heat, by the hardware", 0x80: "power brake"}
_AMD_VENDOR = "0x1002"
_CURRENT_CLOCK = re.compile(r"(\d+)\s*Mhz\s*\*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Process:
    """A process that uses a GPU."""

    pid: int
    name: str


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU as its driver numbers it, which torch may not. None and empty texts: not told.

    clocks:  LOCKED, NOT_LOCKED or UNKNOWN.
    slowed:  why it runs below its clocks now, in words.
    memory_used_mib: of all processes; utilization_pct: share of time with a kernel running.
    """

    index: int
    name: str
    vendor: str
    clocks: str = UNKNOWN
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    slowed: str = ""
    memory_used_mib: int | None = None
    utilization_pct: int | None = None
    mig: bool = False
    persistent: bool | None = None
    processes: tuple[Process, ...] = ()


def look(root: Path = Path("/")) -> tuple[GpuState, ...]:
    """All GPUs that a driver tells of. root: where /sys and /proc are."""
    return (*nvidia(), *amd(root))


def nvidia() -> tuple[GpuState, ...]:
    """What nvidia-smi says; empty without it."""
    rows = _query(("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"))
    apps = _query(("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name", "--format=csv,noheader"))
    found = []
    for cells in rows:
        if len(cells) != len(_FIELDS):
            continue
        row = dict(zip(_FIELDS, cells, strict=True))
        reasons = (
            int(row["clocks_event_reasons.active"], 16) if row["clocks_event_reasons.active"].startswith("0x") else 0
        )
        processes = [
            Process(int(app[1]), app[2]) for app in apps if app[0] == row["uuid"] and len(app) == 3 and app[1].isdigit()
        ]
        found.append(
            GpuState(
                index=_number(row["index"]) or 0,
                name=row["name"],
                vendor="nvidia",
                clocks=_nvidia_clocks(row, reasons),
                sm_clock_mhz=_number(row["clocks.current.sm"]),
                max_sm_clock_mhz=_number(row["clocks.max.sm"]),
                slowed=", ".join(words for bit, words in _SLOWED.items() if reasons & bit),
                memory_used_mib=_number(row["memory.used"]),
                utilization_pct=_number(row["utilization.gpu"]),
                mig=row["mig.mode.current"] == "Enabled",
                persistent={"Enabled": True, "Disabled": False}.get(row["persistence_mode"]),
                processes=tuple(processes),
            )
        )
    return tuple(found)


def _nvidia_clocks(row: dict[str, str], reasons: int) -> str:
    """The driver does not tell of a lock. A GPU that is idle below its highest clock is free to change it; application
    clocks other than the default ones were set by somebody; else nothing is known."""
    names = (
        "clocks.current.sm",
        "clocks.max.sm",
        "clocks.applications.graphics",
        "clocks.default_applications.graphics",
    )
    now, highest, applications, default = (_number(row[name]) for name in names)
    if applications and default and applications != default:
        return LOCKED
    if reasons & _IDLE and now and highest and now < highest / 2:
        return NOT_LOCKED
    return UNKNOWN


def _query(command: Sequence[str]) -> list[list[str]]:
    """The cells of a tool's CSV; nothing where it is absent, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TOOL_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode != 0:
        return []
    return [[cell.strip() for cell in cells] for cells in csv.reader(done.stdout.splitlines()) if cells]


def _number(text: str) -> int | None:
    found = re.match(r"\d{1,12}", text)
    return int(found.group()) if found else None


def amd(root: Path = Path("/")) -> tuple[GpuState, ...]:
    """What amdgpu's files say; empty without such a GPU."""
    cards = sorted(root.glob("sys/class/drm/card*/device/vendor"), key=lambda path: (len(str(path)), str(path)))
    mine = [path.parent for path in cards if path.parent.parent.name[4:].isdigit() and _text(path) == _AMD_VENDOR]
    processes = tuple(_kfd_processes(root))
    return tuple(_amd_gpu(index, folder, processes) for index, folder in enumerate(mine))


def _amd_gpu(index: int, folder: Path, processes: tuple[Process, ...]) -> GpuState:
    """processes: of all AMD GPUs; the driver's list does not say which uses which."""
    level = _text(folder / "power_dpm_force_performance_level")
    steps = _text(folder / "pp_dpm_sclk")
    clocks = [int(step) for step in re.findall(r"(\d+)\s*Mhz", steps, re.IGNORECASE)]
    now = _CURRENT_CLOCK.search(steps)
    used = _number(_text(folder / "mem_info_vram_used"))
    return GpuState(
        index=index,
        name=_text(folder / "product_name") or "AMD GPU",
        vendor="amd",
        clocks=UNKNOWN if not level else NOT_LOCKED if level == "auto" else LOCKED,
        sm_clock_mhz=int(now[1]) if now else None,
        max_sm_clock_mhz=max(clocks, default=None),
        memory_used_mib=None if used is None else used >> 20,
        utilization_pct=_number(_text(folder / "gpu_busy_percent")),
        processes=processes,
    )


def _kfd_processes(root: Path) -> Iterable[Process]:
    for folder in sorted(root.glob("sys/class/kfd/kfd/proc/*")):
        if folder.name.isdigit():
            yield Process(int(folder.name), _text(root / "proc" / folder.name / "comm") or "unknown")


def _text(path: Path) -> str:
    """A driver's file; empty where it is not there or may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
