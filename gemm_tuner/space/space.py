"""The space of configurations: axes of each architecture as data, spanned to a DataFrame, one row each."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from gemm_tuner.core import architecture
from gemm_tuner.core.architecture import Architecture
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device, Target
from gemm_tuner.gemm.config import (
    AMD_NAME_PARTS,
    CONFIG_FIELDS,
    FAMILY_NAME_PARTS,
    NAME_PARTS,
    UNUSED,
    KernelConfig,
    has_legal_shape,
    legal_shapes,
)
from gemm_tuner.system.documents import load_yaml, refuse_unknown, show
from gemm_tuner.system.input_files import printable

AXES = tuple(f for f in CONFIG_FIELDS if f != "family")
AMD_AXES = tuple(field for field, _ in AMD_NAME_PARTS)
# Axes that a family need not name: it does not use them.
OPTIONAL_AXES = tuple(field for field, _ in FAMILY_NAME_PARTS)
FROM_0 = ("waves_per_eu", "matrix_instr_nonkdim", "PROGRAMS_PER_SM", "WARP_SPECIALIZE", "STREAM_B")
FLAGS = ("WARP_SPECIALIZE", "STREAM_B")
HIGHEST = 65536  # of any axis
MAX_CONFIGS = 5_000_000  # of all families together
MAX_FAMILIES = 64
MAX_DEVICE_NUMBER = 2**53  # up to here floats count whole numbers exactly
MAX_NAME_CHARS = 200
DEVICE_KEYS = (
    "name", "backend", "warp_size", "num_sms", "shared_memory_bytes", "shared_memory_per_sm_bytes",
    "registers_per_sm", "max_registers", "max_warps_per_sm", "l2_bytes", "memory_bytes", "dram_gbps",
    "l2_gbps", "matmul_tflops",
)  # fmt: skip
FACT_KEYS = ("matrix", "tma", "clusters", "fp8", "chiplets")
SECTIONS = ("architecture", "device", "families")
MAX_GPUS = 256
RATES = ("dram_gbps", "l2_gbps")  # may be fractions; the other numbers of a device are counts


@dataclass(frozen=True, slots=True)
class SpaceFile:
    """The content of a space file: the device assumed for its architecture, and the values of axes by family.

    gpus: (name for ``export --for``, shared memory or LDS of a block in bytes) of the architecture's GPUs.
    """

    path: Path
    device: Device
    families: dict[str, dict[str, tuple[int, ...]]]
    gpus: tuple[tuple[str, int], ...] = ()


def known_archs(rules_dir: Path) -> list[str]:
    """The architectures that have a space file."""
    return sorted(path.stem.removeprefix("space_") for path in rules_dir.glob("space_*.yaml"))


def relative(rules_dir: Path, arch: str) -> str:
    """The architecture whose space file serves this one: itself, or its nearest relative. Raises UserError without."""
    found = architecture.nearest(arch, known_archs(rules_dir))
    if found is None:
        known = ", ".join(known_archs(rules_dir))
        raise UserError(
            f"no space is known for architecture {arch!r}",
            where="--arch",
            accepted=known or "none: the rules folder has no space_*.yaml",
            hint=f"or edit a copy of the nearest space_*.yaml in {rules_dir} and name it with --space",
        )
    return found


def space_path(rules_dir: Path, arch: str) -> Path:
    """The space file of an architecture or of its nearest relative. Raises UserError without either."""
    return rules_dir / f"space_{relative(rules_dir, arch)}.yaml"


def stand_in_note(rules_dir: Path, arch: str) -> str:
    """One line that names the relative whose space file serves this architecture; empty where it has its own."""
    found = relative(rules_dir, arch)
    return "" if found == arch else f"{arch} is not known: space and rules are those of its nearest relative, {found}"


def load(path: Path, arch: str) -> SpaceFile:
    """Reads and checks a space file. Raises UserError naming the file and the key."""
    document = load_yaml(path, "space file")
    where = printable(path)
    accepted = "a mapping with the keys architecture, device and families"
    if not isinstance(document, dict) or not set(document) <= {*SECTIONS, "gpus"} or "families" not in document:
        raise UserError("is no space file", where=where, accepted=accepted)
    families = document["families"]
    if not isinstance(families, dict) or not families:
        raise UserError("has no families", where=where, accepted="families: {gemm_tile: {BLOCK_SIZE_M: [...], ...}}")
    if len(families) > MAX_FAMILIES:
        raise UserError(f"has {len(families)} families", where=where, accepted=f"at most {MAX_FAMILIES}")
    facts = _facts(document.get("architecture"), f"{where}, architecture")
    device = _device(document.get("device"), arch, facts, f"{where}, device")
    for family in families:
        if not isinstance(family, str) or not re.fullmatch("[a-z][a-z0-9_]{0,63}", family):
            raise UserError(f"family {show(family)} is no name", where=where, accepted="a name such as gemm_tile")
    checked = {name: _axes(axes, f"{where}, {name}", device) for name, axes in families.items()}
    _check_size(checked, where)
    return SpaceFile(path, device, checked, _gpus(document.get("gpus", {}), f"{where}, gpus"))


def _check_size(families: dict[str, dict[str, tuple[int, ...]]], where: str) -> None:
    size = sum(math.prod(len(values) for values in axes.values()) for axes in families.values())
    if size > MAX_CONFIGS:
        raise UserError(f"has {size} configurations", where=where, accepted=f"at most {MAX_CONFIGS}")


def _mapping(value: Any, keys: tuple[str, ...], where: str, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """The value, a mapping with exactly these keys; ``optional`` ones may be absent. Raises UserError."""
    if not isinstance(value, dict):
        raise UserError(f"is {show(value)} and not a mapping", where=where, accepted=", ".join(keys))
    refuse_unknown(value, keys, where)
    missing = [key for key in keys if key not in value and key not in optional]
    if missing:
        raise UserError(f"lacks {', '.join(missing)}", where=where, accepted=", ".join(keys))
    return value


def _facts(value: Any, where: str) -> Architecture:
    row = _mapping(value, FACT_KEYS, where)
    for key, kinds in (("matrix", architecture.MATRIX_KINDS), ("fp8", architecture.FP8_KINDS)):
        if row[key] not in kinds:
            raise UserError(f"{key} is {show(row[key])}", where=where, accepted=", ".join(kinds))
    for key in ("tma", "clusters"):
        if type(row[key]) is not bool:
            raise UserError(f"{key} is {show(row[key])}", where=where, accepted="true, false")
    _check_positive("chiplets", row["chiplets"], where, whole=True)
    return Architecture(**row)


def _gpus(value: Any, where: str) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, dict) or len(value) > MAX_GPUS:
        accepted = "bytes of shared memory by name, such as {H200: 232448}"
        raise UserError(f"is {show(value)}", where=where, accepted=accepted)
    for name, limit in value.items():
        if not isinstance(name, str) or not re.fullmatch("[A-Za-z0-9]{1,40}", name):
            raise UserError(f"{show(name)} is no name", where=where, accepted="letters and digits, such as H200")
        _check_positive(name, limit, where, whole=True)
    return tuple(value.items())


def _device(value: Any, arch: str, facts: Architecture, where: str) -> Device:
    row = _mapping(value, DEVICE_KEYS, where)
    if not _is_name(row["name"]):
        raise UserError(f"name is {show(row['name'])}", where=where, accepted="text of one line")
    if row["backend"] not in ("cuda", "hip"):
        raise UserError(f"backend is {show(row['backend'])}", where=where, accepted="cuda, hip")
    if (row["backend"] == "hip") != arch.startswith("gfx"):
        hint = "name the architecture of this file by --arch"
        raise UserError(f"backend is {row['backend']}, which is not that of {arch}", where=where, hint=hint)
    for key in (k for k in DEVICE_KEYS if k not in ("name", "backend", "matmul_tflops")):
        _check_positive(key, row[key], where, whole=key not in RATES)
    tflops = row["matmul_tflops"]
    if not isinstance(tflops, dict) or not tflops:
        accepted = "TFLOP/s by type, such as {bf16: 989}"
        raise UserError(f"matmul_tflops is {show(tflops)}", where=where, accepted=accepted)
    for dtype, rate in tflops.items():
        if not _is_name(dtype):
            raise UserError(f"matmul_tflops has the key {show(dtype)}", where=where, accepted="a type, such as bf16")
        _check_positive(f"matmul_tflops of {show(dtype)}", rate, where, whole=False)
        if dtype.startswith("fp8") and facts.fp8 != ("fnuz" if dtype.endswith("_fnuz") else "ocp"):
            raise UserError(f"matmul_tflops has {dtype}, but the architecture's fp8 is {facts.fp8}", where=where)
    if (facts.matrix in ("mfma", "wmma")) != (row["backend"] == "hip"):
        raise UserError(f"matrix is {facts.matrix}, which {row['backend']} has not", where=where)
    target = Target(row["backend"], arch, row["warp_size"], facts)
    rest = {k: row[k] for k in DEVICE_KEYS if k not in ("backend", "warp_size", "matmul_tflops")}
    return Device(target=target, matmul_tflops=tuple((k, float(v)) for k, v in tflops.items()), **rest)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= MAX_NAME_CHARS


def _check_positive(key: str, value: Any, where: str, *, whole: bool) -> None:
    kinds = (int,) if whole else (int, float)
    if type(value) not in kinds or not 0 < value < MAX_DEVICE_NUMBER:
        accepted = f"{'an integer' if whole else 'a number'} above 0 and below 2^53"
        raise UserError(f"{key} is {show(value)}", where=where, accepted=accepted)


def _axes(value: Any, where: str, device: Device) -> dict[str, tuple[int, ...]]:
    accepted = AXES if device.target.backend == "hip" else tuple(a for a in AXES if a not in AMD_AXES)
    axes = _mapping(value, accepted, where, OPTIONAL_AXES)
    for axis, values in axes.items():
        _check_axis(axis, values, where)
    return {axis: tuple(axes.get(axis, (UNUSED.get(axis),))) for axis in accepted}


def _check_axis(axis: str, values: Any, where: str) -> None:
    lowest, highest = 0 if axis in FROM_0 else 1, 1 if axis in FLAGS else HIGHEST
    shapes = legal_shapes(axis)
    accepted = f"a list of different integers from {lowest} to {highest}{', each ' if shapes else ''}{shapes}"
    if not isinstance(values, list) or not values:
        raise UserError(f"{axis} is {'empty' if values == [] else show(values)}", where=where, accepted=accepted)
    seen: set[int] = set()
    for value in values:
        if type(value) is not int or not lowest <= value <= highest or not has_legal_shape(axis, value):
            raise UserError(f"{axis} holds {show(value)}", where=where, accepted=accepted)
        if value in seen:
            raise UserError(f"{axis} holds {show(value)} twice", where=where, accepted=accepted)
        seen.add(value)


def frame(space: SpaceFile) -> pd.DataFrame:
    """All configurations of the axes, one row each; the columns are KernelConfig's fields."""
    parts = []
    for family, axes in space.families.items():
        grid = np.meshgrid(*(np.array(values, dtype=np.int64) for values in axes.values()), indexing="ij")
        part = pd.DataFrame({axis: column.ravel() for axis, column in zip(axes, grid, strict=True)})
        for axis in AMD_AXES:
            if axis not in axes:
                part[axis] = np.int64(0)
        part.insert(0, "family", family)
        parts.append(part[list(CONFIG_FIELDS)])
    return pd.concat(parts, ignore_index=True)


def configs_of(configs: pd.DataFrame) -> list[KernelConfig]:
    """The configurations of all rows, in order."""
    columns = [configs["family"].tolist(), *(configs[axis].tolist() for axis in AXES)]
    return [KernelConfig(*row) for row in zip(*columns, strict=True)]


def names(configs: pd.DataFrame) -> pd.Series:
    """The canonical name of every row; equal to ``KernelConfig.name`` (tested)."""
    on_amd = configs["kpack"].to_numpy() != 0
    parts: list[npt.NDArray[Any]] = [configs["family"].to_numpy()]
    parts += [name_part(configs[field], short) for field, short in NAME_PARTS]
    parts += [name_part(configs[field], short, UNUSED[field]) for field, short in FAMILY_NAME_PARTS]
    if on_amd.any():
        parts += [np.where(on_amd, name_part(configs[field], short), "") for field, short in AMD_NAME_PARTS]
    return pd.Series(["".join(row) for row in zip(*parts, strict=True)], index=configs.index, dtype=object)


def name_part(values: pd.Series, short: str, unused: int | None = None) -> npt.NDArray[np.object_]:
    """The part of the names that an axis adds, shape (configurations,); "" where the value is ``unused``."""
    place, different = pd.factorize(values)
    return np.array(["" if value == unused else f"_{short}{value}" for value in different], dtype=object)[place]
