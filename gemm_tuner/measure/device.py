"""The GPUs of this machine, the selection of those to use, and the versions of their software."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.records import Device
from gemm_tuner.system import nvml
from gemm_tuner.system.installation import IMPORT_ROOT
from gemm_tuner.system.processes import guarded_command

PROBE_SECONDS = 300
DEFAULT_ARCH = "sm_90"


@dataclass(frozen=True, slots=True)
class Machine:
    """The GPUs of this machine, numbered as in torch, and the versions of relevant software."""

    gpus: tuple[dict[str, Any], ...]
    versions: dict[str, str]
    driver: str

    def gpu(self, index: int) -> dict[str, Any]:
        return self.gpus[index]


def look() -> Machine:
    """Queries the GPUs in a child process, so that this process uses no GPU memory and does not import torch.

    Raises EnvironmentFault if torch is broken.
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


def begin_to_look() -> Future[Machine]:
    """``look`` in a thread of its own."""
    found: Future[Machine] = Future()

    def run() -> None:
        try:
            found.set_result(look())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, name="look", daemon=True).start()
    return found


def driver_version() -> str:
    """The GPU driver's version; "" if unknown."""
    amdgpu = Path("/sys/module/amdgpu/version")
    return nvml.driver_version() or (amdgpu.read_text().strip() if amdgpu.is_file() else "")


def visible_gpu(backend: str, gpu: int, env: Mapping[str, str]) -> str:
    """The driver's name of torch's GPU number ``gpu``; torch numbers only the GPUs that the environment makes visible.

    HIP_VISIBLE_DEVICES (or CUDA_VISIBLE_DEVICES instead) numbers the GPUs that ROCR_VISIBLE_DEVICES leaves visible.
    """
    hip = "HIP_VISIBLE_DEVICES" if env.get("HIP_VISIBLE_DEVICES") else "CUDA_VISIBLE_DEVICES"
    name = str(gpu)
    for variable in ("CUDA_VISIBLE_DEVICES",) if backend == "cuda" else (hip, "ROCR_VISIBLE_DEVICES"):
        left = [part.strip() for part in env.get(variable, "").split(",") if part.strip()]
        if name.isdigit() and int(name) < len(left):
            name = left[int(name)]
    return name


def driver_name(gpu: Mapping[str, Any], visible: str) -> str:
    """The name of a GPU for the driver's library: its UUID, else the driver's number.

    gpu: its properties from torch. visible: the GPU as in CUDA_VISIBLE_DEVICES. torch reports the UUID of a MIG
         instance
    with the prefix of a GPU.
    """
    uuid = str(gpu.get("uuid", ""))
    if visible.startswith("MIG-"):
        return f"MIG-{uuid.removeprefix('GPU-')}" if uuid else visible
    return uuid or visible


def lock_name(gpu: Mapping[str, Any], name: str) -> str:
    """A name for a GPU that all processes of this machine agree on: its UUID, else its PCI address, else the driver's
    number.

    name: its ``driver_name``.
    """
    return str(gpu.get("uuid") or gpu.get("pci") or f"number-{name}")


def backend_of(gpu: Mapping[str, Any]) -> str:
    return "hip" if str(gpu["arch"]).startswith("gfx") else "cuda"


def lock_name_here(gpu: Mapping[str, Any]) -> str:
    """``lock_name`` of a GPU that this process sees under its number."""
    return lock_name(gpu, driver_name(gpu, visible_gpu(backend_of(gpu), gpu["id"], os.environ)))


def choose_gpus(machine: Machine, gpu_ids: tuple[int, ...] | None, ngpus: int | None) -> tuple[int, ...]:
    """The ids of the GPUs to use. Raises UserError for an unknown id or for GPUs of different kinds, and
    EnvironmentFault if there is no GPU."""
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
    """The architecture's device, updated with the reported properties of this GPU; 0 means that one is not reported."""
    known = {k: gpu[k] for k in ("name", "num_sms", "memory_bytes", "l2_bytes", "shared_memory_bytes") if gpu[k]}
    if assumed.target.backend == "hip":
        # On AMD torch reports neither the total L2 of all chiplets nor an opt-in limit of LDS.
        known = {k: known[k] for k in ("name", "num_sms", "memory_bytes") if k in known}
    return replace(assumed, **known)
