"""benchmarks/module_overhead.py: figures worked out by hand, and what it says without a GPU."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest
import samples

from gemm_tuner.core.markers import FLUSH_SYMBOL

SCRIPT = samples.ROOT / "benchmarks" / "module_overhead.py"
H200 = samples.ROOT / "results" / "tuned" / "nvidia_h200_bf16.yaml"


@pytest.fixture(scope="module")
def overhead() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_module_overhead", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def test_all_kernels_between_two_flushes_are_one_call(overhead: ModuleType) -> None:
    turn = [(FLUSH_SYMBOL, 9.0), ("gemm", 2.0), ("reduce", 1.0), (FLUSH_SYMBOL, 9.0), ("mm", 5.0)]
    slow = [(FLUSH_SYMBOL, 9.0), ("gemm", 2.5), ("reduce", 1.5), (FLUSH_SYMBOL, 9.0), ("mm", 7.0)]
    assert overhead.median_by_call([*turn, *turn, *slow], ("ours", "theirs")) == {"ours": 3.0, "theirs": 5.0}
    for events in (turn[:3], [*turn, (FLUSH_SYMBOL, 9.0)], [*turn[:4]], []):
        with pytest.raises(ValueError, match="in turns of 2"):
            overhead.median_by_call(events, ("ours", "theirs"))


def test_the_table_has_the_ratios(overhead: ModuleType) -> None:
    costs = [
        overhead.Cost("one", "c", 7.0, 20.0, 6.0, 10.2, 10.0, 12.0, 10.0),
        overhead.Cost("two", "c", 8.0, 21.0, 6.5, 9.8, 10.0, 9.0, None),
    ]
    text = overhead.report(costs)
    assert "| one | 7.0 | 20.0 | 6.0 | 10.20 | 10.00 | 12.00 | 1.020 | 1.020 |" in text
    assert "| two | 8.0 | 21.0 | 6.5 | 9.80 | 10.00 | 9.00 | 0.980 |  |" in text
    assert "geometric mean 1.000, most 1.020 (one)" in text
    assert "matmul 7.5 us, torch.mm 6.2 us" in text


def test_without_a_gpu_or_a_size_it_says_so(
    overhead: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for words, status, said in (([], 3, "torch sees no GPU"), (["--size", "1x2x3"], 2, "no row of plain products")):
        assert overhead.main([str(H200), *words]) == status
        printed = capsys.readouterr()
        assert printed.out == "" and said in printed.err
