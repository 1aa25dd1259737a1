"""Where a program's metric stands in what it printed."""

from __future__ import annotations

import pytest

from gemm_tuner.kernels.metrics import NoMetric, read
from gemm_tuner.kernels.program_spec import CSV_COLUMN, JSON, REGEX, Metric

BARS = """\
| name           | met (ms) | iters | Arithmetic (GFLOPS/s) |
| -------------- | -------- | ----- | --------------------- |
| gemm/M=8/N=16  | 0.9844   | 2     | 17452.122292          |
"""
READINGS = {
    "Modular's table": (Metric(), f"compiled\n{BARS}done\n", 0.9844),
    "Modular's CSV": (Metric(), 'name,met (ms),iters\n"gemm, small",0.5,10\n', 0.5),
    "newer ones count in seconds": (Metric(), "name, iters, met (s)\ngemm, 10, 0.002\n", 2.0),
    "regex": (Metric(REGEX, "t=([0-9.]+) us", "us"), "n=5 t=2500 us\n", 2.5),
    "json": (Metric(JSON, "runs.1.ms"), 'log\n{"runs": [{"ms": 9}, {"ms": 1.5}]}\n', 1.5),
    "csv column": (Metric(CSV_COLUMN, "rate", "GB/s", "higher"), "size,rate\n5,-12.5\n", -12.5),
}


@pytest.mark.parametrize(("metric", "text", "value"), READINGS.values(), ids=list(READINGS))
def test_the_number_is_found_and_times_become_milliseconds(metric: Metric, text: str, value: float) -> None:
    assert read(metric, text).value == pytest.approx(value)


def test_the_table_gives_the_case_and_the_other_columns() -> None:
    reading = read(Metric(), BARS)
    assert (reading.case, reading.iters) == ("gemm/M=8/N=16", "2")
    assert reading.further == {"Arithmetic (GFLOPS/s)": "17452.122292"}


NONE = {
    "two cases": (Metric(), BARS + "| gemm/M=9/N=16 | 1.0 | 2 | 5 |\n", "2 cases"),
    "nothing printed": (Metric(), "", "prints nothing"),
    "garbage": (Metric(), "\0\x01 hello", "hello"),
    "NaN": (Metric(), BARS.replace("0.9844  ", "nan     "), "nan"),
    "infinite": (Metric(), BARS.replace("0.9844  ", "inf     "), "inf"),
    "a time of 0": (Metric(), BARS.replace("0.9844  ", "0       "), "not above 0"),
    "no number": (Metric(), BARS.replace("0.9844  ", "fast    "), "no number"),
    "regex twice": (Metric(REGEX, "t=([0-9]+)"), "t=1 t=2", "2 times"),
    "no such JSON": (Metric(JSON, "a.b"), '{"a": {"c": 1}}', "no a.b"),
    "JSON of another type": (Metric(JSON, "a"), '{"a": true}', "true"),
    "no JSON": (Metric(JSON, "a"), "{", "no JSON"),
    "no such column": (Metric(CSV_COLUMN, "rate"), "a,b\n1,2\n", "'rate'"),
    "a heading alone": (Metric(CSV_COLUMN, "b"), "a,b\n", "'b'"),
}


@pytest.mark.parametrize(("metric", "text", "says"), NONE.values(), ids=list(NONE))
def test_what_cannot_be_ranked_is_refused_with_the_reason(metric: Metric, text: str, says: str) -> None:
    with pytest.raises(NoMetric, match=says.replace("(", r"\(")):
        read(metric, text)
