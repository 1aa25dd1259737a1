"""The options of a run: the validated command line as a typed record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from gemm_tuner.consumers.consumer_kernel import ConsumerKernel
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.language import Language
from gemm_tuner.core.records import Config, Problem
from gemm_tuner.core.workload import FIRST_KIND, workload_of
from gemm_tuner.languages.together import named
from gemm_tuner.measure.device import Machine
from gemm_tuner.measure.torch_ahead import TorchAhead
from gemm_tuner.store.sizes import SizeEntry

# Value of screen_with: screening by proton inside the launcher process.
IN_PROCESS = "in_process"


@dataclass(frozen=True)
class RunOptions:
    """The options of a run. Units: ``rotating_mib`` in MiB, limits in seconds. arch: "" means this machine's GPU.

    compare:     which configurations are checked: "" (best first until one is correct), "finalists", or "all" timed.
    families:    kernel families to try; empty for all families of the space.
    serve:       servers for which each size also gets a configuration.
    kernels:     servers' own kernels (--kernel_from), by server.
    budget_s:    wall time of the run from ``started`` (time.monotonic()) on; 0 for no limit.
    began:       time.monotonic() when the command began, whose time the run accounts for.
    looking:     the machine, for which a thread has begun to look; None if none has.
    torch_ahead: a process that has begun to import torch, for a launcher of this machine; None if none has.
    older:       configurations of update_file, which new ones must beat by min_improvement_pct.
    older_served: those that the file has for servers.
    gpu_wait_s:  time to wait for a GPU that another process measures on; None for no limit.
    screen_with: the profiler of screening, IN_PROCESS, or "auto".
    cluster:     "ray" or "ray:ADDRESS"; "" for this machine alone.
    given:       flags on the command line as typed, by their names in argparse.
    cache_limit_bytes: size limit of the user's cache of compiled kernels at the end of the run.
    fresh:       start a new run even if an earlier one could be resumed.
    """

    entries: tuple[SizeEntry, ...]
    templates_dir: Path
    rules_dir: Path
    output_dir: Path
    space_file: Path | None = None
    results_file: Path | None = None
    arch: str = ""
    heuristics: bool = True
    families: tuple[str, ...] = ()
    serve: tuple[str, ...] = ()
    kernels: Mapping[str, ConsumerKernel] = field(default_factory=dict)
    profiler: str = "auto"
    screen_with: str = "auto"
    replay_dir: Path | None = None
    gpu_ids: tuple[int, ...] | None = None
    ngpus: int | None = None
    cluster: str = ""
    compile_workers: int = 1
    compile_limit_s: float = 60.0
    jobs: int = 1
    warmup: int = 1
    iters: int = 30
    screen_calls: int = 5
    finalists: int = 8
    predicted_candidates: int = 16
    init_type: str = "randn"
    seed: int = 0
    rotating_mib: int = 0
    compare: str = ""
    search: str = "guided"
    budget_s: float = 0.0
    started: float = field(default_factory=time.monotonic, compare=False)
    began: float = field(default_factory=time.monotonic, compare=False)
    looking: Future[Machine] | None = field(default=None, compare=False, repr=False)
    torch_ahead: TorchAhead | None = field(default=None, compare=False, repr=False)
    launch_limit_s: float = 60.0
    update_file: Path | None = None
    gpu_wait_s: float | None = None
    older: Mapping[Problem, Config] = field(default_factory=dict)
    older_served: Mapping[Problem, Mapping[str, Config]] = field(default_factory=dict)
    min_improvement_pct: float = 2.0
    fresh: bool = False
    compile_stage: bool = True
    cache_limit_bytes: int = 20 * 2**30
    keep: bool = False
    verbose: bool = False
    time_breakdown: bool = False
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of all problems of the run. Raises UserError if there are several kinds."""
        kinds = sorted({entry.problem.kind for entry in self.entries})
        if len(kinds) > 1:
            raise UserError(
                f"holds problems of {len(kinds)} kinds, {', '.join(kinds)}",
                where="the sizes",
                hint="tune each in a run of its own",
            )
        return kinds[0] if kinds else FIRST_KIND

    @property
    def language(self) -> Language:
        """The language of the kind of problem, together with other languages that its families are in: with older
        configurations, which may be of any family, with all."""
        workload = workload_of(self.kind)
        return named((workload.language, *workload.other_languages(() if self.older else self.families)))

    @property
    def cache_name(self) -> str:
        """The name of the cache of compiled kernels for these templates."""
        of_kind = workload_of(self.kind).templates_dir
        return self.language.cache_name(self.templates_dir, *([of_kind] if of_kind else []))

    @property
    def updates_in_place(self) -> bool:
        """Whether the results file is the file of --update."""
        one, other = self.update_file, self.results_file
        return one is not None and other is not None and one.resolve() == other.resolve()

    @property
    def check_all_finalists(self) -> bool:
        return bool(self.compare)
