"""--serve on a GPU: the row holds what vLLM can launch, timed with vLLM's default, and the export writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from consumer_sources import write_source
from gpu_work import Gpu

from gemm_tuner.cli import main as cli
from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.config import tile
from gemm_tuner.store import results

SIZES = """\
- {M: 64, N: 576, K: 1024, dtype: fp8_e4m3, scaling: block, layout_b: col}
- {M: 512, N: 1024, K: 1024, dtype: fp8_e4m3, scaling: block, layout_b: col}
"""


def test_every_row_is_served_and_exported(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if gpu.device.target.arch not in ("sm_89", "sm_90", "sm_100"):
        pytest.skip("multiplies no OCP fp8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sizes.yaml").write_text(SIZES)
    words = ["--gemm_size_file", "sizes.yaml", "--serve", "vllm", "--search", "quick", "--o", "tuned.yaml"]
    assert cli.main(words) == 0
    rows = results.read(tmp_path / "tuned.yaml").rows
    assert len(rows) == 2
    for row in rows:
        (one,) = row.served
        assert one.verified is Verified.TRUE and tile(one.config).SPLIT_K == 1 and one.config.family == "gemm_tile"
        assert one.time_us > 0 and one.default_us is not None and one.default_us > 0
        assert one.time_us >= 0.9 * row.facts["median_us"]  # the winner is of all families
    assert cli.main(["export", "tuned.yaml", "--to", "vllm", "-o", "out"]) == 0
    tuned = [json.loads(path.read_text()) for path in (tmp_path / "out").rglob("*block_shape*.json")]
    assert len(tuned) == 2
    assert cli.main(["--gemm_size_file", "tuned.yaml", "--benchmark", "--o", "again.yaml"]) == 0
    again = results.read(tmp_path / "again.yaml").rows
    assert [[one.config for one in row.served] for row in again] == [[one.config for one in row.served] for row in rows]


def test_a_servers_own_kernel_is_timed_and_checked(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of the tests, with vLLM's arguments; and one that leaves out a scale, which must not be served."""
    if gpu.device.target.arch not in ("sm_89", "sm_90", "sm_100"):
        pytest.skip("multiplies no OCP fp8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sizes.yaml").write_text(SIZES)
    write_source(tmp_path / "fp8_utils.py")
    words = ["--gemm_size_file", "sizes.yaml", "--serve", "vllm", "--search", "quick"]
    assert cli.main([*words, "--kernel_from", "fp8_utils.py", "-o", "tuned.yaml"]) == 0
    rows = results.read(tmp_path / "tuned.yaml").rows
    assert len(rows) == 2
    for row in rows:
        (one,) = row.served
        assert one.kernel.startswith("fp8_utils.py sha256:") and one.verified is Verified.TRUE
        assert one.default_us is not None and 0 < one.time_us <= 1.05 * one.default_us
        assert row.config is not None and not row.config.is_of_a_server
    assert cli.main(["export", "tuned.yaml", "--to", "vllm", "-o", "out"]) == 0
    write_source(tmp_path / "wrong" / "fp8_utils.py", old="* of_columns[None, :]", new="")
    assert cli.main([*words, "--kernel_from", "wrong/fp8_utils.py", "-o", "wrong.yaml"]) == 0
    assert [row.served for row in results.read(tmp_path / "wrong.yaml").rows] == [(), ()]
