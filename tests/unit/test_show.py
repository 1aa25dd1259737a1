"""Tables on the terminal."""

from __future__ import annotations

import io

from rich.console import Console

from gemm_tuner import show
from gemm_tuner.prune import FunnelRow
from gemm_tuner.records import GemmProblem, Verdict
from gemm_tuner.rule import Kind


def test_a_check_of_a_batch_says_how_many() -> None:
    one, many = GemmProblem(17, 18, 19), GemmProblem(17, 18, 19, batch=3)
    out = io.StringIO()
    rows = [(problem, "name", [Verdict(problem, "name", True, 0.0, 0.5)]) for problem in (one, many)]
    show.verdicts_table(Console(file=out, width=200), rows)
    lines = out.getvalue().splitlines()
    assert " 17 x 18 x 19 " in lines[-2]
    assert " 3 of 17 x 18 x 19 " in lines[-1]
    assert "3x17x18x19_bf16_nn_batched" in lines[-1]


def test_the_funnel_on_one_line_names_the_rules_that_cut_most() -> None:
    cut = {"a": 5, "b": 0, "c": 50, "d": 7, "e": 1, "f": 30}
    remain, rows = 100, []
    for name, number in cut.items():
        remain -= number
        rows.append(FunnelRow(name, Kind.VALIDITY, "why", number, remain))
    line = show.funnel_line(GemmProblem(16, 16, 16), 100, rows)
    assert line.endswith("100 configurations, 7 kept (c -50, f -30, d -7, 2 other rules -6; --verbose names them)")
    assert show.funnel_line(GemmProblem(16, 16, 16), 100, rows[1:2]).endswith("(no rule cut any)")
    assert show.funnel_line(GemmProblem(16, 16, 16), 100, rows[:3]).endswith("(c -50, a -5)")
