"""Saves what a finished run knew about its machine, so that repeating the command does not need to query torch.

Importing torch takes seconds, and a finished run times nothing. The saved data is used only if the drivers list the
same GPUs, and versions and GPU visibility variables are the same.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from gemm_tuner.measure import probe
from gemm_tuner.measure.device import Machine, driver_version
from gemm_tuner.pipeline.run_identity import job_key
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.store import run_folder
from gemm_tuner.system import nvml
from gemm_tuner.system.conversion import decoded
from gemm_tuner.system.documents import write_text_atomically

FILE = "machine.json"
SOURCES = ("measured", "predicted")
HIDING_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


@dataclass(frozen=True)
class _Kept:
    machine: Machine
    around: dict[str, Any]


def keep(run: Path, machine: Machine) -> None:
    """Writes the description of the machine into the folder of a finished run."""
    write_text_atomically(run / FILE, json.dumps(asdict(_Kept(machine, around())), indent=1) + "\n")


def recall(options: RunOptions) -> Machine | None:
    """The machine of a finished run of the same sizes, if nothing has changed since; else None."""
    if options.fresh:
        return None
    for source in SOURCES:
        folder = run_folder.find(options.output_dir, job_key(options, source, "tune"), options.cache_name)
        found = _read(folder.root / FILE) if folder is not None else None
        if found is not None:
            return found
    return None


def _read(path: Path) -> Machine | None:
    """The saved machine; None if the file is missing, unreadable, or for other GPUs, versions or variables."""
    try:
        kept = decoded(path.read_bytes(), _Kept)
    except (OSError, msgspec.DecodeError):
        return None
    gpus = kept.machine.gpus
    now = _Kept(Machine(gpus, probe.versions(), driver_version() if gpus else ""), around())
    return kept.machine if kept == now else None


def around() -> dict[str, Any]:
    """The GPUs that the drivers list, and everything that determines which of them torch sees, as JSON values."""
    return {
        "gpus": [*nvidia_uuids(), *amd_ids()],
        "variables": {name: os.environ[name] for name in HIDING_VARIABLES if name in os.environ},
        "python": sys.executable,
    }


def nvidia_uuids() -> list[str]:
    try:
        with nvml.opened() as connection:
            return connection.uuids()
    except nvml.NvmlError:
        return []


def amd_ids(root: Path = Path("/")) -> list[str]:
    """The unique ids of GPUs from amdgpu's driver; CPUs have 0 there and are left out."""
    paths = sorted(root.glob("sys/class/kfd/kfd/topology/nodes/*/gpu_id"))
    texts = [path.read_text(encoding="ascii", errors="replace").strip() for path in paths]
    return [text for text in texts if text not in ("", "0")]
