"""Which GPU a run is for, and what software runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.records import Device
from gemm_tuner.system import nvml
from gemm_tuner.system.installation import IMPORT_ROOT
from gemm_tuner.system.processes import guarded_command

PROBE_SECONDS = 120
DEFAULT_ARCH = "sm_90"


@dataclass(frozen=True, slots=True)
class Machine:
    """The GPUs of this machine as torch numbers them, and the versions of what matters."""

    gpus: tuple[dict[str, Any], ...]
    versions: dict[str, str]
    driver: str

    def gpu(self, index: int) -> dict[str, Any]:
        return self.gpus[index]


def look() -> Machine:
    """Asks a process of its own, so that this one holds no GPU memory and imports no torch.

    Raises EnvironmentFault when torch is broken.
    """
    command = guarded_command([sys.executable, "-m", "gemm_tuner.measure.probe"])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, cwd=IMPORT_ROOT)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFault(
            f"looking for GPUs took more than {PROBE_SECONDS} s", hint="is the driver hung? try nvidia-smi or rocm-smi"
        ) from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise EnvironmentFault(f"looking for GPUs failed: {last}", hint="does `python -c 'import torch'` work?")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    return Machine(tuple(answer["gpus"]), answer["versions"], driver_version() if answer["gpus"] else "")


def driver_version() -> str:
    """The GPU driver's version, or "" where unknown."""
    amdgpu = Path("/sys/module/amdgpu/version")
    return nvml.driver_version() or (amdgpu.read_text().strip() if amdgpu.is_file() else "")


def driver_name(gpu: Mapping[str, Any], visible: str) -> str:
    """How the driver's library names a GPU: its UUID, else the driver's number.

    gpu: what torch says of it. visible: the GPU in the terms of CUDA_VISIBLE_DEVICES. torch writes the UUID of a MIG
    instance as that of a GPU.
    """
    uuid = str(gpu.get("uuid", ""))
    if visible.startswith("MIG-"):
        return f"MIG-{uuid.removeprefix('GPU-')}" if uuid else visible
    return uuid or visible


def lock_name(gpu: Mapping[str, Any], name: str) -> str:
    """How all processes of a machine name a GPU: its UUID, else its place on the bus, else the driver's number.

    name: ``driver_name`` of it.
    """
    return str(gpu.get("uuid") or gpu.get("pci") or f"number-{name}")


def choose_gpus(machine: Machine, gpu_ids: tuple[int, ...] | None, ngpus: int | None) -> tuple[int, ...]:
    """The GPUs to use, by id. Raises UserError for an id that is not there or for GPUs of several kinds,
    and EnvironmentFault when there is none at all."""
    there = [gpu["id"] for gpu in machine.gpus]
    flag = "--ngpus" if gpu_ids is None else "--gpu_ids"
    if not there:
        raise EnvironmentFault(
            "torch sees no GPU on this machine", where=flag, hint=f"without {flag} the times are predicted"
        )
    if gpu_ids is not None:
        unknown = [i for i in gpu_ids if i not in there]
        if unknown or len(set(gpu_ids)) != len(gpu_ids):
            what = f"there is no GPU {unknown[0]}" if unknown else "a GPU is named twice"
            raise UserError(what, where=flag, accepted=", ".join(map(str, there)))
        chosen = gpu_ids
    else:
        count = 1 if ngpus is None else ngpus
        if not 1 <= count <= len(there):
            raise UserError(f"there are no {count} GPUs", where=flag, accepted=f"1 to {len(there)}")
        chosen = tuple(there[:count])
    kinds = {(machine.gpu(i)["name"], machine.gpu(i)["arch"]) for i in chosen}
    if len(kinds) > 1:
        listed = ", ".join(f"{i}: {machine.gpu(i)['name']}" for i in chosen)
        raise UserError(f"the GPUs are of several kinds ({listed})", where=flag, accepted="one kind in a run")
    return chosen


def measured_device(assumed: Device, gpu: dict[str, Any]) -> Device:
    """The architecture's device with what this GPU says of itself; 0 means that it does not say."""
    known = {k: gpu[k] for k in ("name", "num_sms", "memory_bytes", "l2_bytes", "shared_memory_bytes") if gpu[k]}
    if assumed.target.backend == "hip":
        # torch reports neither the whole L2 of all chiplets nor an opt-in limit on AMD.
        known = {k: known[k] for k in ("name", "num_sms", "memory_bytes") if k in known}
    return replace(assumed, **known)
