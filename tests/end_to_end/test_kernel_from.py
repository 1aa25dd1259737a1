"""--kernel_from without a GPU: a server's own kernel is compiled, checked in the interpreter, and named in the row."""

from __future__ import annotations

from pathlib import Path

import pytest
from consumer_sources import write_source
from samples import NO_GPU

from gemm_tuner.cli.main import main
from gemm_tuner.core.records import Verified
from gemm_tuner.measure import device
from gemm_tuner.store import results

ROOT = Path(__file__).resolve().parents[2]
AXES = {
    "BLOCK_SIZE_M": [64], "BLOCK_SIZE_N": [64], "BLOCK_SIZE_K": [128], "GROUP_SIZE_M": [1],
    "SPLIT_K": [1], "num_warps": [4], "num_stages": [2],
}  # fmt: skip
WORDS = (
    *("-m", "40", "-n", "192", "-k", "256", "--dtype", "fp8_e4m3", "--scaling", "block", "--layout_b", "col"),
    *("--arch", "sm_90", "--space", "space.yaml", "--o", "tuned.yaml", "--serve", "vllm"),
)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(device, "look", lambda: NO_GPU)
    shipped, _, _ = (ROOT / "rules" / "space_sm_90.yaml").read_text().partition("families:")
    axes = "\n".join(f"    {axis}: {values}" for axis, values in AXES.items())
    (tmp_path / "space.yaml").write_text(f"{shipped}families:\n  gemm_tile:\n{axes}\n")


def test_the_servers_own_kernel_is_compiled_checked_and_named(capfd: pytest.CaptureFixture[str]) -> None:
    source = write_source(Path("site-packages/vllm/model_executor/layers/quantization/utils/fp8_utils.py"))
    assert main([*WORDS, "--keep", "--kernel_from", "site-packages/vllm"]) == 0, capfd.readouterr().err
    (row,) = results.read("tuned.yaml").rows
    (one,) = row.served
    assert one.verified is Verified.INTERPRETED and one.config.family == "gemm_tile"
    file, _, sha = one.kernel.partition(" sha256:")
    assert file == source.name and len(sha) == 12
    assert row.config is not None and row.config.family == "gemm_tile"
    assert "stand_in" not in Path("tuned.yaml").read_text()
    assert list(Path().rglob("vllm_block_fp8_*.py"))
    assert main(["export", "tuned.yaml", "--to", "vllm", "-o", "out", "--predicted"]) == 0
    assert len(list(Path("out").rglob("N=192,K=256*.json"))) == 1


def test_a_wrong_kernel_is_found_and_not_served() -> None:
    source = write_source(Path("fp8_utils.py"), old="* of_columns[None, :]", new="")
    assert main([*WORDS, "--kernel_from", str(source)]) == 0
    (row,) = results.read("tuned.yaml").rows
    assert row.served == () and row.verified is Verified.INTERPRETED
