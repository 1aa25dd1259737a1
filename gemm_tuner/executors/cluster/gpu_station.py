"""On a machine with a GPU: starts launchers there, and sends home what they say. Never touches the GPU itself, so that
what crashes is a launcher."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gemm_tuner import profilers
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.language import Artifact
from gemm_tuner.core.records import Problem, Timing
from gemm_tuner.executors.cluster.mailbox import Mailbox
from gemm_tuner.executors.cluster.setup import Setup, local_executor
from gemm_tuner.executors.cluster.transport import ScriptText, read_files, write_carried, write_scripts
from gemm_tuner.launch.plan import VERIFY, Plan
from gemm_tuner.measure import device, replay
from gemm_tuner.measure.device import Machine
from gemm_tuner.measure.launcher import Launcher
from gemm_tuner.measure.launcher_events import Heard
from gemm_tuner.measure.machine_check.gpus import are_shared, other_users, require_room
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.measure.retry import StageRun
from gemm_tuner.system import carried_files, gpu_lock

# The folder of a recording that the stations of a machine play back in place of its GPUs: to try a cluster out.
REPLAY_VARIABLE = "GEMM_TUNER_REPLAY"


@dataclass(frozen=True, slots=True)
class Told:
    """A launcher's event, as a local launcher passes it on."""

    problem: Problem
    event: Heard


@dataclass(frozen=True, slots=True)
class Found:
    timings: dict[Key, Timing]


@dataclass(frozen=True, slots=True)
class Said:
    """A line for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A plan came to its end. run: None after checks. files: what lies in its folder, by their paths there."""

    run: StageRun | None
    files: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """A plan ended with an error."""

    error: BaseException
    files: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """A station's GPU and the versions there. recording: the folder of one that answers in its place, else "".
    profilers: the versions of those that can time on it, by their names; none for a recording."""

    machine: Machine
    recording: str
    profilers: Mapping[str, str]


def show_only(gpu_ids: list[str], environ: MutableMapping[str, str], *, is_amd: bool) -> None:
    """Leaves these GPUs visible, as the driver numbers them, to the processes that a station starts; whatever the
    scheduler has set. On AMD every variable that is not ROCR_VISIBLE_DEVICES would number them anew."""
    names = ",".join(gpu_ids)
    if is_amd:
        for variable in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
            environ.pop(variable, None)
        environ["ROCR_VISIBLE_DEVICES"] = names
    else:
        environ["CUDA_VISIBLE_DEVICES"] = names


class GpuStation:
    """One GPU. Every method may be called while others run."""

    def __init__(self, gpu_ids: list[str], recording: str = "") -> None:
        """gpu_ids: the GPU that this station was given, as the driver of its machine numbers it. recording: the
        folder of one that is played back in its place."""
        show_only(gpu_ids, os.environ, is_amd=Path("/dev/kfd").exists())
        self._stack = ExitStack()
        self._root = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gemm_tuner-")))
        self._boxes: dict[str, Mailbox] = {}
        self._winds_down, self._recording = False, recording or os.environ.get(REPLAY_VARIABLE, "")
        self._launcher: Launcher | None = None
        self._seen: Machine | None = None
        self._has_room = False
        self._locks, self._locking, self._plans = ExitStack(), threading.Lock(), 0
        self._scripts, self._cache = self._root / "scripts", self._root / "cache"

    def look(self) -> Seen:
        """Raises EnvironmentFault without a GPU."""
        machine = replay.load(Path(self._recording)).machine if self._recording else device.look()
        self._seen = machine
        if not machine.gpus:
            raise EnvironmentFault("torch sees no GPU there")
        found = {} if self._recording else profilers.installed(device.backend_of(machine.gpu(0)))
        return Seen(machine, self._recording, found)

    @property
    def _gpu(self) -> str:
        """The GPU for the driver's library."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return device.driver_name(self._seen.gpu(0) if self._seen else {}, visible)

    def open(self, setup: Setup) -> bool:
        """Prepares for the plans of a run; whether several may be under way at once."""
        backend = setup.target.backend
        executor = local_executor(
            *(setup, self._root, self._stack),
            wind_down=lambda: self._winds_down,
            gpus=(0,),
            shares_gpus=lambda: bool(self._recording) or are_shared(backend, [self._gpu]),
        )
        self._language, self._setup = executor.language, setup
        self._scripts, self._cache = executor.folder.scripts, executor.folder.cache
        (self._scripts / carried_files.FOLDER).mkdir(exist_ok=True)
        (self._launcher,) = executor.launchers()
        return self._launcher.overlaps

    def prepare(self) -> None:
        self._at_work.prepare()

    @property
    def _at_work(self) -> Launcher:
        if self._launcher is None:
            raise EnvironmentFault("the station was not opened")
        return self._launcher

    def begin(
        self,
        job: str,
        plan: Plan,
        left_s: float,
        scripts: tuple[ScriptText, ...],
        kernels: tuple[Artifact, ...],
        carried: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        """Starts a plan; its messages are under ``job``. left_s: until its deadline, 0 for none: clocks differ.
        carried: files that its problems name, by those paths."""
        launcher = self._at_work
        write_scripts(scripts, self._scripts)
        write_carried(carried, self._scripts)
        for kernel in kernels:
            self._language.unpack(kernel, self._cache)
        plan = replace(plan, deadline=time.time() + left_s if left_s else 0.0)
        box = self._boxes[job] = Mailbox()
        folder = self._root / "raw" / job
        folder.mkdir(parents=True)

        def work() -> None:
            try:
                with self._held(box):
                    run = self._run(launcher, plan, folder, box)
                box.put(Finished(run, read_files(folder)))
            except BaseException as error:
                box.put(Failed(error, read_files(folder)))

        threading.Thread(target=work, daemon=True).start()

    @contextmanager
    def _held(self, box: Mailbox) -> Iterator[None]:
        """Holds the GPU's lock from the first of several plans at once to the end of the last."""
        with self._locking:
            if not self._plans:
                say: Callable[[str], None] = lambda text: box.put(Said(text))  # noqa: E731
                of = self._setup.locks, self._setup.wait_s, say
                self._locks.enter_context(gpu_lock.held(*of, stop=lambda: self._winds_down))
                try:
                    self._require_room()
                except EnvironmentFault:
                    self._locks.close()
                    raise
            self._plans += 1
        try:
            yield
        finally:
            with self._locking:
                self._plans -= 1
                if not self._plans:
                    self._locks.close()

    def _require_room(self) -> None:
        """Before the first plan: later, what this station has started may be there under a process id of the host."""
        backend = self._setup.target.backend
        if not self._recording and not self._has_room:
            require_room(backend, [self._gpu], other_users(backend, [self._gpu]))
            self._has_room = True

    @staticmethod
    def _run(launcher: Launcher, plan: Plan, folder: Path, box: Mailbox) -> StageRun | None:
        tell: Callable[[Problem, Heard], None] = lambda problem, event: box.put(Told(problem, event))  # noqa: E731
        if plan.stage == VERIFY:
            launcher.verdicts(plan, folder, tell)
            return None
        return launcher.timings(plan, folder, tell, lambda timings: box.put(Found(dict(timings))))

    def news(self, job: str, wait_s: float) -> list[object]:
        """What a plan's launcher has said since the last call; waits so long for something."""
        return self._boxes[job].take(wait_s)

    def wind_down(self) -> None:
        """The run is to end after the configuration that is being timed."""
        self._winds_down = True

    def cancel(self) -> None:
        self._at_work.cancel()

    def close(self) -> None:
        """Ends the launchers and removes what lies here."""
        if self._launcher is not None:
            self._launcher.cancel()
            self._launcher.close()
        self._stack.close()
