"""``gt.tune_and_save_configs``: tunes one configuration per range of sizes, and writes AITER's file."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Status
from gemm_tuner.store.run_folder import DEFAULT_OUTPUT_DIR
from gemm_tuner.surface.aiter import MakeRun, save_configs_to_json, tuned_kernel, used_config
from gemm_tuner.surface.clocks import Clock
from gemm_tuner.surface.records import Config, NoBestKernel, Tuned

# The largest size of each bucket, as in AITER's scripts.
BUCKETS: Mapping[str, float] = {"small": 256, "medium": 2048, "large": math.inf}


@dataclass(frozen=True, slots=True)
class Bucket:
    """The configuration of a range of sizes.

    us:         its times, by size. best_us: times of the best configuration of each size.
    us_of_last: total time of the configuration that AITER's scripts would use, the best one of the last size; None if
                it fails at another size.
    """

    name: str
    config: Config
    us: Mapping[int, float]
    best_us: Mapping[int, float]
    us_of_last: float | None

    @property
    def loss_pct(self) -> float:
        """How much longer all sizes together take than with their own best configurations, percent."""
        return 100 * (sum(self.us.values()) / sum(self.best_us.values()) - 1)

    def line(self) -> str:
        sizes = ", ".join(map(str, self.us))
        line = f"{self.name} (sizes {sizes}): {sum(self.us.values()):.6g} us in all"
        if len(self.us) > 1:
            noisy = "" if self.loss_pct >= 0 else ", which is noise"
            line += f", {abs(self.loss_pct):.2g} % {'less' if noisy else 'more'} than each by its own best{noisy}"
            last = "fails at another" if self.us_of_last is None else f"takes {self.us_of_last:.6g} us"
            line += f"; the best of the last size {last}"
        return line


def tune_and_save_configs(
    dimension_values: Sequence[int],
    make_run_and_gt_fn_factory: Callable[[int], MakeRun],
    search_space: Sequence[Config],
    save_path: str,
    device_name: str,
    *,
    kernel_name: str = "KERNEL",
    buckets: Mapping[str, float] = BUCKETS,
    config_callback: Callable[[Config], None] | None = None,
    num_iters: int = 10,
    atol: float = 1e-2,
    rtol: float = 1e-2,
    clock: str | Clock = "auto",
    profiler: str = "",
    output_dir: Path | str | None = DEFAULT_OUTPUT_DIR,
) -> list[Bucket]:
    """Tunes every size and writes {device_name}-{kernel_name}.json: a configuration for each bucket with sizes.

    make_run_and_gt_fn_factory: takes a size and returns the function for ``tune_kernel``. buckets: the largest size of
    each bucket, by name. A bucket gets the configuration that is correct at all of its sizes with the least total time;
    AITER's scripts use the best one of the last size. A line per bucket prints the cost of both, and one on standard
    error each size's best as soon as it is known.

    Raises NoBestKernel if no configuration is correct at a size, or at all sizes of a bucket.
    """
    if not dimension_values:
        raise UserError("there are no sizes to tune", where="dimension_values")
    started = time.monotonic()
    sizes: dict[str, dict[int, Tuned]] = {}
    for count, size in enumerate(dimension_values, 1):
        tuned = tuned_kernel(
            list(search_space), make_run_and_gt_fn_factory(size), config_callback, num_iters, atol, rtol,
            name=f"{kernel_name}-{size}", clock=clock, profiler=profiler, output_dir=output_dir,
        )  # fmt: skip
        best = f"{tuned.winner.name}, {tuned.winner.us or 0.0:.6g} us"
        print(f"size {size} ({count} of {len(dimension_values)}): {best}", file=sys.stderr, flush=True)
        sizes.setdefault(_bucket_of(size, buckets), {})[size] = tuned
    found = [_chosen(name, sizes[name], config_callback) for name in buckets if name in sizes]
    save_configs_to_json(f"{device_name}-{kernel_name}.json", save_path, {one.name: one.config for one in found})
    for one in found:
        print(one.line())
    print(f"Tuning took {time.monotonic() - started:.2f} seconds")
    return found


def _bucket_of(size: int, buckets: Mapping[str, float]) -> str:
    """The bucket of a size. Raises UserError for a size larger than all buckets."""
    for name, largest in sorted(buckets.items(), key=lambda one: one[1]):
        if size <= largest:
            return name
    raise UserError(f"{size} is in no bucket", where="buckets", accepted=f"sizes up to {max(buckets.values()):g}")


def _chosen(name: str, tuned: Mapping[int, Tuned], config_callback: Callable[[Config], None] | None) -> Bucket:
    times = {size: {row.name: row.us for row in one.rows if _counts(row.status, row.us)} for size, one in tuned.items()}
    everywhere = set.intersection(*map(set, times.values()))
    if not everywhere:
        raise NoBestKernel(f"no configuration is right at {', '.join(map(str, tuned))}", where=name)
    totals = {one: sum(times[size][one] or 0.0 for size in tuned) for one in everywhere}
    best_of = {size: one.winner for size, one in tuned.items()}
    chosen = best_of[next(iter(tuned))].name if len(tuned) == 1 else min(totals, key=lambda one: (totals[one], one))
    asked = next(row.config for one in tuned.values() for row in one.rows if row.name == chosen)
    return Bucket(
        name=name,
        config=used_config(dict(asked), config_callback),
        us={size: times[size][chosen] or 0.0 for size in tuned},
        best_us={size: row.us or 0.0 for size, row in best_of.items()},
        us_of_last=totals.get(list(best_of.values())[-1].name),
    )


def _counts(status: Status, us: Any) -> bool:
    return status is Status.OK and us is not None
