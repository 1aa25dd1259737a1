"""Block-scaled fp8 GEMMs of vLLM and SGLang: one JSON file per weight shape, keyed by M; the nearest M is used.

Both loaders convert every top-level key to int, so only values of M may be keys. Both pass an entry as keyword
arguments to the launch, so an entry may contain only the kernel's constants and Triton's options.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from gemm_tuner.consumers.consumer import (
    Consumer,
    Entry,
    ExportTarget,
    Offer,
    Served,
    SizeFile,
    file_safe,
    output_rank,
    plain_gemm_fault,
    tile_entry,
    tile_fault,
)
from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import SCALE_BLOCK, GemmProblem

FP8 = ("fp8_e4m3", "fp8_e4m3_fnuz")
# The values of M that vLLM's and SGLang's own tuners write.
GRID = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)


class BlockFp8(Consumer, Served):
    """Common base of vLLM and SGLang.

    directories:    folders below site-packages, one for each known version of the loader.
    separator:      text between the two sizes of the scale block in a file name.
    default_stages: num_stages of the default configuration, which is used without a file.
    """

    takes = "e4m3 fp8 with block scales, B column-major: --dtype fp8_e4m3 --scaling block --layout_b col"
    grid = tuple((str(m), m) for m in GRID)
    directories: tuple[str, ...]
    separator: str
    default_stages: int

    @abstractmethod
    def device_name(self, name: str) -> str:
        """A device's name as in the consumer's file names."""

    def problem_fault(self, problem: GemmProblem, arch: str) -> str:
        if problem.scaling != "block":
            return "has no block scales, and the files are for block-scaled fp8 only"
        if problem.dtype_a != problem.dtype_b or problem.dtype_a not in FP8:
            return f"multiplies {problem.dtype_a} by {problem.dtype_b}, and the files are for e4m3 by e4m3"
        return plain_gemm_fault(problem)

    def config_fault(self, problem: GemmProblem, config: KernelConfig, arch: str) -> str:
        if SCALE_BLOCK % config.BLOCK_SIZE_K:
            return f"has BLOCK_SIZE_K {config.BLOCK_SIZE_K}, which does not divide the scale group of {SCALE_BLOCK}"
        return tile_fault(config, split_k=False)

    def places(self, problem: GemmProblem, target: ExportTarget) -> tuple[PurePosixPath, ...]:
        device = file_safe(self.device_name(target.device), "give the name that the consumer sees by --device_name")
        block = f"[{SCALE_BLOCK}{self.separator}{SCALE_BLOCK}]"
        file = f"N={problem.n},K={problem.k},device_name={device},dtype=fp8_w8a8,block_shape={block}.json"
        there = [folder for folder in self.directories if (target.root / folder).is_dir()]
        return tuple(PurePosixPath(folder) / file for folder in there or self.directories)

    def key(self, problem: GemmProblem) -> str:
        return str(problem.m)

    def entry(self, offer: Offer, arch: str) -> Entry:
        config, entry = offer.config, tile_entry(offer.config)
        if config.kpack:
            entry |= {"waves_per_eu": config.waves_per_eu, "matrix_instr_nonkdim": config.matrix_instr_nonkdim}
        if config.kpack > 1:  # 1 is Triton's default and the only value on gfx950
            entry["kpack"] = config.kpack
        return entry

    def order(self, key: str) -> tuple[Any, ...]:
        return (int(key),)

    def rank(self, offer: Offer) -> tuple[Any, ...]:
        return (output_rank(offer.problem), *super().rank(offer))

    def default_config(self, problem: GemmProblem, arch: str) -> KernelConfig:
        tile = (64, SCALE_BLOCK, SCALE_BLOCK, 32, 1, 4, self.default_stages)
        return KernelConfig("gemm_tile", *tile, kpack=1 if arch.startswith("gfx") else 0)

    def default(self, place: PurePosixPath, m: int, target: ExportTarget) -> Entry:
        return tile_entry(KernelConfig("gemm_tile", 64, SCALE_BLOCK, SCALE_BLOCK, 32, 1, 4, self.default_stages))

    def files(self, root: Path) -> tuple[list[SizeFile], list[str]]:
        pattern = re.compile(
            r"(N=\d+,K=\d+),device_name=([^/]+),dtype=fp8_w8a8,block_shape=\[\d+" + self.separator + r"\d+\]\.json"
        )
        found, remarks = [], []
        folders = [root / folder for folder in self.directories if (root / folder).is_dir()] or [root]
        for path in (path for folder in folders for path in sorted(folder.glob("*dtype=fp8_w8a8,block_shape=*.json"))):
            match = pattern.fullmatch(path.name)
            if match and self.device_name(match[2]) == match[2]:
                found.append(SizeFile(path, f"{match[1]},{match[2]}"))
            else:
                remarks.append(f"{path.name}: {self.name} never asks for a file of this name")
        return found, remarks

    def look_up(self, body: Mapping[str, Any], m: int) -> str:
        for key in body:
            try:
                int(key)
            except ValueError:
                raise ValueError(f"the loader stops at the key {key!r}, which is no number") from None
        if not body:
            raise ValueError("the file has no entry")
        return min(body, key=lambda key: abs(int(key) - m))  # in a tie, the first one in the file


class Vllm(BlockFp8):
    """Follows get_w8a8_block_fp8_configs of vLLM's fp8_utils."""

    name = "vllm"
    directories = ("vllm/model_executor/layers/quantization/utils/configs",)
    separator = ","
    default_stages = 2

    def device_name(self, name: str) -> str:
        return re.sub(r"[\s/]+", "_", name)


class Sglang(BlockFp8):
    """Follows get_w8a8_block_fp8_configs of SGLang's fp8_kernel, whose folder differs between releases."""

    name = "sglang"
    directories = ("sglang/kernels/ops/gemm/configs", "sglang/srt/layers/quantization/configs")
    separator = ", "
    default_stages = 3

    def device_name(self, name: str) -> str:
        if "/" in name:
            raise UserError(
                f"the device's name {name[:80]!r} has a slash, which SGLang takes for a folder",
                where="--device_name",
                hint="no file can be found under this name",
            )
        return name.replace(" ", "_")

    def config_fault(self, problem: GemmProblem, config: KernelConfig, arch: str) -> str:
        if arch.startswith("gfx") and config.BLOCK_SIZE_K != SCALE_BLOCK:
            return f"has BLOCK_SIZE_K {config.BLOCK_SIZE_K}, which SGLang turns into {SCALE_BLOCK} on AMD"
        return super().config_fault(problem, config, arch)
