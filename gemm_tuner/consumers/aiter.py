"""AITER (ROCm): one JSON file per weight shape, with entries M_LEQ_x for fixed x and ``any`` for larger M.

Its loader uses the nested folder if that has the family's DEFAULT.json, else the legacy folder. Files are written to
both, so that every release finds them.
"""

from __future__ import annotations

import re
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
    output_rank,
    plain_gemm_fault,
    tile_entry,
    tile_fault,
)
from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import SCALE_BLOCK, GemmProblem
from gemm_tuner.system.documents import show

CONFIGS = "aiter/ops/triton/configs"
BOUNDS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
ANY = "any"
EIGHT_BIT = ("fp8_e4m3", "fp8_e4m3_fnuz", "int8")


class Aiter(Consumer, Served):
    """Follows get_gemm_config of AITER's gemm_config_utils, for the kernel families of ``family_of``."""

    name = "aiter"
    takes = "on AMD GPUs, B column-major: bf16 and fp16; fp8 and int8 with --scaling row_col; fp8 with --scaling block"
    splits_k = True
    device_key = "arch"
    grid = (*((f"M_LEQ_{bound}", bound) for bound in BOUNDS), (ANY, 2 * BOUNDS[-1]))
    uses_smaller_m = True

    def problem_fault(self, problem: GemmProblem, arch: str) -> str:
        if not arch.startswith("gfx"):
            return f"is for {arch or 'an unknown architecture'}; AITER runs on AMD GPUs"
        if not family_of(problem):
            return f"multiplies {problem.dtype_a} with scaling {problem.scaling}, which no family here is for"
        return plain_gemm_fault(problem)

    def config_fault(self, problem: GemmProblem, config: KernelConfig, arch: str) -> str:
        if problem.scaling == "block" and config.BLOCK_SIZE_K != SCALE_BLOCK:
            return f"has BLOCK_SIZE_K {config.BLOCK_SIZE_K}, and AITER's kernel takes the scale group, {SCALE_BLOCK}"
        xcds = (1,) if problem.scaling == "block" else (1, 8)  # the other kernels distribute tiles over 8 chiplets
        return tile_fault(config, split_k=True, xcds=xcds, stream_b=True) or slices_fault(config, problem.k)

    def places(self, problem: GemmProblem, target: ExportTarget) -> tuple[PurePosixPath, ...]:
        arch = target.device
        if not re.fullmatch("gfx[0-9a-f]{3,8}", arch):
            raise UserError(f"the architecture is {show(arch)}", where="--device_name", accepted="one such as gfx942")
        family = family_of(problem)
        file = f"{family}-N={problem.n}-K={problem.k}.json"
        nested, legacy = nested_folder(arch, family), PurePosixPath(CONFIGS, "gemm")
        if (target.root / nested / "DEFAULT.json").is_file():
            return (nested / file,)
        if (target.root / legacy / f"{arch}-{family}.json").is_file():
            return (legacy / f"{arch}-{file}",)
        return nested / file, legacy / f"{arch}-{file}"

    def key(self, problem: GemmProblem) -> str:
        return next((f"M_LEQ_{bound}" for bound in BOUNDS if problem.m <= bound), ANY)

    def entry(self, offer: Offer, arch: str) -> Entry:
        config = offer.config
        entry = {
            **tile_entry(config),
            "waves_per_eu": config.waves_per_eu,
            "matrix_instr_nonkdim": config.matrix_instr_nonkdim,
            "cache_modifier": ".cg" if config.STREAM_B else None,
            "NUM_KSPLIT": config.SPLIT_K,
        }
        return {**entry, "kpack": config.kpack} if arch == "gfx942" and config.kpack else entry

    def order(self, key: str) -> tuple[Any, ...]:
        """Known keys in the order of M; keys that the loader never looks up come last."""
        keys = [name for name, _ in self.grid]
        return (keys.index(key), "") if key in keys else (len(keys), key)

    def rank(self, offer: Offer) -> tuple[Any, ...]:
        """The largest M of a bucket comes first, because the bucket's entry is tuned for it."""
        return (-offer.problem.m, output_rank(offer.problem), *super().rank(offer))

    def default(self, place: PurePosixPath, m: int, target: ExportTarget) -> Entry | None:
        """The entry of the family's DEFAULT file, if the folder of -o contains AITER; else None."""
        is_legacy = place.parent == PurePosixPath(CONFIGS, "gemm")
        name = re.sub(r"-N=\d+-K=\d+", "", place.name) if is_legacy else "DEFAULT.json"
        path = target.root / place.parent / name
        if not path.is_file():
            return None
        body = self.load(path)
        try:
            return body[self.look_up(body, m)]
        except ValueError as error:
            raise UserError(f"serves no M of {m}", where=str(path)) from error

    def files(self, root: Path) -> tuple[list[SizeFile], list[str]]:
        base = root / CONFIGS if (root / CONFIGS).is_dir() else root
        pattern = re.compile(r"(?:(gfx\w+)-)?(GEMM-A16W16|GEMM-A8W8(?:_BLOCKSCALE)?)-(N=\d+-K=\d+)\.json")
        wanted: dict[tuple[str, str, str], list[Path]] = {}
        for path in sorted((*base.glob("*/triton/gemm/*/GEMM-*.json"), *base.glob("gemm/gfx*-GEMM-*.json"))):
            match = pattern.fullmatch(path.name)
            if match:
                arch = match[1] or path.relative_to(base).parts[0]
                wanted.setdefault((arch, match[2], match[3]), []).append(path)
        found, remarks = [], []
        for (arch, family, size), paths in sorted(wanted.items()):
            label = f"{arch}-{family}-{size}"
            active = active_folder(base, arch, family)
            read = [path for path in paths if path.parent == active]
            if active is None:
                found.append(SizeFile(paths[0], label, "found once AITER's default file of the family lies beside it"))
            elif read:
                found.append(SizeFile(read[0], label))
            remarks += [
                f"{path.relative_to(base)}: not read, the loader looks into {active.relative_to(base)}"
                for path in paths
                if active is not None and path.parent != active
            ]
        return found, remarks

    def look_up(self, body: Mapping[str, Any], m: int) -> str:
        keys = [f"M_LEQ_{bound}" for bound in BOUNDS if m <= bound]
        keys += [f"M_GEQ_{bound}" for bound in reversed(BOUNDS) if m >= bound]
        for key in (*keys, ANY):
            if key in body:
                return key
        raise ValueError(f"the loader finds no key for M={m} and stops")


def family_of(problem: GemmProblem) -> str:
    """AITER's name of the kernel family for a problem; "" if there is none."""
    if problem.dtype_a != problem.dtype_b:
        return ""
    if problem.dtype_a in ("bf16", "fp16") and problem.scaling == "none":
        return "GEMM-A16W16"
    if problem.dtype_a in EIGHT_BIT and problem.scaling == "row_col":
        return "GEMM-A8W8"
    if problem.dtype_a in EIGHT_BIT and problem.scaling == "block":
        return "GEMM-A8W8_BLOCKSCALE"
    return ""


def nested_folder(arch: str, family: str) -> PurePosixPath:
    return PurePosixPath(CONFIGS, arch, "triton", "gemm", family.lower().replace("-", "_"))


def active_folder(base: Path, arch: str, family: str) -> Path | None:
    """The folder that the loader uses for a family: the first one with a default file; None without any."""
    nested = family.lower().replace("-", "_")
    for backend in ("triton", "gluon"):
        folder = base / arch / backend / "gemm" / nested
        if (folder / "DEFAULT.json").is_file():
            return folder
    legacy = base / "gemm"
    return legacy if (legacy / f"{arch}-{family}.json").is_file() else None


def slices_fault(config: KernelConfig, k: int) -> str:
    """Why AITER would change the configuration that it reads before the launch; "" if it would not.

    AITER adapts BLOCK_SIZE_K and NUM_KSPLIT to K: a slice is K / NUM_KSPLIT rounded up to whole blocks, and it launches
    only as many slices as are needed to cover K.
    """
    slice_k = -(-k // config.SPLIT_K)
    if max(slice_k, 16) < config.BLOCK_SIZE_K:
        return f"has BLOCK_SIZE_K {config.BLOCK_SIZE_K} for slices of {slice_k}, which AITER makes smaller"
    whole = -(-slice_k // config.BLOCK_SIZE_K) * config.BLOCK_SIZE_K
    if config.SPLIT_K > 1 and -(-k // whole) != config.SPLIT_K:
        return f"splits K in {config.SPLIT_K}, of which AITER would launch {-(-k // whole)}"
    return ""
