"""Results files for the tests of the exported module: small sizes, every family, two layouts or more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from result_files import write_choices

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.store import results

HEADER = results.Header(
    *("0.1.0", "2026-01-31T12:00:00Z", "NVIDIA H200", "sm_90", 132, "570", "3.6.0", "2.11.0", "3.12.3"),
    *("nsys", "2025.3", "randn", 0, "flushed", "measured"),
)
# Every family, in tiles that the interpreter gets through; M, N and K are small multiples of 8.
CONFIGS = {
    (64, 64, 128): KernelConfig("gemm_tile", 16, 32, 32, 1, 4, 4, 2),
    (32, 48, 64): KernelConfig("gemm_tile", 32, 16, 32, 2, 1, 4, 2),
    (48, 96, 64): KernelConfig("gemm_persistent", 16, 48, 16, 1, 1, 4, 2, EPILOGUE_SUBTILE=3, PROGRAMS_PER_SM=1),
    (96, 64, 32): KernelConfig("gemm_persistent", 32, 32, 16, 2, 1, 4, 2, EPILOGUE_SUBTILE=2),
    (16, 64, 256): KernelConfig("gemm_split_k", 16, 32, 16, 1, 3, 4, 2),
    (80, 80, 64): KernelConfig("gemm_stream_k", 32, 32, 16, 1, 1, 4, 2, EPILOGUE_SUBTILE=2, PROGRAMS_PER_SM=1),
    (70, 61, 43): KernelConfig("gemm_packed", 16, 32, 16, 1, 1, 4, 2, PROGRAMS_PER_SM=1, PACK_BLOCK=512),
    (30, 53, 131): KernelConfig("gemm_packed", 16, 32, 32, 1, 3, 4, 2, PACK_BLOCK=512),
    (2, 64, 128): KernelConfig("gemv", 2, 16, 32, 1, 2, 4, 2),
}


def choice(problem: GemmProblem, config: KernelConfig) -> Choice:
    timed = (Verified.TRUE, 10.0, 9.5, 10.5, 30, 12.0, 0.01, 0.001, "", None, False, 70.0)
    return Choice(problem, config, "measured", *timed)


def choices(dtype: str, layouts: Iterable[tuple[Layout, Layout]]) -> list[Choice]:
    """Every size of CONFIGS in every one of these layouts."""
    return [
        choice(GemmProblem(*size, dtype, dtype, dtype, *pair), config)
        for pair in layouts
        for size, config in CONFIGS.items()
    ]


def write_results(path: Path, rows: Iterable[Choice], **header: object) -> Path:
    write_choices(path, replace(HEADER, **header), rows)  # type: ignore[arg-type]
    return path
