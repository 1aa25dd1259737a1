"""Times of calls of several kernels on a GPU: the span from the first start to the last end, and the kernels' sum."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_work import Gpu

from gemm_tuner.cli import main as cli
from gemm_tuner.core.markers import FLUSH_SYMBOL
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.store import results

# One call of two kernels, one of one; the first size is one for which torch.mm splits K, too.
SPLIT = "{M: 64, N: 64, K: 65536, BLOCK_SIZE_M: 64, BLOCK_SIZE_N: 16, BLOCK_SIZE_K: 128, GROUP_SIZE_M: 1, SPLIT_K: 32, "
PLAIN = "{M: 512, N: 512, K: 512, BLOCK_SIZE_M: 64, BLOCK_SIZE_N: 64, BLOCK_SIZE_K: 64, GROUP_SIZE_M: 1, SPLIT_K: 1, "
# What the second kernel waits for the first one's end, and its start without a start ahead of that, microseconds.
LONGEST_GAP_US = 5.0


def test_the_span_of_a_call_has_no_gap_of_the_host(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch from the host takes tens of microseconds; the queue is full before the call begins."""
    monkeypatch.chdir(tmp_path)
    rest = "num_warps: 4, num_stages: 3, dtype: bf16}"
    (tmp_path / "sizes.yaml").write_text(f"- {SPLIT}{rest}\n- {PLAIN}{rest}\n")
    assert cli.main(["--gemm_size_file", "sizes.yaml", "--benchmark", "--o", "times.yaml"]) == 0
    of_two, of_one = (row.facts for row in results.read(tmp_path / "times.yaml").rows)
    assert "summed_us" not in of_one and "summed_us" in of_two
    assert 0.5 * of_two["summed_us"] <= of_two["median_us"] <= of_two["summed_us"] + LONGEST_GAP_US
    if "vendor_summed_us" in of_two:
        assert of_two["vendor_us"] <= of_two["vendor_summed_us"] + LONGEST_GAP_US


def test_a_flush_of_many_sweeps_takes_as_long_as_so_many_flushes(gpu: Gpu) -> None:
    """By it a call's kernels are queued before the first one begins."""
    import torch

    flush = LANGUAGE.support_calls(2**28, "cuda")[FLUSH_SYMBOL]

    def shortest_ms(sweeps: int) -> float:
        found: list[float] = []
        for _ in range(5):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            flush(sweeps)
            ended.record()
            ended.synchronize()
            found.append(began.elapsed_time(ended))
        return min(found)

    shortest_ms(1)  # loads it
    assert 8 < shortest_ms(16) / shortest_ms(1) < 24
