"""What a machine must know of a run to work for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gemm_tuner.core.language import Language
from gemm_tuner.core.records import Target
from gemm_tuner.executors.local import LocalExecutor, Profilers
from gemm_tuner.languages import kernel_cache
from gemm_tuner.languages.together import named
from gemm_tuner.measure import replay
from gemm_tuner.profilers import PROFILERS, Profiler
from gemm_tuner.store.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Setup:
    """languages: names of those of ``LocalExecutor.language``. target, kind, limits: as it has them.

    cache_name: of the cache of compiled kernels.

    finals, screening: names of profilers; finals is "" where nothing is timed, screening where the launcher does it.
    recording: the folder of a recording that answers in place of the GPU, else "".
    locks: that keep two runs apart on this GPU. wait_s: for them; None for no limit.
    variables: of the run's environment, those that change compiled code; a station has no others of them.
    """

    languages: tuple[str, ...]
    target: Target
    kind: str
    cache_name: str
    cache_limit_bytes: int
    workers: int = 0
    compile_limit_s: float = 60.0
    launch_limit_s: float = 60.0
    finals: str = ""
    screening: str = ""
    recording: str = ""
    locks: tuple[str, ...] = ()
    wait_s: float | None = None
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def language(self) -> Language:
        return named(self.languages)


def adopt_variables(setup: Setup, environ: MutableMapping[str, str]) -> None:
    """Gives an environment the run's variables in place of its machine's own: with others, kernels that are compiled
    here would not be those that the run looks for, or would not be found here."""
    for name in setup.language.code_variables(environ):
        del environ[name]
    environ.update(setup.variables)


def local_executor(
    setup: Setup,
    root: Path,
    stack: ExitStack,
    *,
    wind_down: Callable[[], bool],
    gpus: tuple[int, ...] = (),
    shares_gpus: Callable[[], bool] = lambda: True,
) -> LocalExecutor:
    """What works here for the run. root: a folder of this station. stack: gives the cache free. shares_gpus: whether
    several launchers may use a GPU at once.

    Changes the environment of this process, which those that it starts inherit.
    """
    adopt_variables(setup, os.environ)
    folder = RunFolder(root, root / "scripts", kernel_cache.folder(setup.cache_name, root))
    folder.make()
    language = setup.language
    stack.enter_context(kernel_cache.in_use(folder.cache, language, time.time(), setup.cache_limit_bytes))
    known: dict[str, Profiler] = {profiler.name: profiler for profiler in PROFILERS}
    timed = Profilers(known[setup.finals], known.get(setup.screening)) if setup.finals else None
    return LocalExecutor(
        language=language,
        target=setup.target,
        kind=setup.kind,
        folder=folder,
        workers=setup.workers,
        compile_limit_s=setup.compile_limit_s,
        launch_limit_s=setup.launch_limit_s,
        wind_down=wind_down,
        say=lambda _: None,
        shares_gpus=shares_gpus,
        profilers=timed,
        gpus=gpus,
        recording=replay.load(Path(setup.recording)) if setup.recording else None,
    )
