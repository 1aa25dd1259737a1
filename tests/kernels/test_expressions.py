"""The language of spec files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.expressions import Expression

NAMES: dict[str, Any] = {"rows": 7, "ROWS": np.array([1, 2, 8]), "dtype": "fp16", "device.num_sms": 132}


def value(text: str) -> Any:
    return Expression.parse(text, "spec.yaml, rule 1").value(NAMES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 + 3 * 4 - 6 // 4 % 5", 13), ("-2 ** 2", -4), ("7 / 2", 3.5), ("cdiv(rows, 2)", 4), ("pow2(rows)", 8),
        ("next_power_of_2(1)", 1), ("max(rows, 9, 3)", 9), ("min(2, rows)", 2), ("abs(-rows)", 7),
        ("dtype == 'fp16' and 1 < rows <= 7", True), ("not (rows > 3 or rows == 0)", False),
        ("device.num_sms * 2", 264),
    ],
)  # fmt: skip
def test_values_of_numbers_and_words(text: str, expected: Any) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ROWS <= rows", [True, True, False]), ("1 < ROWS < 8", [False, True, False]),
        ("cdiv(rows, ROWS)", [7, 4, 1]), ("max(ROWS, 2)", [2, 2, 8]), ("pow2(ROWS + 1)", [2, 4, 16]),
        ("ROWS == 1 or not ROWS < 8", [True, False, True]), ("2 ** ROWS", [2, 4, 256]),
    ],
)  # fmt: skip
def test_values_of_columns_are_those_of_each_row(text: str, expected: list[Any]) -> None:
    assert value(text).tolist() == expected
    for row, one in zip(NAMES["ROWS"], expected, strict=True):
        assert Expression.parse(text, "").value({**NAMES, "ROWS": int(row)}) == one


@pytest.mark.parametrize(
    "text",
    [
        "rows +", "__import__('os').system('true')", "rows.real.imag", "[rows]", "rows if 1 else 2", "(lambda: 1)()",
        "rows[ROWS]", "cdiv(rows)", "open('x')", "f'{rows}'", "rows := 1", "1j", "rows in (1, 2)", "x" * 2000,
        "(" * 500 + ")" * 500, "max(rows, key=1)", "1 << 99", "None",
    ],
)  # fmt: skip
def test_what_is_not_of_the_language_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises(UserError) as caught:
        Expression.parse(text, "spec.yaml, rule 1")
    assert caught.value.where == "spec.yaml, rule 1" and len(caught.value.one_line()) < 800


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ROW <= 1", "did you mean ROWS?"), ("rows / 0", "max(n, 1)"), ("ROWS % 0", "max(n, 1)"),
        ("9 ** 9 ** 9", "has no value"), ("dtype + 1", "has no value"),
    ],
)  # fmt: skip
def test_what_has_no_value_is_an_error_and_not_a_pass(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        value(text)
    assert words in caught.value.one_line()


def test_an_element_of_a_list_is_taken_of_one_value_and_of_a_column() -> None:
    tiles = np.empty(2, dtype=object)
    tiles[:] = [(64, 128), (256, 32)]
    assert Expression.parse("TILE[0] * TILE[1]", "spec").value({"TILE": (64, 128)}) == 8192
    assert Expression.parse("TILE[1] > 64", "spec").value({"TILE": tiles}).tolist() == [True, False]
    for text, names in (("TILE[2]", {"TILE": (64, 128)}), ("TILE[0]", {"TILE": 64})):
        with pytest.raises(UserError, match="has no element"):
            Expression.parse(text, "spec").value(names)
    with pytest.raises(UserError, match="TILE"):
        Expression.parse("TILE[BM]", "spec")
