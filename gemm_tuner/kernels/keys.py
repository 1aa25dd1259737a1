"""The key that selects a case's configuration: exact values, powers of two, or named buckets."""

from __future__ import annotations

import math
import re
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.expressions import Expression
from gemm_tuner.kernels.kernel_spec import Case, KernelSpec, Scalar
from gemm_tuner.system.documents import show
from gemm_tuner.system.values import did_you_mean

BUCKET = re.compile(r"bucket\((.+)\)")
Key = tuple[Scalar, ...]
Buckets = tuple[tuple[str, float | None], ...]


def key_of(spec: KernelSpec, case: Case) -> Key:
    """The values of the spec's ``key``; without a key, those of the case."""
    values = dict(case)
    return tuple(_part(spec, text, values) for text in spec.key) if spec.key else tuple(values.values())


def text_of(key: Key) -> str:
    """A key as one word for a JSON file: ``small``, ``1024_fp16``."""
    return "_".join(map(str, key)) or "default"


def bucket_of(buckets: Buckets, value: float) -> str:
    """The first bucket whose limit is not below the value. Raises ValueError beyond the last one."""
    for name, limit in buckets:
        if limit is None or value <= limit:
            return name
    raise ValueError(f"{value:g} is beyond the last bucket, {buckets[-1][0]}")


def parse_key(value: Any, buckets: Buckets, names: set[str], where: str) -> tuple[str, ...]:
    """The expressions of ``key``. Raises UserError for one that is not an expression of case values."""
    texts = tuple(str(one) for one in (value if isinstance(value, list) else [value]))
    for text in texts:
        of = BUCKET.fullmatch(text.strip())
        expression = Expression.parse(of[1] if of else text, where)
        for name in sorted(expression.names - names):
            hint = did_you_mean(name, names) or 'put it in quotes: key: ["bucket(M)", N]'
            raise UserError(f"{show(text)} names {name}", where=where, accepted=", ".join(sorted(names)), hint=hint)
        if of and not buckets:
            raise UserError(f"{text} has no buckets", where=where, accepted="buckets: {small: 256, large: inf}")
    if buckets and not any(BUCKET.fullmatch(text.strip()) for text in texts):
        accepted = f'key: ["bucket({min(names, default="M")})", ...]'
        raise UserError("buckets are given and no key uses them", where=where, accepted=accepted)
    return texts


def parse_buckets(value: Any, where: str) -> Buckets:
    """Upper limits by name, ascending; ``inf`` means no limit. Raises UserError."""
    accepted = "upper limits by name, ascending: {small: 256, medium: 2048, large: inf}"
    if not isinstance(value, dict) or not value:
        raise UserError(f"is {show(value)}", where=where, accepted=accepted)
    before = -math.inf
    for name, limit in value.items():
        upper = math.inf if limit == "inf" else limit
        if not isinstance(name, str) or type(upper) not in (int, float) or not upper > before:
            raise UserError(f"{show(name)} is {show(limit)}", where=where, accepted=accepted)
        before = upper
    # JSON has no infinity.
    return tuple((name, None if limit in ("inf", math.inf) else float(limit)) for name, limit in value.items())


def _part(spec: KernelSpec, text: str, values: dict[str, Scalar]) -> Scalar:
    of = BUCKET.fullmatch(text.strip())
    found = Expression.parse(of[1] if of else text, "key").value(values)
    return bucket_of(spec.buckets, found) if of else found
