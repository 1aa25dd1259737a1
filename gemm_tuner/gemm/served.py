"""What a row says beside its winner: for each consumer of ``--serve`` the best configuration that it can launch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gemm_tuner.core.choice import ServedChoice
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Config, Verified
from gemm_tuner.gemm.config import CONFIG_FIELDS, KERNEL_FAMILIES, tile
from gemm_tuner.gemm.config_keys import config_form, config_of
from gemm_tuner.system.documents import check_kind, refuse_unknown, show

NAMES = ("vllm", "sglang", "aiter")
# The family that stands for the consumers' kernels: as theirs, one program a tile and loads through pointers.
STAND_IN = "gemm_tile"
KEYS = ("served", "stand_in")
_MEASURED, _PREDICTED = "median_us", "predicted_us"
_PROCESSES = ("processes", "process_spread_pct")
_ENTRY_KEYS = (*CONFIG_FIELDS, _MEASURED, _PREDICTED, "verified", "default_us", *_PROCESSES, "kept_from", "kernel")


def served_rows(served: Sequence[ServedChoice], *, predicted: bool) -> dict[str, Any]:
    """The keys of a row for its served configurations; none where there are none."""
    if not served:
        return {}
    time_key = _PREDICTED if predicted else _MEASURED
    rows = {
        one.consumer: {
            **{key: int(value) for key, value in one.config.options().items()},
            time_key: round(float(one.time_us), 3),
            "verified": one.verified.scalar,
            **({} if one.default_us is None else {"default_us": round(float(one.default_us), 3)}),
            **({} if one.processes is None else {"processes": one.processes}),
            **({} if one.process_spread_pct is None else {"process_spread_pct": float(one.process_spread_pct)}),
            **({"kept_from": one.kept_from} if one.kept_from else {}),
            **({"kernel": one.kernel} if one.kernel else {}),
        }
        for one in served
    }
    return with_stand_in(rows)


def with_stand_in(rows: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a row for its served entries: the family that stands in for the kernels of those without one."""
    stands_in = any("kernel" not in one for one in rows.values())
    return {**({"stand_in": STAND_IN} if stands_in else {}), "served": dict(rows)}


def served_of(entry: dict[Any, Any], where: str) -> tuple[ServedChoice, ...]:
    """The served configurations that a row holds. Raises UserError."""
    raw = entry.get("served", {})
    if not isinstance(raw, dict):
        accepted = f"a mapping of {', '.join(NAMES)}"
        raise UserError(f"served is {show(raw)}", where=where, accepted=accepted)
    refuse_unknown(raw, NAMES, f"{where}, served")
    found = tuple(_served(name, one, f"{where}, served {name}") for name, one in raw.items())
    if any(not one.kernel for one in found) and entry.get("stand_in") != STAND_IN:
        raise UserError(f"stand_in is {show(entry.get('stand_in'))}", where=where, accepted=STAND_IN)
    return found


def _served(name: str, raw: object, where: str) -> ServedChoice:
    if not isinstance(raw, dict):
        raise UserError(f"is {show(raw)} and not a mapping", where=where, accepted=config_form())
    refuse_unknown(raw, _ENTRY_KEYS, where)
    config = config_of(raw, where)
    if config is None:
        raise UserError("has no config", where=where, accepted=config_form())
    time_key = _PREDICTED if _PREDICTED in raw else _MEASURED
    times = [key for key in (time_key, "default_us") if key in raw or key == time_key]
    for key in times:
        check_kind(raw, key, "number", where)
        if not 0 < raw[key] < math.inf:
            raise UserError(f"{key} is {show(raw[key])}", where=where, accepted="a finite number above 0")
    default_us = float(raw["default_us"]) if "default_us" in raw else None
    for key in [key for key in ("kept_from", "kernel") if key in raw]:
        check_kind(raw, key, "text", where)
    kept_from, kernel = str(raw.get("kept_from", "")), str(raw.get("kernel", ""))
    made = ServedChoice(name, config, float(raw[time_key]), verified_of(raw, where), default_us, kept_from, kernel)
    return replace(made, **_processes(raw, where))


def _processes(raw: dict[Any, Any], where: str) -> dict[str, Any]:
    """What an entry says of the processes of its finals."""
    for key, kind in zip(_PROCESSES, ("count", "number"), strict=True):
        if key in raw:
            check_kind(raw, key, kind, where)
            if not 0 <= raw[key] < math.inf:
                raise UserError(f"{key} is {show(raw[key])}", where=where, accepted="a finite number, 0 or more")
    return {key: raw[key] for key in _PROCESSES if key in raw}


def verified_of(entry: dict[Any, Any], where: str) -> Verified:
    """How a row was checked; FALSE where it does not say. Raises UserError."""
    value = entry.get("verified", False)
    for one in Verified:
        if type(value) is type(one.scalar) and value == one.scalar:
            return one
    accepted = ", ".join(one.value for one in Verified)
    raise UserError(f"verified is {show(value)}", where=where, accepted=accepted)


def measured(one: ServedChoice) -> Config:
    """The configuration as it was launched: of the server's own kernel where --kernel_from gave it."""
    family = KERNEL_FAMILIES.get(one.consumer) if one.kernel else None
    return replace(tile(one.config), family=family) if family else one.config
