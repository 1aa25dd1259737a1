"""``prune_configs_by`` of triton.autotune: removes candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.languages.triton.autotuner import config_of
from gemm_tuner.surface.configurations import TRITON_OPTIONS, Candidate, NoConfigurations
from gemm_tuner.system.documents import refuse_unknown

WHERE = "prune_configs_by"
KEYS = ("early_config_prune", "perf_model", "top_k")


def pruned(
    candidates: Sequence[Candidate], prune: Mapping[str, Any] | None, named: Mapping[str, Any], is_jit: bool
) -> list[Candidate]:
    """The remaining candidates of a call.

    prune: ``early_config_prune(configs, named_args, **kwargs)`` returns those to keep; ``perf_model(**arguments)``
           returns an estimated time, by which the ``top_k`` best (a number or a share) are kept.
    named: the call's arguments. is_jit: pass triton.Config to the functions instead of mappings.

    Raises UserError for other keys, and if nothing is left.
    """
    if not prune:
        return list(candidates)
    refuse_unknown(dict(prune), KEYS, WHERE)
    left = list(candidates)
    if early := prune.get("early_config_prune"):
        left = _early(left, early, named, is_jit)
    if model := prune.get("perf_model"):
        count = _count(prune.get("top_k", 1.0), len(left))
        left = sorted(left, key=lambda one: model(**{**named, **one.values}))[:count] if count < len(left) else left
    return left


def _early(candidates: list[Candidate], early: Any, named: Mapping[str, Any], is_jit: bool) -> list[Candidate]:
    shown = [config_of(one.values, TRITON_OPTIONS, one.pre_hook) if is_jit else dict(one.values) for one in candidates]
    kept = list(early(shown, dict(named)))
    # Compared by identity if the function returns objects that it got; it may also return new configurations.
    by_id = {id(one): candidate for one, candidate in zip(shown, candidates, strict=True)}
    left = [by_id.get(id(one)) or _as_candidate(one) for one in kept]
    if not left:
        raise NoConfigurations("No configurations to tune", where=f"{WHERE}, early_config_prune", hint="it left none")
    return left


def _count(top_k: Any, count: int) -> int:
    if isinstance(top_k, float) and 0 <= top_k <= 1:
        return max(1, int(count * top_k))
    if isinstance(top_k, int) and top_k >= 1:
        return top_k
    raise UserError(f"top_k is {top_k!r}", where=WHERE, accepted="a number of configurations, or a share up to 1.0")


def _as_candidate(config: Any) -> Candidate:
    if isinstance(config, Mapping):
        return Candidate(dict(config))
    return Candidate(config.all_kwargs(), config.pre_hook)
