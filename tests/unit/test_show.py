"""Tables on the terminal."""

from __future__ import annotations

import io

from rich.console import Console

from gemm_tuner import show
from gemm_tuner.records import GemmProblem, Verdict


def test_a_check_of_a_batch_says_how_many() -> None:
    one, many = GemmProblem(17, 18, 19), GemmProblem(17, 18, 19, batch=3)
    out = io.StringIO()
    rows = [(problem, "name", [Verdict(problem, "name", True, 0.0, 0.5)]) for problem in (one, many)]
    show.verdicts_table(Console(file=out, width=200), rows)
    lines = out.getvalue().splitlines()
    assert " 17 x 18 x 19 " in lines[-2]
    assert " 3 of 17 x 18 x 19 " in lines[-1]
    assert "3x17x18x19_bf16_nn_batched" in lines[-1]
