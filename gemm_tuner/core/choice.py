"""The chosen configuration of a size: the records behind results files, exports and reports. Frozen, picklable."""

from __future__ import annotations

from dataclasses import dataclass

from gemm_tuner.core.records import Config, Problem, Verified


@dataclass(frozen=True, slots=True)
class ServedChoice:
    """The best configuration of a size that a consumer can launch.

    time_us:    median kernel time in the finals of the size, or the model's time where nothing ran.
    default_us: time of what the consumer launches without a tuned file, from the same finals; None if it was not timed.
    kernel:     the consumer's own kernel that was measured, as --kernel_from found it; empty if this package's kernel
                of the config's family was measured in its place.
    processes, process_spread_pct: as in Choice.
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
        """Time of the consumer's default divided by this time; above 1 means that this configuration is faster."""
        return self.default_us / self.time_us if self.default_us else None


@dataclass(frozen=True, slots=True)
class Substitute:
    """The fastest right finalist in the language of the kind of problem, where the winner is in another language, which
    not every machine has. time_us: median kernel time in the same finals."""

    config: Config
    time_us: float
    verified: Verified


@dataclass(frozen=True, slots=True)
class Choice:
    """The configuration chosen for a size, its times in microseconds and the result of its check.

    source:     'measured', 'replayed' or 'predicted'; a predicted time was never run.
    verified:   how the result was checked.
    served:     one choice for each consumer of --serve, in the order of the flag.
    gap_pct:    how much slower the runner-up is; None without a runner-up.
    tie:        at least one other finalist is not significantly slower.
    processes:  number of finals processes that timed it; None when unknown.
    process_spread_pct: spread of its per-process medians, percent of the least; None for fewer than two processes.
    vendor_us:  time of the vendor library for the same call, or of the kind's default configuration; None when neither
                was timed.
    summed_us:  the times of the kernels of a call, added up; None for calls of one kernel.
    vendor_summed_us: the same of the call that vendor_us is of.
    derived:    values computed from the configuration, such as a grid size: (name, value).
    overruled:  finalists that ranked before it and were rejected: (name, reason).
    substitute: for a configuration in an optional language.
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
    substitute: Substitute | None = None
    summed_us: float | None = None
    vendor_summed_us: float | None = None

    @property
    def tflops(self) -> float:
        return self.problem.flops / self.median_us / 1e6

    @property
    def vendor_ratio(self) -> float | None:
        """Vendor time divided by the tuned time; above 1 means that the tuned configuration is faster."""
        return self.vendor_us / self.median_us if self.vendor_us else None
