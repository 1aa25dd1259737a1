"""Writes the winner of a tuned function as a results file, in the same format as for GEMMs."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemm_tuner import __version__
from gemm_tuner.core.choice import Choice
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.script import text_sha
from gemm_tuner.decide.estimates import quantiles_us
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.measure import host, probe
from gemm_tuner.store import results
from gemm_tuner.store.results import Header
from gemm_tuner.surface.gpu import gpu_in_use
from gemm_tuner.surface.records import Row, Tuned, plain_config

# Keys of a row that are not configuration fields; parameters with such names get an underscore appended.
RESERVED = frozenset({
    *("kind", "kernel", "spec", "case", "family", "name", "source", "verified", "derived", "reason", "served"),
    *("runner_up", "kept_from", "found_wrong", "overruled", "predicted_us", "max_abs_error", "error_over_bound"),
    *("median_us", "p20_us", "p80_us", "tflops", "roofline_pct", "vendor_us", "vendor_ratio", "gap_pct"),
    *("process_spread_pct", "samples", "processes", "tie", "summed_us", "vendor_summed_us"),
})  # fmt: skip


def write(path: Path, tuned: Tuned, best: Row, seed: int) -> None:
    """Writes the header and one row. Raises EnvironmentFault."""
    results.write_rows(path, vars(header(tuned, seed)), [results.choice_row(choice(tuned, best))], ())


def header(tuned: Tuned, seed: int) -> Header:
    """The header: the GPU if this process, or one under a profiler, used it; else this CPU."""
    uses_gpu = gpu_in_use() or tuned.clock not in ("host", "clock", "user", "none")
    gpus = probe.gpus() if uses_gpu else []
    device: Mapping[str, Any] = gpus[0] if gpus else host.look().gpu(0)
    versions = probe.versions()
    return Header(
        tool_version=__version__,
        date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        device=str(device["name"]),
        arch=str(device["arch"]),
        num_sms=int(device["num_sms"]),
        driver="",
        triton=versions["triton"],
        torch=versions["torch"],
        python=versions["python"],
        profiler=tuned.clock,
        profiler_version="",
        init_type="",
        seed=seed,
        l2="flushed" if gpus and tuned.clock not in ("host", "user") else "",
        source="measured",
        run=".",
    )


def choice(tuned: Tuned, best: Row) -> Choice:
    p20, p80 = quantiles_us(best.samples_us)
    others = [row for row in tuned.rows if row.us is not None and not row.baseline and row.name != best.name]
    behind = min(others, key=lambda row: row.us or 0.0, default=None)
    us = best.us or 0.0
    derived = {"method": best.method, **{key: _plain(value) for key, value in best.details.items()}}
    config = plain_config({f"{key}_" if key in RESERVED else key: value for key, value in best.config.items()})
    return Choice(
        problem=KernelProblem(tuned.name, text_sha(tuned.name), ()),
        config=PlainConfig("callable", config.values),
        source="measured",
        verified=best.verified,
        median_us=us,
        p20_us=p20,
        p80_us=p80,
        num_samples=len(best.samples_us),
        vendor_us=min((row.us for row in tuned.rows if row.baseline and row.us), default=None),
        max_abs_error=best.max_abs_error if best.max_abs_error is not None else float("nan"),
        error_over_bound=float("nan"),
        runner_up=behind.name if behind else "",
        gap_pct=100 * ((behind.us or 0.0) / us - 1) if behind and us else None,
        tie=len(tuned.ties) > 1 and best.name in tuned.ties,
        roofline_pct=float("nan"),
        derived=tuple(derived.items()),
    )


def _plain(value: Any) -> int | float | bool | str:
    return value if isinstance(value, (bool, int, float, str)) else str(value)
