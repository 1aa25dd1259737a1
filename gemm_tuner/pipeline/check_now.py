"""Checks configurations outside of a run: on a GPU of their architecture, or else in the interpreter."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gemm_tuner import profilers
from gemm_tuner.compile import compile_tasks
from gemm_tuner.core.language import Language
from gemm_tuner.core.records import Config, Problem, Target, Verdict, Verified
from gemm_tuner.measure import device
from gemm_tuner.measure.launcher import Checker
from gemm_tuner.measure.launcher_process import InterpreterLauncher, LiveLauncher
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.verify import Verification, verify_plan
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.system import gpu_lock

CACHE, SCRIPTS = "cache", "scripts"  # folders of CheckNow.work
P = TypeVar("P", bound=Problem)
C = TypeVar("C", bound=Config)


@dataclass(frozen=True, slots=True)
class Finding:
    """name: the first correct configuration of a size; "" if none is correct, with the reason in ``why``."""

    name: str
    why: str = ""


@dataclass(frozen=True)
class CheckNow:
    """how: TRUE for checks on a GPU, INTERPRETED for the interpreter. gpus: lock names of the GPUs. wait_s: time to
    wait for these locks, seconds; None for no limit."""

    launcher: Checker
    how: Verified
    target: Target
    templates: Path
    work: Path
    gpus: tuple[str, ...] = ()
    say: Callable[[str], None] = print
    wait_s: float | None = None

    def first_right(self, candidates: Mapping[P, Sequence[C]]) -> Mapping[P, Finding]:
        """For each size the first of its configurations, in the given order, whose result is correct.

        Raises EnvironmentFault if checking itself fails, GpuInUse after ``wait_s``, and UserError for a template that
        does not render.
        """
        states = [prepare.state_of_given(problem, configs) for problem, configs in candidates.items()]
        order = [(state, list(state.kept)) for state in states]
        wanted = [(state.problem, config) for state in states for config in state.kept.values()]
        work = Path(tempfile.mkdtemp(dir=self.work))
        scripts = compile_tasks.write_scripts(self.templates, self.work / SCRIPTS, wanted, self.target)
        found: dict[Any, Finding] = {}

        def decided(problem: Problem, name: str | None, verdicts: list[Verdict]) -> None:
            found[problem] = Finding(name or "", "" if name else _first_fault(verification.sizes[problem].state))

        verification = Verification(order, decided)
        plan = verify_plan(order, scripts, seed=0, all_of_them=False)
        with gpu_lock.held(self.gpus, self.wait_s, self.say):
            self.launcher.verdicts(plan, work / "check", verification.hear)
        verification.finish()
        return found


def find(
    language: Language,
    target: Target,
    templates: Path,
    work: Path,
    say: Callable[[str], None],
    wait_s: float | None = None,
) -> CheckNow:
    """A checker for kernels of a language for a target, on this machine.

    work: folder for scripts, kernels and logs. say: called with a line while another process uses the GPU. wait_s: time
    to wait for the GPU, seconds.
    """
    for name in (CACHE, SCRIPTS):
        (work / name).mkdir(exist_ok=True)
    of = language, work / CACHE, work / SCRIPTS
    gpu = next((gpu for gpu in device.look().gpus if gpu["arch"] == target.arch), None)
    if gpu is None:
        return CheckNow(InterpreterLauncher(*of), Verified.INTERPRETED, target, templates, work)
    profiler = profilers.select("proton", target.backend)  # required but never started: checks need no profiler
    launcher = LiveLauncher(language, profiler, *of[1:], target.backend, gpu["id"])
    locks = (device.lock_name_here(gpu),)
    return CheckNow(launcher, Verified.TRUE, target, templates, work, locks, say, wait_s)


def _first_fault(state: SizeState) -> str:
    """The message of the check of the first configuration."""
    name = next(iter(state.kept))
    row = state.rows.get(name, {})
    return f"{name} is {row['status']}: {row['message']}" if row.get("message") else f"nothing is known of {name}"
