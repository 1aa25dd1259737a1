"""Which rows of a results file may be exported: one rule for all exports."""

from __future__ import annotations

from dataclasses import dataclass

from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.size_rows import Row

CHECKED_HOW = {
    Verified.TRUE: "checked on the GPU",
    Verified.INTERPRETED: "checked in the interpreter only",
    Verified.AGREED: "compared with other configurations only",
    Verified.FALSE: "not checked",
}


@dataclass(frozen=True, slots=True)
class Trust:
    """What the user accepts in addition to rows that were timed and checked on a GPU.

    predicted:  rows that were never timed, and those checked in the interpreter only (--predicted).
    unverified: rows that were not checked (--unverified).
    """

    predicted: bool = False
    unverified: bool = False

    def fault(self, verified: Verified, source: str) -> str:
        """Why a row may not be exported; empty when it may. source: of its time, ``Choice.source``."""
        if source == "predicted" and not self.predicted:
            return "is predicted and was never run; --predicted exports it as such"
        if verified is Verified.INTERPRETED and not self.predicted:
            return "was checked in the interpreter only; --predicted exports it as such"
        if verified is Verified.FALSE and not self.unverified:
            return "is not verified: its result was not compared with a reference; --unverified exports it as such"
        return ""


def known_wrong(row: Row) -> str:
    """Why a row's configuration must never be exported; empty when no later run found it wrong."""
    found = row.facts.get("found_wrong", "")
    return f"was found wrong by a later run ({found})" if found else ""


def remark(verified: Verified) -> str:
    """A remark to print on an exported row; empty for one that was checked on the GPU."""
    return "" if verified is Verified.TRUE else CHECKED_HOW[verified]
