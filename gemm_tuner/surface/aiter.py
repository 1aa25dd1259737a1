"""The functions of AITER's tuning scripts, with the same names, arguments and defaults.

``benchmark_config`` and ``tune_kernel`` flush L2 and time kernels without launch overhead. AITER's versions divide the
mean by ten once too often, so their microseconds are a tenth of these.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.store.run_folder import DEFAULT_OUTPUT_DIR
from gemm_tuner.surface.clocks import ChosenClock, Clock
from gemm_tuner.surface.gpu import wait
from gemm_tuner.surface.job import Address, address, at_address
from gemm_tuner.surface.judge import Judge, one_line
from gemm_tuner.surface.records import Call, Check, Config, Effort, Tuned, WrongOutput
from gemm_tuner.surface.tuner import tune_callables
from gemm_tuner.system.documents import write_text_atomically

WARMUP = 5
# Number of rounds of the finals, as a multiple of num_iters.
FINALS_TIMES = 3

MakeRun = Callable[[Config], tuple[Callable[[], Any], Any]]

FULL: dict[str, tuple[int, ...]] = {
    "num_stages": (2, 3, 4, 5),
    "BLOCK_SIZE_M": (16, 32, 64, 128, 256),
    "BLOCK_SIZE_K": (64, 128),
    "BLOCK_SIZE_N": (32, 64, 128, 256),
    "num_warps": (4, 8),
    "GROUP_SIZE_M": (1, 16, 32, 64),
    "waves_per_eu": (2, 3, 4),
}
SMALL: dict[str, tuple[int, ...]] = {
    "num_stages": (2, 3),
    "BLOCK_SIZE_M": (16, 32),
    "BLOCK_SIZE_K": (64,),
    "BLOCK_SIZE_N": (32, 64),
    "num_warps": (4,),
    "GROUP_SIZE_M": (1,),
    "waves_per_eu": (3,),
}
KEYS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages", "waves_per_eu")


@dataclass
class _EachCallChecked:
    """Calls ``run`` and compares the outputs of each call before the next one, outside of the timed interval."""

    run: Callable[[], Any]
    check: Check
    _outputs: list[Any] = field(default_factory=list)
    _judge: Judge = field(init=False)

    def __post_init__(self) -> None:
        self._judge = Judge(self.check)

    def __call__(self) -> Any:
        self._outputs = [self.run()]
        return self._outputs[0]

    def compare(self) -> None:
        """Raises WrongOutput if the outputs of the last call are wrong."""
        for outputs in self._outputs:
            found = self._judge.judge("", Call(self.run), outputs)
            if found.reason:
                raise WrongOutput(found.reason)
        self._outputs = []

    def call(self, **details: Any) -> Call:
        return Call(self, check=self.check, before=self.compare, details=details)


def tune_kernel(
    search_space: list[Config],
    make_run_and_gt_fn: MakeRun,
    config_callback: Callable[[Config], None] | None = None,
    num_iters: int = 10,
    atol: float = 1e-2,
    rtol: float = 1e-2,
    *,
    clock: str | Clock = "auto",
    profiler: str = "",
    output_dir: Path | str | None = DEFAULT_OUTPUT_DIR,
) -> Config:
    """The fastest correct configuration of a search space.

    make_run_and_gt_fn: takes a configuration and returns (run, ground_truth): a function without arguments that returns
                        outputs, and the expected outputs. A configuration that fails or is wrong is left out.
    config_callback:    changes a configuration in place before it is used. The table has the original values and, as
                        ``used NAME``, the changed ones; the used configuration is returned.
    num_iters:          number of timed calls per configuration; the best few are timed again in finals.
    profiler:           as for ``tune_callables``; another process must be able to import both functions.

    Raises NoBestKernel with the most common reason if no configuration is correct (AITER's version asserts).
    """
    name = name_of(make_run_and_gt_fn)
    tuned = tuned_kernel(
        search_space, make_run_and_gt_fn, config_callback, num_iters, atol, rtol,
        name=name, clock=clock, profiler=profiler, output_dir=output_dir,
    )  # fmt: skip
    return used_config(tuned.config, config_callback)


def tuned_kernel(
    search_space: list[Config],
    make_run_and_gt_fn: MakeRun,
    config_callback: Callable[[Config], None] | None,
    num_iters: int,
    atol: float,
    rtol: float,
    *,
    name: str,
    clock: str | Clock,
    profiler: str,
    output_dir: Path | str | None,
) -> Tuned:
    """As ``tune_kernel``, with all rows."""

    build: Callable[[Config], Call] = partial(_build, make_run_and_gt_fn, config_callback, (rtol, atol))
    if profiler:
        callback = None if config_callback is None else address(config_callback, "config_callback")
        build = partial(rebuilt, address(make_run_and_gt_fn, "make_run_and_gt_fn"), callback, (rtol, atol))
    return tune_callables(
        search_space,
        build,
        name=name,
        clock=clock,
        profiler=profiler,
        effort=Effort(warmup=WARMUP, screen_calls=num_iters, rounds=FINALS_TIMES * num_iters),
        output_dir=output_dir,
    )


def name_of(function: Any) -> str:
    """A name for a run: that of the function, also under functools.partial."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", "tune_kernel")).replace(".<locals>", "")


def _build(
    make_run_and_gt_fn: MakeRun,
    config_callback: Callable[[Config], None] | None,
    tolerance: tuple[float, float],
    asked: Config,
) -> Call:
    used = used_config(asked, config_callback)
    run, ground_truth = make_run_and_gt_fn(used)
    checked = _EachCallChecked(run, Check(ground_truth, *tolerance))
    changed = {key: value for key, value in used.items() if key not in asked or asked[key] != value}
    return checked.call(**{f"used {key}": value for key, value in changed.items()})


def rebuilt(maker: Address, callback: Address | None, tolerance: tuple[float, float], asked: Config) -> Call:
    """As ``_build``, for another process: functions are given by module and name."""
    return _build(at_address(maker), None if callback is None else at_address(callback), tolerance, asked)


def used_config(asked: Config, config_callback: Callable[[Config], None] | None) -> Config:
    """A copy of the configuration, changed by the callback."""
    used = dict(asked)
    if config_callback is not None:
        config_callback(used)
    return used


def benchmark_config(
    run: Callable[[], Any],
    ground_truth: Any,
    num_iters: int = 10,
    atol: float = 1e-1,
    rtol: float = 1e-1,
    *,
    clock: str | Clock = "auto",
) -> float:
    """The mean time of a call in microseconds, after five untimed calls. Outputs are compared after each call.

    Returns infinity, with a warning that says why, if it fails or is wrong.
    """
    checked = _EachCallChecked(run, Check(ground_truth, rtol, atol))
    try:
        for _ in range(WARMUP):
            checked()
        wait()
        samples = ChosenClock(clock).measure([checked.call()] * num_iters)
        checked.compare()
        for sample in samples:
            if isinstance(sample, Exception):
                raise sample
    except Exception as error:
        warnings.warn(f"benchmark_config: {one_line(error)}", stacklevel=2)
        return float("inf")
    times = [sample for sample in samples if isinstance(sample, (int, float))]
    return sum(times) / len(times) if times else float("inf")


def get_search_space(small: bool = False) -> list[Config]:
    """AITER's search space for its Triton GEMMs: 3840 configurations, or 8 if ``small``, for testing a script."""
    values = SMALL if small else FULL
    found = (dict(zip(values, one, strict=True)) for one in itertools.product(*values.values()))
    return [{**{key: one[key] for key in KEYS}, "matrix_instr_nonkdim": 16} for one in found]


def save_configs_to_json(json_file_name: str, save_path: str, configs: dict[str, Any]) -> None:
    """Writes configurations by name to a JSON file atomically; creates the folder if needed."""
    folder = Path(save_path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"cannot make the folder: {error.strerror}", where=str(folder)) from None
    write_text_atomically(folder / json_file_name, json.dumps(configs, indent=4) + "\n")
