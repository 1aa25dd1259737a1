"""``python -m gemm_tuner.measure.probe``: prints the GPUs that torch sees as JSON, so that its parent process does not
have to open a GPU. CUDA's driver is asked first, which takes a tenth of the time."""

from __future__ import annotations

import json
import platform
import runpy
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gemm_tuner.system.cuda_driver import CudaError, Driver
from gemm_tuner.system.package_version import package_version


def pci_address(properties: Any) -> str:
    """The PCI address of a GPU, such as "0000:c3:00"; "" if this torch does not report it."""
    try:
        return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}"
    except AttributeError:
        return ""


def built_for() -> dict[str, str | None]:
    """The versions of CUDA and ROCm that the installed torch was built for, None for without it, as far as its version
    file says.

    Reading that file takes milliseconds; importing torch takes seconds.
    """
    spec = find_spec("torch")
    file = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    built = runpy.run_path(str(file)) if file and file.is_file() else {}
    return {name: built[name] for name in ("cuda", "hip") if name in built}


def gpus() -> list[dict[str, Any]]:
    """The properties of each GPU, in the order of ids; empty without torch or a GPU."""
    built = built_for()
    if len(built) == 2 and not any(built.values()):
        return []
    return gpus_of_driver(built.get("cuda") or "") or gpus_of_torch()


def gpus_of_driver(cuda: str) -> list[dict[str, Any]]:
    """``gpus`` from CUDA's driver; empty where that does not tell what torch sees. cuda: the version of torch's CUDA,
    "" if torch is not known to have one."""
    major = cuda.partition(".")[0]
    if not major.isdigit():
        return []
    try:
        driver = Driver()
        found = driver.gpus() if driver.cuda_major() >= int(major) else []
    except CudaError:
        return []
    return [{"id": index, **asdict(gpu)} for index, gpu in enumerate(found)]


def gpus_of_torch() -> list[dict[str, Any]]:
    """``gpus`` by importing torch."""
    try:
        import torch
    except ImportError:
        return []
    if not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(index)
        arch = p.gcnArchName.split(":")[0] if torch.version.hip else f"sm_{p.major}{p.minor}"
        found.append(
            {
                "id": index,
                "uuid": f"GPU-{p.uuid}" if getattr(p, "uuid", "") and not torch.version.hip else "",
                "pci": pci_address(p),
                "name": p.name,
                "arch": arch,
                "num_sms": p.multi_processor_count,
                "memory_bytes": p.total_memory,
                "l2_bytes": getattr(p, "L2_cache_size", 0),
                "shared_memory_bytes": getattr(p, "shared_memory_per_block_optin", 0),
            }
        )
    return found


def versions() -> dict[str, str]:
    """Versions of the packages that affect times, without importing them; "" for one that is not installed."""
    packages = {name: package_version(name) or "" for name in ("torch", "triton", "pandas")}
    return {**packages, "python": platform.python_version()}


def main() -> int:
    print(json.dumps({"gpus": gpus(), "versions": versions()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
