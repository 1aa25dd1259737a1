"""Converts configurations from users: mappings or triton.Config, in a list, a generator or a function of the call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.system.documents import show
from gemm_tuner.system.values import did_you_mean

# Fields of ``triton.Config`` in addition to its ``kwargs``.
TRITON_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")
# Keyword arguments of a Triton launch that are not kernel parameters.
LAUNCH_OPTIONS = (*TRITON_OPTIONS, "waves_per_eu", "matrix_instr_nonkdim", "kpack", "enable_fp_fusion")
# A key in TileLang's configurations that is not an argument: compiler options.
PASS_CONFIGS = "pass_configs"
WHERE = "configs"


class NoConfigurations(UserError, ValueError):
    """There is nothing to tune."""


@dataclass(frozen=True)
class Candidate:
    """A configuration. values: by argument name. pre_hook: of a ``triton.Config``; it gets all arguments."""

    values: Mapping[str, Any]
    pre_hook: Callable[[dict[str, Any]], Any] | None = None


def candidates(
    configs: Any,
    known: Collection[str],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    hint: str = "",
) -> list[Candidate]:
    """The configurations without duplicates, in the given order.

    configs: a list or generator, a function of the call's arguments that returns or yields them, or a mapping of lists,
             of which all combinations are used.
    known:   the names that a configuration may contain.
    hint:    what to do about a name that is like none of them.

    Raises UserError for an unknown name, and if there is no configuration.
    """
    if callable(configs):
        try:
            configs = configs(*args, **(kwargs or {}))
        except TypeError as error:
            hint = "it gets the arguments of the call that is tuned"
            raise UserError(f"the function cannot be called: {error}", where=WHERE, hint=hint) from error
    if isinstance(configs, Mapping):
        configs = _all_combinations(configs)
    if not isinstance(configs, Iterable) or isinstance(configs, (str, bytes)):
        accepted = "a list of mappings or triton.Config, or a function that returns one"
        raise UserError(f"is {show(configs)}", where=WHERE, accepted=accepted)
    found: list[Candidate] = []
    for one in configs:
        candidate = _candidate(one)
        for name in candidate.values:
            if name not in known:
                raise UserError(
                    f"{show(name)} is no argument", where=WHERE, accepted=", ".join(known),
                    hint=did_you_mean(str(name), known) or hint,
                )  # fmt: skip
        if candidate not in found:
            found.append(candidate)
    if not found:
        raise NoConfigurations(
            "No configurations to tune", where=WHERE, accepted="a list or a function that gives at least one",
            hint="a function that leaves all out gives none",
        )  # fmt: skip
    return found


def _all_combinations(lists: Mapping[str, Any]) -> list[dict[str, Any]]:
    values = [one if isinstance(one, (list, tuple)) else [one] for one in lists.values()]
    return [dict(zip(lists, point, strict=True)) for point in product(*values)] if lists else []


def _candidate(config: Any) -> Candidate:
    if isinstance(config, Mapping):
        return Candidate(dict(config))
    if hasattr(config, "all_kwargs"):
        return Candidate(config.all_kwargs(), getattr(config, "pre_hook", None))
    raise UserError(f"holds {show(config)}", where=WHERE, accepted="mappings by name, or triton.Config")
