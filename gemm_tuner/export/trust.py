"""Says which rows of results files are taken, by how they were timed and checked."""

from __future__ import annotations

from dataclasses import dataclass

from gemm_tuner.core.records import Verified


@dataclass(frozen=True, slots=True)
class Trust:
    """Which rows the user accepts in addition to those that were timed and checked on a GPU.

    predicted:  rows that were never timed, and those checked only in the interpreter (--predicted).
    unverified: rows that were not checked (--unverified).
    """

    predicted: bool = False
    unverified: bool = False

    def fault(self, verified: Verified, source: str) -> str:
        """Why a row may not be exported; "" if it may. source: of its time, as ``Choice.source``."""
        if source == "predicted" and not self.predicted:
            return "is predicted and was never run; --predicted exports it as such"
        if verified is Verified.INTERPRETED and not self.predicted:
            return "was checked in the interpreter only; --predicted exports it as such"
        if verified is Verified.FALSE and not self.unverified:
            return "is not verified: its result was not compared with a reference; --unverified exports it as such"
        return ""
