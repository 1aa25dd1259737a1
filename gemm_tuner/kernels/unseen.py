"""Generates cases that were not tuned but share a key with tuned ones, to validate the keys' configurations."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.kernel_spec import Case, KernelSpec, Scalar
from gemm_tuner.kernels.keys import key_of

DRAWS = 2000


def unseen(spec: KernelSpec, cases: Sequence[Case], count: int, seed: int) -> list[Case]:
    """Up to ``count`` cases whose integers are drawn, uniformly on a log scale, between half the smallest and the
    largest tuned value. Raises UserError if no other case shares a key."""
    lot, keys, found = random.Random(seed), {key_of(spec, case) for case in cases}, dict[Case, None]()
    for _ in range(DRAWS):
        if len(found) == count:
            break
        # Some values are taken from a tuned case, so that keys with exact values are also matched.
        drawn = tuple(
            (name, _drawn(name, value, cases, lot) if lot.random() < 0.5 else value)
            for name, value in lot.choice(cases)
        )
        if drawn not in cases and _has_key(spec, drawn, keys):
            found[drawn] = None
    if not found:
        hint = 'key: ["pow2(rows)", ...] lets cases share one'
        raise UserError("no case that was not tuned has a key of one that was", where="--validate_key", hint=hint)
    return list(found)


def _drawn(name: str, value: Scalar, cases: Sequence[Case], lot: random.Random) -> Scalar:
    values = [dict(case)[name] for case in cases if name in dict(case)]
    if type(value) is not int or value < 1:
        return lot.choice(values)
    least, most = max(1, min(map(int, values)) // 2), max(map(int, values))
    return round(math.exp(lot.uniform(math.log(least), math.log(most))))


def _has_key(spec: KernelSpec, case: Case, keys: set[tuple[Scalar, ...]]) -> bool:
    try:
        return key_of(spec, case) in keys
    except (UserError, ValueError):
        return False  # larger than the last bucket
