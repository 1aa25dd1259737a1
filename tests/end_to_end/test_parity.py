"""docs/parity.md: a row for every feature of the five systems, and the tests that it names are there."""

from __future__ import annotations

import re

from samples import ROOT

ROWS = {"M": 11, "C": 12, "R": 13, "A": 12, "T": 28}
TEXT = (ROOT / "docs" / "parity.md").read_text()


def test_every_feature_has_a_row_and_every_row_a_test_that_is_there() -> None:
    rows = [[cell.strip() for cell in line.split("|")] for line in TEXT.splitlines() if re.match(r"[A-Z]\d+ \|", line)]
    assert [row[0] for row in rows] == [f"{system}{n}" for system, most in ROWS.items() for n in range(1, most + 1)]
    for number, _, command, proof in rows:
        proofs = proof.replace("`", "").split(", ")
        for file, name in (one.split("::") for one in proofs):
            assert command and f"def {name}(" in (ROOT / "tests" / f"{file}.py").read_text(), number
