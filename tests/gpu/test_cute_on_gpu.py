"""Kernels in CuTe DSL on a GPU; needs the DSL: pip install 'gemm-tuner[cute]'."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from cute_copy import copy

import gemm_tuner as gt
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.measure import probe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="CuTe DSL is not installed"),
]


def test_what_was_compiled_before_copies_and_is_tuned(tmp_path: Path) -> None:
    import torch

    arch = probe.gpus()[0]["arch"]
    compiled = gt.par_compile(copy, [{"threads": 64}], target=arch, language="cute")
    assert [one.status for one in compiled] == [Status.OK], compiled
    gt.save_compiled(compiled, tmp_path / "kernels.json")
    (found,) = gt.read_compiled(tmp_path / "kernels.json")
    x = torch.randn(1000, 64, dtype=torch.bfloat16, device="cuda")
    y = torch.empty_like(x)
    kernel = gt.callables(
        lambda config: gt.load_compiled(found),
        [found.config],
        reference=lambda x, y: x,
        outputs=lambda x, y: (y,),
        output_dir=None,
    )
    tuned = kernel.tune(x, y)
    assert tuned.winner.verified is Verified.TRUE and tuned.latency_us > 0
    y.zero_()
    launch: Any = kernel
    launch(x, y)
    assert torch.equal(x, y)
