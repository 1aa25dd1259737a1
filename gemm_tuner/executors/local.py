"""This machine works for a run: a pool of compile workers, a launcher for each GPU, or a recording of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.core.language import Language
from gemm_tuner.core.records import Target
from gemm_tuner.executors.executor import Executor
from gemm_tuner.measure import replay
from gemm_tuner.measure.launcher import Launcher
from gemm_tuner.measure.launcher_process import InterpreterLauncher, LiveLauncher
from gemm_tuner.measure.screening import Resident, StagedLauncher
from gemm_tuner.measure.torch_ahead import TorchAhead
from gemm_tuner.profilers import Profiler
from gemm_tuner.store.run_folder import RunFolder


@dataclass(frozen=True)
class Profilers:
    """What times finals, and what times screening: None for proton in the launcher's own process."""

    finals: Profiler
    screening: Profiler | None


@dataclass(frozen=True, kw_only=True)
class LocalExecutor(Executor):
    """profilers: of measured runs, else None. gpus: ids as torch numbers them. recording: answers in place of GPUs.

    workers:   processes that compile. compile_limit_s, launch_limit_s: of one configuration.
    kind:      of the problems. wind_down: whether the run is to end after the launch that runs.
    shares_gpus: whether launchers of one GPU may be started side by side.
    torch_ahead: becomes the first launcher of screening, if there is one.
    """

    language: Language
    target: Target
    kind: str
    folder: RunFolder
    workers: int
    compile_limit_s: float
    launch_limit_s: float
    wind_down: Callable[[], bool]
    say: Callable[[str], None]
    shares_gpus: Callable[[], bool] = field(default=lambda: True)
    profilers: Profilers | None = None
    gpus: tuple[int, ...] = ()
    recording: replay.Recording | None = None
    torch_ahead: TorchAhead | None = None

    def compiler(self) -> CompilePool:
        folder = self.folder
        work = self.target, self.workers, folder.cache, folder.raw / "compile.log", folder.scripts
        return CompilePool(self.language, *work, limit_s=self.compile_limit_s, kind=self.kind)

    def launchers(self) -> list[Launcher]:
        if self.torch_ahead is not None and (self.profilers is None or self.profilers.screening is not None):
            self.torch_ahead.end()
        if self.profilers is not None:
            return [self._launcher(gpu, self.profilers) for gpu in self.gpus]
        return [replay.ReplayLauncher(self.recording)] if self.recording is not None else []

    def checker(self) -> InterpreterLauncher:
        return InterpreterLauncher(self.language, self.folder.cache, self.folder.scripts, wind_down=self.wind_down)

    def _launcher(self, gpu: int, by: Profilers) -> Launcher:
        finals = self._live(gpu, by.finals)
        if by.screening is by.finals:
            return finals
        if by.screening is not None:
            return StagedLauncher(self._live(gpu, by.screening), finals, self.say)
        resident = Resident(finals, self.folder.raw / f"gpu{gpu}-screening.log", torch_ahead=self.torch_ahead)
        return StagedLauncher(resident, finals, self.say, fallback=finals)

    def _live(self, gpu: int, under: Profiler) -> LiveLauncher:
        shares = under.runs_beside_others and self.shares_gpus()
        launcher = LiveLauncher(
            *(self.language, under, self.folder.cache, self.folder.scripts, self.target.backend, gpu),
            wind_down=self.wind_down,
            launch_limit_s=self.launch_limit_s,
            turn=self.folder.raw / f"gpu{gpu}.turn" if shares else None,
        )
        return launcher.starting_ahead(self.folder.raw / f"gpu{gpu}-ahead") if shares else launcher
