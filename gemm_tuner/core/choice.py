"""What a size was given: the records that results files, exports and reports are made of. Frozen and picklable."""

from __future__ import annotations

from dataclasses import dataclass

from gemm_tuner.core.records import Config, Problem, Verified


@dataclass(frozen=True, slots=True)
class ServedChoice:
    """The best configuration of a size that a consumer can launch.

    time_us:    median kernel time in the finals of the size, or the model's time where nothing ran.
    default_us: of what the consumer launches without a tuned file, in the same finals; None where it was not timed.
    kernel:     the consumer's own kernel that was measured, as --kernel_from found it; empty where config's family
                stood in for it.
    processes, process_spread_pct: of its times in the finals, as in Choice.
    """

    consumer: str
    config: Config
    time_us: float
    verified: Verified
    default_us: float | None = None
    kept_from: str = ""
    kernel: str = ""
    processes: int | None = None
    process_spread_pct: float | None = None

    @property
    def default_ratio(self) -> float | None:
        """The time of the consumer's default over this one: above 1 means that this one is faster."""
        return self.default_us / self.time_us if self.default_us else None


@dataclass(frozen=True, slots=True)
class Choice:
    """The configuration chosen for a size, with its times in microseconds and the result of its check.

    source:     'measured', 'replayed' or 'predicted'; a predicted time was never run.
    verified:   how the result was checked.
    served:     for the consumers of --serve, in their order.
    gap_pct:    how much slower the runner-up is; None without one.
    tie:        another finalist is not significantly slower.
    processes:  of the finals in which it ran; None when that is not known.
    process_spread_pct: how far its times in them lay apart, percent of the least; None for fewer than two.
    vendor_us:  the vendor library's time for the same call, or of the kind's default configuration; None when neither
                was timed.
    derived:    values that follow from the configuration, by name.
    overruled:  the finalists that came before it and were passed over: name and reason.
    """

    problem: Problem
    config: Config
    source: str
    verified: Verified
    median_us: float
    p20_us: float | None
    p80_us: float | None
    num_samples: int
    vendor_us: float | None
    max_abs_error: float
    error_over_bound: float
    runner_up: str
    gap_pct: float | None
    tie: bool
    roofline_pct: float
    processes: int | None = None
    process_spread_pct: float | None = None
    served: tuple[ServedChoice, ...] = ()
    overruled: tuple[tuple[str, str], ...] = ()
    derived: tuple[tuple[str, int | float | bool | str], ...] = ()

    @property
    def tflops(self) -> float:
        return self.problem.flops / self.median_us / 1e6

    @property
    def vendor_ratio(self) -> float | None:
        """Vendor time over ours: above 1 means that ours is faster."""
        return self.vendor_us / self.median_us if self.vendor_us else None
