"""Reads and writes the part of a results row that holds the substitute of a winner in an optional language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from gemm_tuner.core.choice import Substitute
from gemm_tuner.core.entries import Entries
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Config
from gemm_tuner.store.served import verified_of
from gemm_tuner.system.documents import refuse_unknown, show
from gemm_tuner.system.json_records import Above0, record_of

KEY = "substitute"


class _Facts(TypedDict):
    """The keys of a substitute besides its configuration."""

    median_us: Above0


OTHER_KEYS = ("verified", *_Facts.__annotations__)


def substitute_row(one: Substitute | None) -> dict[str, Any]:
    """The key of a row for its substitute; empty if there is none."""
    if one is None:
        return {}
    options = {key: int(value) for key, value in one.config.options().items()}
    us = {"median_us": round(float(one.time_us), 3), "verified": one.verified.scalar}
    return {KEY: {"family": one.config.family, **options, **us}}


def substitute_of(entry: dict[Any, Any], where: str, entries: Entries) -> Substitute | None:
    """The substitute of a row. Raises UserError."""
    if KEY not in entry:
        return None
    raw, where = _mapping(entry[KEY], f"{where}, {KEY}", entries.config_form()), f"{where}, {KEY}"
    refuse_unknown(raw, (*entries.config_fields, *OTHER_KEYS), where)
    config = entries.config_of(raw, where)
    if config is None:
        raise UserError("has no config", where=where, accepted=entries.config_form())
    return _with_facts(config, raw, where)


def substitute_of_any_keys(
    entry: dict[Any, Any], where: str, config_from_dict: Callable[[dict[str, Any]], Config]
) -> Substitute | None:
    """As ``substitute_of``, of a kind of problem whose configurations may have any keys. Raises UserError."""
    if KEY not in entry:
        return None
    raw, where = _mapping(entry[KEY], f"{where}, {KEY}", "a configuration"), f"{where}, {KEY}"
    try:
        config = config_from_dict({key: value for key, value in raw.items() if key not in OTHER_KEYS})
    except (TypeError, ValueError) as error:
        raise UserError(f"has no such configuration: {error}", where=where) from error
    return _with_facts(config, raw, where)


def _mapping(raw: object, where: str, accepted: str) -> dict[Any, Any]:
    if not isinstance(raw, dict):
        raise UserError(f"is {show(raw)} and not a mapping", where=where, accepted=accepted)
    return raw


def _with_facts(config: Config, raw: dict[Any, Any], where: str) -> Substitute:
    facts = record_of(_Facts, {key: raw[key] for key in _Facts.__annotations__ if key in raw}, where)
    return Substitute(config, facts["median_us"], verified_of(raw, where))
