"""Checks configurations in sequence in the interpreting process."""

from __future__ import annotations

from typing import Any

from case_runner import script_at

from gemm_tuner.gemm.problem import GemmProblem


def run(script: str, problem: dict[str, Any], orders: list[list[str]]) -> list[list[tuple[bool, bool]]]:
    """Of each configuration in each order: (whether it is right, whether the verdict is that of a check by itself)."""
    from gemm_tuner.gemm.check import check, examiner

    one, code = GemmProblem.from_dict(problem), script_at(script)
    alone = {name: check(code, one, name, 1, "cpu") for order in orders for name in order}
    found = []
    for order in orders:
        together = examiner(one, 1, "cpu")
        verdicts = [(name, together.verdict(code, name)) for name in order]
        found.append([(verdict.ok, verdict == alone[name]) for name, verdict in verdicts])
    return found
