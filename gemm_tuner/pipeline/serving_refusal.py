"""Refuses a server of ``--serve`` whose kernel computes none of the sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device, Problem
from gemm_tuner.pipeline import serving
from gemm_tuner.pipeline.serving import Server
from gemm_tuner.pipeline.settings import Settings

IN_A_FILE = (
    "flags are for what an entry leaves out: change the entries, or write them anew by the subcommand sizes, as by "
    "sizes --from config.json --dtype fp8_e4m3 --scaling block, which says layout_b: col itself"
)


def asked_for(settings: Settings, device: Device) -> tuple[Server, ...]:
    """The servers of --serve. Raises UserError for one whose kernel computes none of the sizes."""
    wanted = serving.servers(settings.serve, device, kernels=settings.kernels)
    problems = [entry.problem for entry in settings.entries]
    require_some(wanted, problems, hint=IN_A_FILE if "gemm_size_file" in settings.given else "")
    return wanted


def require_some(wanted: Iterable[Server], problems: Sequence[Problem], hint: str = "") -> None:
    """Raises UserError, with all reasons, for a server whose kernel computes none of the problems."""
    for server in wanted:
        faults = Counter(server.fault(problem) for problem in problems)
        if "" not in faults:
            reasons = "; ".join(f"{sizes(count)} {fault}" for fault, count in faults.most_common())
            what = f"{server.name} can launch none of the sizes: {reasons}"
            raise UserError(what, where="--serve", accepted=server.consumer.takes, hint=hint)


def sizes(count: int) -> str:
    """As the subject of a sentence in the singular."""
    return "1 size" if count == 1 else f"each of {count} sizes"
