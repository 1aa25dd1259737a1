"""A call of an exported module hands the launcher the same when it passes Triton's own launch by."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from result_files import write_choices
from work import ROOT, compile_work, space_of

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.export.gemm.module import write_module
from gemm_tuner.export.gemm.module.fallback import general_configs, pointer_fallback
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.measure.launcher_process import launcher_env
from gemm_tuner.store import results

HEADER = results.Header(
    *("0.1.0", "2026-01-31T12:00:00Z", "NVIDIA H200", "sm_90", 132, "570", "3.6.0", "2.11.0", "3.12.3"),
    *("nsys", "2025.3", "randn", 0, "flushed", "measured"),
)
CONFIGS = {  # small tiles: what is handed over is asked, and these compile in a third of the time
    (32, 32, 1024): KernelConfig("gemm_tile", 16, 16, 16, 2, 4, 1, 2),
    (32, 96, 64): KernelConfig("gemm_persistent", 16, 48, 32, 1, 1, 1, 2, EPILOGUE_SUBTILE=3),
    (64, 64, 64): KernelConfig(
        "gemm_persistent", 64, 64, 32, 8, 1, 4, 2, PROGRAMS_PER_SM=1, EPILOGUE_SUBTILE=2, WARP_SPECIALIZE=1
    ),
    (16, 64, 512): KernelConfig("gemm_split_k", 16, 16, 32, 1, 3, 1, 2),
    (64, 32, 256): KernelConfig("gemm_stream_k", 16, 16, 32, 1, 1, 1, 2, PROGRAMS_PER_SM=1),
    (61, 41, 99): KernelConfig("gemm_packed", 16, 16, 32, 1, 1, 1, 2, PROGRAMS_PER_SM=1, PACK_BLOCK=512),
    (33, 35, 515): KernelConfig("gemm_packed", 16, 16, 32, 1, 3, 1, 2, PACK_BLOCK=512),
    (2, 32, 256): KernelConfig("gemv", 2, 16, 16, 1, 2, 1, 2),
}


@pytest.fixture(scope="module", params=["", pytest.param("all", marks=pytest.mark.grid)])
def which(request: pytest.FixtureRequest) -> str:
    """All kernels with and without a bias, or all but the first in turns."""
    return str(request.param)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, which: str) -> list[Any]:
    folder = tmp_path_factory.mktemp("launches")
    timed = (10.0, 9.5, 10.5, 30, 12.0, 0.0, 0.0, "", None, False, 70.0)
    choices = [
        Choice(GemmProblem(*size), config, "measured", Verified.TRUE, *timed) for size, config in CONFIGS.items()
    ]
    write_choices(folder / "tuned.yaml", HEADER, choices)
    write_module(folder / "tuned.yaml", folder / "gemm.py")
    script = ROOT / "tests" / "compile" / "module_launches.py"
    command = [sys.executable, os.fspath(script), str(folder / "gemm.py"), str(folder / "found.json"), *which.split()]
    done = subprocess.run(command, capture_output=True, text=True, env=launcher_env(LANGUAGE, folder / "cache", {}))
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[Any] = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    return found


def test_both_ways_hand_over_the_same_kernel_grid_and_arguments(rows: list[Any], which: str) -> None:
    assert {name for name, *_ in rows} == {config.name for config in CONFIGS.values()}
    both = [name for name, biased, _ in rows if biased and (name, False) in {(one, other) for one, other, _ in rows}]
    assert len(both) == (len(CONFIGS) if which else 1)
    for name, biased, (first, second) in rows:
        assert first == second, (name, biased)
        assert first and all(len(grid) == 3 for _, grid, _ in first)


def test_every_call_launches_with_its_own_operands(rows: list[Any]) -> None:
    """a, b, c, and the bias where there is one, each at least once in a call; scratch where K is split
    or operands are packed."""
    for name, biased, calls in rows:
        for launches in calls:
            places = {one["address"] for _, _, given in launches for one in given if isinstance(one, dict)}
            assert places - {-1} == set(range(4 if biased else 3)), name
            shares = "_SK1_" not in name or name.startswith(("gemm_stream_k", "gemm_packed"))
            assert (-1 in places) == shares, name


def test_pointer_kernels_for_odd_sizes_do_not_spill(tmp_path: Path) -> None:
    """Fallbacks of the largest tiles that were tuned, and the largest general one, with a bias."""
    device = space_of("sm_90").device
    odd = GemmProblem(1001, 1001, 1001, layout_b=Layout.COL, bias=True)
    large = KernelConfig("gemm_persistent", 128, 256, 64, 8, 1, 8, 4, EPILOGUE_SUBTILE=2, PROGRAMS_PER_SM=1)
    deep = KernelConfig("gemm_persistent", 64, 128, 128, 1, 1, 4, 4)
    fallbacks = [pointer_fallback(odd, one, device.target) for one in (large, deep)]
    configs = [*(one for one in fallbacks if one), general_configs(odd, device.target)[0]]
    found = compile_work(device, [(odd, config) for config in configs], tmp_path)
    assert [(result.status, result.spills) for result in found] == [(Status.OK, 0)] * 3
