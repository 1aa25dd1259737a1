"""The optional columns of size files and results files, with the types that their readers check."""

from __future__ import annotations

from typing import Annotated, TypedDict

from msgspec import Meta

from gemm_tuner.system.json_records import Count, Finite, NotNegative


class OtherFacts(TypedDict, total=False):
    """Optional keys of any row besides its problem and configuration."""

    name: str
    language: str
    source: str
    runner_up: str
    kept_from: str
    found_wrong: str
    overruled: str
    predicted_us: NotNegative
    max_abs_error: Annotated[float, Meta(ge=0)]
    error_over_bound: Annotated[float, Meta(ge=0)]


class TimedFacts(TypedDict, total=False):
    """Optional keys of a row with a measured time."""

    median_us: NotNegative
    p20_us: NotNegative
    p80_us: NotNegative
    summed_us: NotNegative
    tflops: NotNegative
    roofline_pct: NotNegative
    vendor_us: NotNegative
    vendor_summed_us: NotNegative
    vendor_ratio: NotNegative
    gap_pct: Finite
    process_spread_pct: NotNegative
    samples: Count
    processes: Count
    tie: bool


class Derived(TypedDict, total=False):
    derived: dict[str, int | float | bool | str]


class Facts(OtherFacts, TimedFacts, total=False):
    """All optional keys. schedule_hint: a key of ROCm's files, accepted and ignored."""

    schedule_hint: str


TIMED_FACTS = tuple(TimedFacts.__annotations__)
FACTS = (*OtherFacts.__annotations__, *TIMED_FACTS)
KNOWN_KEYS = (*OtherFacts.__annotations__, "verified", *TIMED_FACTS)
