"""The space of configurations: axes per architecture as data, one DataFrame row a configuration."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gemm_tuner.documents import load_yaml
from gemm_tuner.errors import UserError
from gemm_tuner.records import AMD_NAME_PARTS, CONFIG_FIELDS, NAME_PARTS, Device, KernelConfig, Target

AXES = tuple(f for f in CONFIG_FIELDS if f != "family")
AMD_AXES = tuple(field for field, _ in AMD_NAME_PARTS)
POWERS_OF_TWO = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps")
MAX_CONFIGS = 5_000_000
DEVICE_KEYS = (
    "name", "backend", "warp_size", "num_sms", "shared_memory_bytes", "shared_memory_per_sm_bytes",
    "registers_per_sm", "max_registers", "max_warps_per_sm", "l2_bytes", "memory_bytes", "dram_gbps",
    "l2_gbps", "matmul_tflops",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SpaceFile:
    """What a space file says: the assumed device of its architecture, and axes by family."""

    path: Path
    device: Device
    families: dict[str, dict[str, tuple[int, ...]]]


def known_archs(rules_dir: Path) -> list[str]:
    """The architectures that have a space file."""
    return sorted(path.stem.removeprefix("space_") for path in rules_dir.glob("space_*.yaml"))


def space_path(rules_dir: Path, arch: str) -> Path:
    """Raises UserError for an architecture without a space file."""
    path = rules_dir / f"space_{arch}.yaml"
    if not path.is_file():
        known = ", ".join(known_archs(rules_dir))
        raise UserError(
            f"no space is known for architecture {arch!r}",
            where="--arch",
            accepted=known or "none: the rules folder has no space_*.yaml",
            hint=f"or copy the nearest file to {path} and edit it, or name one with --space",
        )
    return path


def load(path: Path, arch: str) -> SpaceFile:
    """Reads and checks a space file. Raises UserError naming the file and the key."""
    document = load_yaml(path, "space file")
    where = str(path)
    if not isinstance(document, dict) or not set(document) <= {"device", "families"} or "families" not in document:
        raise UserError("is no space file", where=where, accepted="a mapping with the keys device and families")
    families = document["families"]
    if not isinstance(families, dict) or not families:
        raise UserError("has no families", where=where, accepted="families: {gemm_tile: {BLOCK_SIZE_M: [...], ...}}")
    device = _device(document.get("device"), arch, where)
    return SpaceFile(path, device, {str(f): _axes(axes, f"{where}, {f}", device) for f, axes in families.items()})


def _device(row: Any, arch: str, where: str) -> Device:
    if not isinstance(row, dict) or set(row) != set(DEVICE_KEYS):
        wrong = sorted(set(DEVICE_KEYS) ^ set(row if isinstance(row, dict) else ()))
        raise UserError(
            f"the device lacks or has too many of: {', '.join(map(str, wrong))}",
            where=where,
            accepted=", ".join(DEVICE_KEYS),
        )
    tflops = row["matmul_tflops"]
    numbers = [v for k, v in row.items() if k not in ("name", "backend", "matmul_tflops")]
    numbers += list(tflops.values()) if isinstance(tflops, dict) else [None]
    if not all(isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0 for v in numbers):
        raise UserError("the device's limits and speeds must be positive numbers", where=where)
    if row["backend"] not in ("cuda", "hip"):
        raise UserError(f"backend {row['backend']!r} is not known", where=where, accepted="cuda, hip")
    target = Target(row["backend"], arch, row["warp_size"])
    rest = {k: row[k] for k in DEVICE_KEYS if k not in ("backend", "warp_size", "matmul_tflops")}
    return Device(target=target, matmul_tflops=tuple((str(k), float(v)) for k, v in tflops.items()), **rest)


def _axes(axes: Any, where: str, device: Device) -> dict[str, tuple[int, ...]]:
    accepted = AXES if device.target.backend == "hip" else tuple(a for a in AXES if a not in AMD_AXES)
    if not isinstance(axes, dict) or set(axes) != set(accepted):
        wrong = sorted(set(accepted) ^ set(axes if isinstance(axes, dict) else ()), key=str)
        raise UserError(
            f"the axes lack or have too many of: {', '.join(map(str, wrong))}",
            where=where,
            accepted=", ".join(accepted),
        )
    for axis, values in axes.items():
        _check_axis(axis, values, where)
    size = int(np.prod([len(v) for v in axes.values()], dtype=float))
    if size > MAX_CONFIGS:
        raise UserError(f"has {size} configurations", where=where, accepted=f"at most {MAX_CONFIGS}")
    return {axis: tuple(axes[axis]) for axis in accepted}


def _check_axis(axis: str, values: Any, where: str) -> None:
    lowest = 0 if axis in ("waves_per_eu", "matrix_instr_nonkdim") else 1
    good = isinstance(values, list) and values and len(set(map(str, values))) == len(values)
    good = good and all(isinstance(v, int) and not isinstance(v, bool) and lowest <= v <= 65536 for v in values)
    if good and axis in POWERS_OF_TWO:
        good = all(v & (v - 1) == 0 for v in values)
    if not good:
        kind = "powers of two" if axis in POWERS_OF_TWO else "integers"
        raise UserError(
            f"{axis} is {values!r}"[:200], where=where, accepted=f"a list of different {kind}, {lowest} or more"
        )


def frame(space: SpaceFile) -> pd.DataFrame:
    """All configurations, one row each, columns as KernelConfig's fields; nothing is cut yet."""
    parts = []
    for family, axes in space.families.items():
        columns = np.array(list(itertools.product(*axes.values())), dtype=np.int64)
        part = pd.DataFrame(columns, columns=list(axes))
        for axis in AMD_AXES:
            if axis not in axes:
                part[axis] = np.int64(0)
        part.insert(0, "family", family)
        parts.append(part[list(CONFIG_FIELDS)])
    return pd.concat(parts, ignore_index=True)


def config_at(configs: pd.DataFrame, row: Any) -> KernelConfig:
    """The configuration of one row, by its label."""
    values = configs.loc[row]
    return KernelConfig(str(values["family"]), **{axis: int(values[axis]) for axis in AXES})


def configs_of(configs: pd.DataFrame) -> list[KernelConfig]:
    """The configurations of all rows, in order."""
    columns = [configs["family"].tolist(), *(configs[axis].tolist() for axis in AXES)]
    return [KernelConfig(*row) for row in zip(*columns, strict=True)]


def names(configs: pd.DataFrame) -> pd.Series:
    """The canonical name of every row; equal to ``KernelConfig.name`` (tested)."""
    text = configs["family"].astype(str)
    for field, short in NAME_PARTS:
        text = text + f"_{short}" + configs[field].astype(str)
    amd = text.copy()
    for field, short in AMD_NAME_PARTS:
        amd = amd + f"_{short}" + configs[field].astype(str)
    return text.where(configs["kpack"] == 0, amd)
