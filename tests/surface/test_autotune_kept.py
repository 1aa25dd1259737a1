"""What ``gt.autotune`` keeps between calls, threads and processes, and when it keeps nothing."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from autotuned import BLOCKS, tuned
from tilelang_stand_in import matmul

pytestmark = pytest.mark.usefixtures("cache")


def test_threads_tune_once() -> None:
    factory = tuned(configs=BLOCKS)(matmul)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(factory(64, 64, 64))) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert factory.runs == 1 and len({id(one) for one in found}) == 1


def test_another_process_takes_what_was_found_and_any_ingredient_changes_that(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new decoration has nothing in memory, as another process."""

    def runs(
        function: Any = matmul, configs: Any = BLOCKS, call: tuple[int, ...] = (64, 64, 64), **options: Any
    ) -> int:
        factory = tuned(configs=configs, **options)(function)
        assert factory(*call).block == 32
        found: int = factory.runs
        return found

    assert runs() == 1 and runs() == 0 and len(list((cache / "autotune").iterdir())) == 1
    assert runs(configs=BLOCKS[:2]) == 1
    assert runs(rtol=1e-3) == 1
    assert runs(call=(64, 64, 32)) == 1
    assert runs(function=partial(matmul, offset=0.0)) == 1
    assert runs(ref_prog=lambda a, b: a @ b) == 1 and runs(ref_prog=lambda a, b: torch.mm(a, b)) == 1
    assert runs(cache_results=False) == 1
    for name in ("GEMM_TUNER", "TILELANG", "TILELANG_AUTO_TUNING"):
        with monkeypatch.context() as here:
            here.setenv(f"{name}_DISABLE_CACHE", "1")
            with pytest.warns(
                UserWarning, match=f"matmul: the result is not kept .*: {name}_DISABLE_CACHE is set; unset"
            ):
                assert runs() == 1
            assert runs(cache_results=False) == 1, "and says nothing where that was asked for"
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", "")
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(cache / "tilelang"))
    assert runs() == 1 and runs() == 0 and len(list((cache / "tilelang" / "autotune").iterdir())) == 1


def test_what_cannot_be_told_apart_is_not_kept_and_said(cache: Path) -> None:
    anything = object()
    with pytest.warns(UserWarning, match="matmul: the result is not kept for later processes: ref_prog: .*object"):
        tuned(configs=BLOCKS, ref_prog=lambda a, b: a @ b if anything else a)(matmul)(64, 64, 64)
    assert not (cache / "autotune").exists()


class Layer:
    """size: what matters. calls: counts calls, in a tuning too."""

    def __init__(self) -> None:
        self.size, self.calls, self.used_at = 4, 0, 0.0


@pytest.mark.parametrize("key", [None, ["layer"]])
def test_a_counter_in_an_argument_is_found_out_and_other_changes_count_on(key: Any) -> None:
    @tuned(configs=BLOCKS, key=key, cache_results=False)
    def scaled(layer: Layer, x: torch.Tensor, block_M: int = 0) -> torch.Tensor:
        layer.calls += 1
        layer.used_at += 0.25
        return x * layer.size

    layer, x = Layer(), torch.ones(4)
    with pytest.warns(UserWarning, match=r"Layer\.(calls|used_at) grows from call to call"):
        for _ in range(6):
            scaled(layer, x)
    runs = scaled.runs
    assert runs < 6
    for _ in range(3):
        assert scaled(layer, x).tolist() == [4.0] * 4
    assert scaled.runs == runs
    layer.size = 8
    assert scaled(layer, x).tolist() == [8.0] * 4 and scaled.runs == runs + 1


def test_sizes_that_differ_by_much_are_no_counter() -> None:
    @tuned(configs=BLOCKS, cache_results=False)
    def scaled(layer: Layer, x: torch.Tensor, block_M: int = 0) -> torch.Tensor:
        return x * layer.size

    layer = Layer()
    for layer.size in (64, 128, 192, 256, 320):
        scaled(layer, torch.ones(4))
    assert scaled.runs == 5
