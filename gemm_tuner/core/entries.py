"""The record by which a kind of problem says how entries of size files and results files are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gemm_tuner.core.records import Config, Problem


@dataclass(frozen=True)
class Entries:
    """How the entries of size files and results files are read for a kind whose keys are validated one by one. The
    ``problem_keys`` of another kind than the first then have ``kind``, too.

    config_fields: the keys that are fields of a configuration.
    config_form:   returns them in words, for messages.
    problem_of:    the problem of an entry: (entry, where it is, values of flags for keys that it leaves out, or None
                   for fixed ones). Raises UserError.
    config_of:     the configuration of an entry, None without one: (entry, where it is). Raises UserError.
    example:       an entry, for messages.
    """

    config_fields: tuple[str, ...]
    config_form: Callable[[], str]
    problem_of: Callable[[dict[Any, Any], str, Any], Problem]
    config_of: Callable[[dict[Any, Any], str], Config | None]
    example: str
