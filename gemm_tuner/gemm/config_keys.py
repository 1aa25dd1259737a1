"""Reads the tuned configuration of an entry of a size file or results file, and validates each field."""

from __future__ import annotations

import re
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.config import (
    AMD_NAME_PARTS,
    CHOSEN_BY_LIBRARY,
    CONFIG_FIELDS,
    UNUSED,
    KernelConfig,
    has_legal_shape,
    legal_shapes,
)
from gemm_tuner.gemm.families.family import family_of
from gemm_tuner.system.documents import show
from gemm_tuner.system.values import integer

MAX_CONFIG_VALUE = 2**20  # elements; Triton's limit for a tile

_OPTIONAL_CONFIG: dict[str, Any] = {"family": "gemm_tile", "GROUP_SIZE_M": 1, "SPLIT_K": 1, **UNUSED}
_AMD_FIELDS = tuple(field for field, _ in AMD_NAME_PARTS)
# (lowest, highest) of the fields whose range is not 1 to MAX_CONFIG_VALUE.
_RANGES = {
    "EPILOGUE_SUBTILE": (1, 4),
    "PROGRAMS_PER_SM": (0, 64),
    **dict.fromkeys(("WARP_SPECIALIZE", "STREAM_B", "PINGPONG", "SWAP_AB"), (0, 1)),
    **dict.fromkeys(("CLUSTER_M", "CLUSTER_N"), (1, 8)),
    "NUM_XCDS": (1, 64),
    "ROW_STEP": (1, 8),
    "PACK_BLOCK": (0, 65536),
    **dict.fromkeys(_AMD_FIELDS, (0, MAX_CONFIG_VALUE)),
}


def config_form() -> str:
    """The fields of a configuration in words, required ones first."""
    required = [f for f in CONFIG_FIELDS if f not in _OPTIONAL_CONFIG]
    return f"{', '.join(required)}; optional {', '.join(_OPTIONAL_CONFIG)}"


def config_of(entry: dict[Any, Any], where: str) -> KernelConfig | None:
    """The configuration in an entry; None if the entry has no such field. Raises UserError."""
    if not any(field in entry for field in CONFIG_FIELDS):
        return None
    family = _config_value(entry, "family", where, of_library=False) if "family" in entry else ""
    of_library = family_of(str(family)).language != "triton"
    optional = {**_OPTIONAL_CONFIG, **(dict.fromkeys(CHOSEN_BY_LIBRARY, 0) if of_library else {})}
    given = {f: _config_value(entry, f, where, of_library=of_library) for f in CONFIG_FIELDS if f in entry}
    values: dict[str, Any] = {**optional, **given}
    for field in CONFIG_FIELDS:
        if field not in values:
            raise UserError(
                f"the config lacks {field}",
                where=where,
                accepted=config_form(),
                hint="or delete the config's keys to have the size tuned",
            )
    if any(values[field] for field in _AMD_FIELDS) and not values["kpack"]:
        # Without a value it is Triton's default, 1. An explicit 0 means "not AMD" and contradicts the other fields.
        if "kpack" in entry:
            raise UserError("kpack is 0 beside other AMD options", where=where, accepted="1 or more")
        values["kpack"] = 1
    return KernelConfig(**values)


def _config_value(entry: dict[Any, Any], key: str, where: str, *, of_library: bool) -> object:
    value = entry[key]
    if of_library and key in CHOSEN_BY_LIBRARY:
        return integer(entry, key, where, 0, 0)
    if key == "family":
        if isinstance(value, str) and re.fullmatch("[a-z][a-z0-9_]{0,63}", value):
            return value
        raise UserError(f"family is {show(value)}", where=where, accepted="a name such as gemm_tile")
    if key == "num_stages" and type(value) is int and value == 0:
        hint = "older ROCm files write 0 for what is 2 today"
        raise UserError("num_stages is 0", where=where, accepted="1 or more", hint=hint)
    number = integer(entry, key, where, *_RANGES.get(key, (1, MAX_CONFIG_VALUE)))
    if not has_legal_shape(key, number, of_library=of_library):
        raise UserError(f"{key} is {number}", where=where, accepted=legal_shapes(key, of_library=of_library))
    return number
