"""Reads space files, which hold the axes for an architecture, and expands the axes to a table of configurations."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemm_tuner.core import architecture
from gemm_tuner.core.architecture import Architecture
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Config, Device, Target
from gemm_tuner.core.workload import FIRST_KIND, workload_of
from gemm_tuner.system.documents import load_yaml, show
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.values import exact_mapping

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

MAX_CONFIGS = 5_000_000  # of all families together
MAX_FAMILIES = 64
MAX_DEVICE_NUMBER = 2**53  # the largest range in which floats represent all integers exactly
MAX_NAME_CHARS = 200
DEVICE_KEYS = (
    "name", "backend", "warp_size", "num_sms", "shared_memory_bytes", "shared_memory_per_sm_bytes",
    "registers_per_sm", "max_registers", "max_warps_per_sm", "l2_bytes", "memory_bytes", "dram_gbps",
    "l2_gbps", "matmul_tflops",
)  # fmt: skip
# Keys of a CPU's device: num_sms is the number of cores, l2_bytes the largest cache. The others do not apply to a CPU.
CPU_KEYS = ("name", "backend", "num_sms", "l2_bytes", "memory_bytes", "dram_gbps", "matmul_tflops")
OF_A_CPU = {key: int(key == "warp_size") for key in DEVICE_KEYS if key not in CPU_KEYS}
BACKENDS = ("cuda", "hip", "cpu")
FACT_KEYS = ("matrix", "tma", "clusters", "fp8", "chiplets")
SECTIONS = ("architecture", "device", "families")
MAX_GPUS = 256
RATES = ("dram_gbps", "l2_gbps")  # may be fractional; the other numbers of a device are counts


@dataclass(frozen=True, slots=True)
class SpaceFile:
    """The content of a space file: the device assumed for its architecture, and the values of each axis by family.

    gpus: (name for ``export --for``, shared memory or LDS per block in bytes) for each GPU of the architecture.
    """

    path: Path
    device: Device
    families: dict[str, dict[str, tuple[Any, ...]]]
    gpus: tuple[tuple[str, int], ...] = ()
    kind: str = FIRST_KIND


def known_archs(rules_dir: Path) -> list[str]:
    """The architectures that have a space file."""
    return sorted(path.stem.removeprefix("space_") for path in rules_dir.glob("space_*.yaml"))


def relative(rules_dir: Path, arch: str) -> str:
    """The architecture whose space file is used for ``arch``: itself, or the closest one that has a file. Raises
    UserError if there is none."""
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
    """The path of the space file that is used for an architecture. Raises UserError if there is none."""
    return rules_dir / f"space_{relative(rules_dir, arch)}.yaml"


def stand_in_note(rules_dir: Path, arch: str) -> str:
    """One line that names the other architecture whose space file is used; "" if ``arch`` has its own."""
    found = relative(rules_dir, arch)
    return "" if found == arch else f"{arch} is not known: space and rules are those of its nearest relative, {found}"


def load(
    path: Path, arch: str, kind: str = FIRST_KIND, own_families: Mapping[str, Mapping[str, Any]] | None = None
) -> SpaceFile:
    """Reads and validates the space file of a kind of problem. Raises UserError naming the file and the key.

    own_families: axes by family, used instead of those of the file.
    """
    document, workload = load_yaml(path, "space file"), workload_of(kind)
    where = printable(path)
    accepted = "a mapping with the keys architecture, device and families"
    if not isinstance(document, dict) or not set(document) <= {*SECTIONS, "gpus"} or "families" not in document:
        raise UserError("is no space file", where=where, accepted=accepted)
    families = document["families"] if own_families is None else own_families
    if not isinstance(families, dict) or not families:
        raise UserError("has no families", where=where, accepted="families: {gemm_tile: {BLOCK_SIZE_M: [...], ...}}")
    if len(families) > MAX_FAMILIES:
        raise UserError(f"has {len(families)} families", where=where, accepted=f"at most {MAX_FAMILIES}")
    facts = _facts(document.get("architecture"), f"{where}, architecture")
    device = _device(document.get("device"), arch, facts, f"{where}, device")
    for family in families:
        if not isinstance(family, str) or not re.fullmatch("[a-z][a-z0-9_]{0,63}", family):
            raise UserError(f"family {show(family)} is no name", where=where, accepted="a name such as gemm_tile")
    checked = {name: workload.check_axes(axes, f"{where}, {name}", device) for name, axes in families.items()}
    _check_size(checked, where)
    return SpaceFile(path, device, checked, _gpus(document.get("gpus", {}), f"{where}, gpus"), kind)


def _check_size(families: dict[str, dict[str, tuple[Any, ...]]], where: str) -> None:
    size = sum(math.prod(len(values) for values in axes.values()) for axes in families.values())
    if size > MAX_CONFIGS:
        raise UserError(f"has {size} configurations", where=where, accepted=f"at most {MAX_CONFIGS}")


def _facts(value: Any, where: str) -> Architecture:
    row = exact_mapping(value, FACT_KEYS, where)
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
    is_cpu = isinstance(value, dict) and value.get("backend") == "cpu"
    row = {**OF_A_CPU, **exact_mapping(value, CPU_KEYS, where)} if is_cpu else exact_mapping(value, DEVICE_KEYS, where)
    if not _is_name(row["name"]):
        raise UserError(f"name is {show(row['name'])}", where=where, accepted="text of one line")
    if row["backend"] not in BACKENDS:
        raise UserError(f"backend is {show(row['backend'])}", where=where, accepted=", ".join(BACKENDS))
    if (row["backend"] == "hip") != arch.startswith("gfx"):
        hint = "name the architecture of this file by --arch"
        raise UserError(f"backend is {row['backend']}, which is not that of {arch}", where=where, hint=hint)
    for key in (k for k in DEVICE_KEYS if k not in ("name", "backend", "matmul_tflops", *(OF_A_CPU if is_cpu else ()))):
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


def frame(space: SpaceFile) -> pd.DataFrame:
    """All combinations of the axes, one row each, with the column ``family`` and one column per axis."""
    table: pd.DataFrame = workload_of(space.kind).frame(space.families)
    return table


def table_of(configs: Iterable[Config]) -> pd.DataFrame:
    """Configurations as rows, in their order: a column for each of their fields."""
    import pandas as pd  # here, because launchers are started before pandas is imported

    return pd.DataFrame([config.to_dict() for config in configs])


def with_rows(table: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The table with rows behind its last one, and missing values in columns that one of them lacks."""
    import pandas as pd

    if table.empty:  # its columns would say what types others get
        return rows.reindex(columns=[*table.columns, *rows.columns.difference(table.columns, sort=False)])
    return pd.concat([table, rows], ignore_index=True)


def rows_equal_to(row: pd.DataFrame, table: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Where in the table the rows are that have the values of this one row; other columns of the table do not count."""
    import numpy as np

    places = np.arange(len(table))
    if not set(row.columns) <= set(table.columns):
        return places[:0]
    for name in sorted(row.columns, key=lambda name: table[name].dtype == object):  # comparing texts is slow
        some = table[name] if len(places) == len(table) else table[name].iloc[places]
        places = places[(some == row[name].iloc[0]).to_numpy()]
    return places


def configs_of(configs: pd.DataFrame, kind: str = FIRST_KIND) -> list[Config]:
    """The configurations of the rows, in order."""
    return workload_of(kind).configs_of(configs)


def names(configs: pd.DataFrame, kind: str = FIRST_KIND) -> pd.Series:
    """``Config.name`` of every row."""
    found: pd.Series = workload_of(kind).names(configs)
    return found
