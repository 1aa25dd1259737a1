"""Checks a key's configuration at those of its cases for which another one was chosen, so that it was not checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.language import language_of
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Verified
from gemm_tuner.core.workload import workload_of
from gemm_tuner.export.kernels.choose import Check
from gemm_tuner.export.kernels.rows import TunedCase
from gemm_tuner.export.trust import Trust
from gemm_tuner.pipeline import check_now
from gemm_tuner.pipeline.check_now import CheckNow
from gemm_tuner.space import space
from gemm_tuner.system.gpu_lock import GpuInUse
from gemm_tuner.system.installation import data_folder


def checks(arch: str, trust: Trust, work: Path, say: Callable[[str], None], wait_s: float | None) -> Check:
    """A check on a GPU of the architecture, or in the interpreter if ``trust`` accepts that.

    work: folder for kernels and logs. wait_s: time to wait for a GPU that another process uses; None for no limit.
    """
    found: list[CheckNow] = []

    def here(kind: str) -> CheckNow:
        if not found:
            rules = data_folder("rules")
            target = space.load(space.space_path(rules, arch), arch).device.target
            of = language_of(workload_of(kind).language), target, data_folder("templates"), work
            found.append(check_now.find(*of, say, wait_s))
        return found[0]

    def check(cases: Sequence[TunedCase], config: PlainConfig) -> Verified | str:
        where = ", ".join(case.problem.shape for case in cases)
        try:
            now = here(cases[0].problem.kind)
            if trust.fault(now.how, "measured"):
                if trust.unverified:
                    return Verified.FALSE
                why = "no GPU of its architecture is here, --predicted has the interpreter check it"
                return f"{config.name} was not checked at {where}: {why}, --unverified takes it"
            right = now.first_right({case.problem: [config, case.config] for case in cases})
        except GpuInUse:
            raise  # the user limited the waiting time
        except (UserError, EnvironmentFault) as error:
            return f"{config.name} could not be checked at {where}: {error.one_line()}"
        for problem, finding in right.items():
            if finding.name != config.name:
                return f"{config.name} is not right at {problem.shape}"
        together = any(workload_of(case.problem.kind).compares_configs(case.problem) for case in cases)
        return Verified.AGREED if together else now.how

    return check
