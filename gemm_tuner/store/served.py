"""Reads and writes the part of a results row that holds, for each consumer of ``--serve``, the best configuration that
the consumer can launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from gemm_tuner.consumers import SERVERS
from gemm_tuner.consumers.consumer import STAND_IN
from gemm_tuner.core.choice import ServedChoice
from gemm_tuner.core.entries import Entries
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Verified
from gemm_tuner.core.workload import workload_of
from gemm_tuner.system.documents import refuse_unknown, show
from gemm_tuner.system.json_records import Above0, Count, NotNegative, record_of

KEYS = ("served", "stand_in")
_MEASURED, _PREDICTED = "median_us", "predicted_us"


class _Facts(TypedDict, total=False):
    """The keys of an entry besides its configuration: fields of ServedChoice, with separate keys for measured and
    predicted times."""

    median_us: Above0
    predicted_us: Above0
    default_us: Above0
    processes: Count
    process_spread_pct: NotNegative
    kept_from: str
    kernel: str


_AS_THEY_ARE = ("default_us", "processes", "process_spread_pct", "kept_from", "kernel")
_FACTS = tuple(_Facts.__annotations__)


def served_rows(served: Sequence[ServedChoice], *, predicted: bool) -> dict[str, Any]:
    """The keys of a row for its served configurations; empty if there are none."""
    if not served:
        return {}
    time_key = _PREDICTED if predicted else _MEASURED
    rows = {
        one.consumer: {
            **{key: int(value) for key, value in one.config.options().items()},
            time_key: round(float(one.time_us), 3),
            "verified": one.verified.scalar,
            **{key: value for key in _AS_THEY_ARE if (value := getattr(one, key)) not in (None, "")},
        }
        for one in served
    }
    return with_stand_in(rows)


def with_stand_in(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Adds to the keys of a row the family that was timed in place of the consumers' kernels, for entries that do not
    name a kernel of their own."""
    stands_in = any("kernel" not in one for one in rows.values())
    return {**({"stand_in": STAND_IN} if stands_in else {}), "served": dict(rows)}


def served_of(entry: dict[Any, Any], where: str, entries: Entries) -> tuple[ServedChoice, ...]:
    """The served configurations of a row. Raises UserError."""
    raw = entry.get("served", {})
    if not isinstance(raw, dict):
        accepted = f"a mapping of {', '.join(SERVERS)}"
        raise UserError(f"served is {show(raw)}", where=where, accepted=accepted)
    refuse_unknown(raw, SERVERS, f"{where}, served")
    found = tuple(_served(name, one, f"{where}, served {name}", entries) for name, one in raw.items())
    if any(not one.kernel for one in found) and entry.get("stand_in") != STAND_IN:
        raise UserError(f"stand_in is {show(entry.get('stand_in'))}", where=where, accepted=STAND_IN)
    return found


def _served(name: str, raw: object, where: str, entries: Entries) -> ServedChoice:
    if not isinstance(raw, dict):
        raise UserError(f"is {show(raw)} and not a mapping", where=where, accepted=entries.config_form())
    refuse_unknown(raw, (*entries.config_fields, "verified", *_FACTS), where)
    config = entries.config_of(raw, where)
    if config is None:
        raise UserError("has no config", where=where, accepted=entries.config_form())
    facts: dict[str, Any] = dict(record_of(_Facts, {key: raw[key] for key in _FACTS if key in raw}, where))
    measured_us = facts.pop(_MEASURED, None)
    time_us = facts.pop(_PREDICTED, measured_us)
    if time_us is None:
        raise UserError(f"lacks {_MEASURED}", where=where)
    return ServedChoice(name, config, time_us, verified_of(raw, where), **facts)


def served_in_run(raw: Mapping[str, Any], kind: str, where: str) -> tuple[ServedChoice, ...]:
    """The served configurations of a size of a run's record, from the value of their key. Raises UserError."""
    entries = workload_of(kind).entries
    return served_of({"served": raw, "stand_in": STAND_IN}, where, entries) if entries else ()


def verified_of(entry: dict[Any, Any], where: str) -> Verified:
    """How a row was checked; FALSE if it does not say. Raises UserError."""
    value = entry.get("verified", False)
    for one in Verified:
        if type(value) is type(one.scalar) and value == one.scalar:
            return one
    accepted = ", ".join(one.value for one in Verified)
    raise UserError(f"verified is {show(value)}", where=where, accepted=accepted)
