"""What is left out of Triton's interpreter changes nothing that it sees."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from designs import VARIANTS, script_of
from quick_interpreter import kernel_lines

from gemm_tuner.gemm.problem import GemmProblem


@pytest.mark.parametrize("name", ["gemm_stream_k, pointers", "gemm_packed, descriptors"])
def test_a_kernel_ends_where_python_has_its_end(tmp_path: Path, name: str) -> None:
    problem = GemmProblem(40, 32, 139, "fp16", "fp16", "fp32", bias=True)
    lines = Path(script_of(tmp_path, VARIANTS[name], problem)).read_text().splitlines(keepends=True)
    starts = [at for at, line in enumerate(lines) if line.startswith("@triton.jit")]
    assert len(starts) > 1
    for start in starts:
        assert kernel_lines(lines[start:]) == inspect.getblock(lines[start:])
