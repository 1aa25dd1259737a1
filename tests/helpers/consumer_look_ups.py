"""How vLLM, SGLang and AITER find a config, written from their documented rules alone: nothing of the exporter.

Each takes a site-packages folder, as the consumer's package would see it, and gives the config that it would launch.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

AITER_BOUNDS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def vllm(site: Path, device: str, n: int, k: int, m: int) -> dict[str, Any] | None:
    """Nearest M of the file in vLLM's package; None without a file, where vLLM launches its default."""
    name = re.sub(r"[\s/]+", "_", device)
    file = f"N={n},K={k},device_name={name},dtype=fp8_w8a8,block_shape=[128,128].json"
    return _nearest(site / "vllm/model_executor/layers/quantization/utils/configs" / file, m)


def sglang(site: Path, device: str, n: int, k: int, m: int, *, older: bool = False) -> dict[str, Any] | None:
    """As vLLM, but with a space in the file's name, and in another folder since the kernels moved."""
    name = device.replace(" ", "_")
    file = f"N={n},K={k},device_name={name},dtype=fp8_w8a8,block_shape=[128, 128].json"
    folder = "sglang/srt/layers/quantization/configs" if older else "sglang/kernels/ops/gemm/configs"
    return _nearest(site / folder / file, m)


def _nearest(path: Path, m: int) -> dict[str, Any] | None:
    if not path.exists():
        return None
    by_m = {int(key): entry for key, entry in json.loads(path.read_text()).items()}
    best = None
    for known in by_m:
        if best is None or abs(known - m) < abs(best - m):
            best = known
    assert best is not None
    entry: dict[str, Any] = by_m[best]
    return entry


def aiter(site: Path, arch: str, family: str, n: int, k: int, m: int) -> tuple[dict[str, Any], bool]:
    """(config, whether it is tuned): one folder by its default file, the file of N and K, then the bucket of M."""
    configs = site / "aiter/ops/triton/configs"
    nested = family.lower().replace("-", "_")
    layouts = [
        (configs / arch / "triton/gemm" / nested, "DEFAULT.json", ""),
        (configs / arch / "gluon/gemm" / nested, "DEFAULT.json", ""),
        (configs / "gemm", f"{arch}-{family}.json", f"{arch}-"),
    ]
    folder, default, prefix = next(layout for layout in layouts if (layout[0] / layout[1]).exists())
    special = folder / f"{prefix}{family}-N={n}-K={k}.json"
    body = json.loads((special if special.exists() else folder / default).read_text())
    for bound in AITER_BOUNDS:
        if m <= bound and f"M_LEQ_{bound}" in body:
            return body[f"M_LEQ_{bound}"], special.exists()
    for bound in reversed(AITER_BOUNDS):
        if m >= bound and f"M_GEQ_{bound}" in body:
            return body[f"M_GEQ_{bound}"], special.exists()
    return body["any"], False


def aiter_launch(config: dict[str, Any], k: int) -> tuple[int, int]:
    """(BLOCK_SIZE_K, NUM_KSPLIT) that are launched for a K: halved and rounded until the slices hold whole blocks."""
    block, splits = config["BLOCK_SIZE_K"], config["NUM_KSPLIT"]
    part = -(-k // splits)
    while splits > 1 and block > part:
        splits //= 2
        part = -(-k // splits)
    if block > part:
        block = 1 << (part.bit_length() - 1)
    block = max(block, 16)
    if splits > 1 and part % block:
        part = -(-part // block) * block
        splits = -(-k // part)
    return block, splits
