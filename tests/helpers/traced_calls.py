"""Traces and the calls that they are of."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from gemm_tuner.measure.attribution import Call, join

A, B = "gemm_tile_BM64_BN64_BK32_GM1_SK1_W4_S1", "gemm_tile_BM64_BN64_BK32_GM1_SK1_W4_S12"
SPLIT, REDUCE, REDUCE_TWO = "gemm_tile_BM64_BN64_BK32_GM1_SK4_W4_S2", "gemm_reduce_SK4", "gemm_reduce_SK8"
Rows = list[tuple[str, float]]
Samples = dict[tuple[int, str], tuple[float, ...]]


def trace(
    rows: Iterable[tuple[str, float]], scopes: Iterable[str] | None = None, processes: Iterable[str] | None = None
) -> pd.DataFrame:
    """Kernels in the order they ran; times in microseconds."""
    listed = list(rows)
    return pd.DataFrame(
        {
            "kernel_name": pd.Series([name for name, _ in listed], dtype="str"),
            "start_ns": pd.Series(range(len(listed)), dtype="int64"),
            "duration_ns": pd.Series([us * 1e3 for _, us in listed], dtype="float64"),
            "scope": pd.Series(list(scopes) if scopes is not None else [""] * len(listed), dtype="str"),
            "process": pd.Series(list(processes) if processes is not None else [""] * len(listed), dtype="str"),
        }
    )


def calls(*planned: tuple[int, str, tuple[str, ...]] | tuple[int, str, tuple[str, ...], bool]) -> list[Call]:
    """(work, configuration, kernels[, warm]) in order; numbered from 0."""
    return [
        Call(number, one[0], one[1], one[2], bool(one[3]) if len(one) > 3 else False)
        for number, one in enumerate(planned)
    ]


def plain(*names: str, work: int = 0) -> list[Call]:
    return calls(*((work, name, (name,)) for name in names))


def by_order(rows: Rows, planned: list[Call]) -> tuple[Samples, set[tuple[int, str]]]:
    joined = join(trace(rows), planned, by_scope=False)
    assert not set(joined.samples_us) & set(joined.missing)
    assert all(joined.missing.values())
    return joined.samples_us, set(joined.missing)


GOOD: Rows = [(A, 1.0), (SPLIT, 10.0), (REDUCE, 1.0), (A, 2.0), (SPLIT, 20.0), (REDUCE, 2.0), (B, 3.0)]
PLANNED = calls(
    (0, A, (A,)), (0, SPLIT, (SPLIT, REDUCE)), (0, A, (A,)), (0, SPLIT, (SPLIT, REDUCE)), (0, B, (B,))
)  # fmt: skip
ALL_RIGHT = {(0, A): (1.0, 2.0), (0, SPLIT): (11.0, 22.0), (0, B): (3.0,)}
SHARED = "gemm_tile_BM64_BN64_BK32_SK1_W4_S2"
ONE, TWO, THREE = (f"gemm_tile_BM64_BN64_BK32_GM{group}_SK1_W4_S2" for group in (1, 4, 8))


def sharing(*names: str, warm: int = 0) -> list[Call]:
    """Calls of configurations of one kernel, the first ``warm`` of each not timed; B has a kernel of its own."""
    met: dict[str, int] = {}
    planned = []
    for name in names:
        met[name] = met.get(name, 0) + 1
        planned.append((0, name, (B if name == B else SHARED,), met[name] <= warm))
    return calls(*planned)
