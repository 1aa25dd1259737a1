"""Refuses a server of ``--serve`` whose kernel computes none of the sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemm_tuner import serving
from gemm_tuner.errors import UserError
from gemm_tuner.records import Device, GemmProblem
from gemm_tuner.serving import Server
from gemm_tuner.settings import Settings


def asked_for(settings: Settings, device: Device) -> tuple[Server, ...]:
    """The servers of --serve. Raises UserError for one whose kernel computes none of the sizes."""
    wanted = serving.servers(settings.serve, device, kernels=settings.kernels)
    require_some(wanted, [entry.problem for entry in settings.entries])
    return wanted


def require_some(wanted: Iterable[Server], problems: Sequence[GemmProblem]) -> None:
    """Raises UserError for a server whose kernel computes none of the problems."""
    for server in wanted:
        faults = [server.fault(problem) for problem in problems]
        if all(faults):
            what = f"{server.name} can launch none of the sizes: {problems[0].key} {faults[0]}"
            raise UserError(what, where="--serve", accepted=server.consumer.takes)
