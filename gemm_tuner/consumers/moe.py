"""Fused MoE of vLLM, SGLang and AITER: files with the tuned configurations of both GEMMs of a layer.

vLLM and SGLang have one file per layer, keyed by the number of tokens, of which the nearest is used. SGLang has a
second file for the down GEMM, and one folder per Triton version. AITER has one file per architecture and type, with
three entries.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from gemm_tuner.consumers.block_fp8 import Vllm
from gemm_tuner.consumers.consumer import Body, Consumer, Entry, ExportTarget, Offer, Served, SizeFile, file_safe
from gemm_tuner.consumers.moe_names import FileName
from gemm_tuner.core.errors import UserError
from gemm_tuner.moe import tuned_file
from gemm_tuner.moe.launch import DOWN, OF_DOWN, UP, part_config
from gemm_tuner.moe.launcher import AMD_FIELDS, FIELDS, TMA
from gemm_tuner.moe.launchers import family_fault, other_kernel_fault
from gemm_tuner.moe.problem import SCALINGS_OF, SIXTEEN_BIT, MoeProblem
from gemm_tuner.moe.servers import GRID, SERVERS
from gemm_tuner.system.documents import show

# Beside BLOCK_SIZE_M, of integers in groups.
GROUPED_DEFAULT = {"GROUP_SIZE_M": 1, "SPLIT_K": 1}
# vLLM uses the same file name for all devices whose names contain one of these.
FAMILIES_OF_ONE_NAME = ("H200",)


def ordered(offer: Offer, part: str) -> Entry:
    """The entry of one GEMM, with keys in the order of the servers' own files."""
    own = part_config(dict(offer.config.options()), part)
    found = {name: own[name] for name in (*FIELDS, *AMD_FIELDS) if name in own}
    if own.get(TMA):  # what SGLang takes a missing one for is False
        found[TMA] = True
    # vLLM's launcher of the kernel for integers in groups gives it what the entry holds, and nothing else.
    needs = offer.problem.grouped and offer.problem.server == "vllm"
    return {**found, "SPLIT_K": 1} if needs else found


class MoeFiles(Consumer, Served):
    """Common base of vLLM and SGLang. folder: below site-packages."""

    kind = MoeProblem.kind
    grid = tuple((str(m), m) for m in GRID)
    server: str
    folder: PurePosixPath
    separator: str  # of rows and columns of a block, in file names

    def problem_fault(self, problem: MoeProblem, arch: str) -> str:
        return ""

    def other_consumer_fault(self, problem: MoeProblem) -> str:
        return other_kernel_fault(problem, self.server)

    @property
    def tuned_by(self) -> str:
        return f"moe --kernel_from {self.server}=PATH tunes {self.server}'s"

    def config_fault(self, problem: MoeProblem, config: Any, arch: str) -> str:
        return family_fault(config, self.server)

    def untold(self, problem: MoeProblem) -> str:
        size = f" of {problem.block_shape[1]}" if problem.grouped else ""
        scales = "" if problem.scaling in ("none", "block") else f", a scale a {problem.scaling}{size}"
        return f"K={problem.K} top {problem.topk}{scales}"

    def key(self, problem: MoeProblem) -> str:
        return str(problem.M)

    def order(self, key: str) -> tuple[Any, ...]:
        return (int(key),)

    def rank(self, offer: Offer) -> tuple[Any, ...]:
        """Names of files say nothing of other ranks' experts, whose rows take no time: with fewer of them comes
        first."""
        return (offer.problem.routed_E, *super().rank(offer))

    def entry(self, offer: Offer, arch: str) -> Entry:
        return ordered(offer, UP)

    def default(self, place: PurePosixPath, m: int, target: ExportTarget) -> Entry:
        """From the layer's parameters in the file name; the default does not depend on K and topk."""
        named = FileName.of(place.name)
        assert named is not None
        dtype = named.dtype if named.dtype in SCALINGS_OF else "bf16"
        scaling = "block" if all(named.block_shape) else SCALINGS_OF[dtype][0]
        sizes = m, named.E, named.N, 1, 1
        shape = (0, 1) if scaling == "group" else named.block_shape
        layer = MoeProblem(self.server, *sizes, dtype, scaling=scaling, block_shape=shape)
        if layer.grouped and self.server == "vllm":  # what the launcher chooses itself is not said
            return {"BLOCK_SIZE_M": SERVERS["vllm"].default(layer, target.arch)["BLOCK_SIZE_M"], **GROUPED_DEFAULT}
        return SERVERS[self.server].default(layer, target.arch)

    def load(self, path: Path) -> Body:
        return dict(tuned_file.entries(path))

    entries = load

    def look_up(self, body: Mapping[str, Any], m: int) -> str:
        return tuned_file.nearest(body, m)

    @abstractmethod
    def device_name(self, name: str) -> str:
        """A device's name as in the server's file names."""

    def file_name(self, problem: MoeProblem, target: ExportTarget) -> str:
        device = file_safe(self.device_name(target.device), "give the name that the server sees by --device_name")
        dtype = "" if problem.dtype in SIXTEEN_BIT else f",dtype={problem.dtype}"
        block = self.separator.join(map(str, problem.block_shape))
        blocks = f",block_shape=[{block}]" if problem.scaling == "block" else ""
        return f"E={problem.E},N={self.columns(problem)},device_name={device}{dtype}{blocks}"

    def columns(self, problem: MoeProblem) -> int:
        """N in file names."""
        return problem.N

    def says_channels(self, problem: MoeProblem) -> bool:
        """Whether file names tell a scale per channel from one per tensor."""
        return False

    def spells(self, file: str) -> bool:
        """Whether a file's name has block_shape as the server writes it, or has none."""
        return "block_shape" not in file or bool(re.search(rf"\[\d+{self.separator}\d+\]", file))

    def found(self, paths: Iterable[Path]) -> tuple[list[SizeFile], list[str]]:
        """(files that the server may look up, remarks about the others)."""
        files, remarks = [], []
        for path in paths:
            named = FileName.of(path.name)
            if named is None and not path.name.startswith("E="):
                continue
            if named is None or not self.spells(path.name) or self.device_name(named.device) != named.device:
                remarks.append(f"{path.name}: {self.name} never asks for a file of this name")
            else:
                label = path.stem.replace("device_name=", "").replace("dtype=", "")
                files.append(SizeFile(path, label))
        return files, remarks


class VllmMoe(MoeFiles):
    """Follows get_moe_configs of vLLM's fused_moe; $VLLM_TUNED_CONFIG_FOLDER comes before vLLM's own folder."""

    name, server, separator = "vllm-moe", "vllm", ","
    folder = PurePosixPath("vllm/model_executor/layers/fused_moe/configs")
    takes = "fused MoE layers that were tuned in vLLM's kernel"

    def config_fault(self, problem: MoeProblem, config: Any, arch: str) -> str:
        """The default of integers in groups may have two tiles."""
        pair = any(name.startswith(OF_DOWN) for name in config.options())
        if fault := super().config_fault(problem, config, arch):
            return fault
        return "has a tile for each GEMM, which vLLM launches without a file only" if pair else ""

    def device_name(self, name: str) -> str:
        spelt = Vllm().device_name(name)
        return next((f"NVIDIA_{one}" for one in FAMILIES_OF_ONE_NAME if one in spelt.split("_")), spelt)

    def places(self, problem: MoeProblem, target: ExportTarget) -> tuple[PurePosixPath, ...]:
        return (self.folder / f"{self.file_name(problem, target)}.json",)

    def text(self, body: Body, target: ExportTarget) -> str:
        version = {tuned_file.VERSION_KEY: target.triton} if target.triton else {}
        return json.dumps({**version, **body}, indent=4) + "\n"

    def files(self, root: Path) -> tuple[list[SizeFile], list[str]]:
        base = root / self.folder if (root / self.folder).is_dir() else root
        return self.found(sorted(base.glob("E=*.json")))


class SglangMoe(MoeFiles):
    """Follows get_moe_configs of SGLang's fused_moe_triton_config: it searches the folder of the installed Triton
    version first, then the newest one."""

    name, server, separator = "sglang-moe", "sglang", ", "
    takes = "fused MoE layers that were tuned in SGLang's kernel"
    folders = (
        PurePosixPath("sglang/srt/layers/moe/moe_runner/triton_utils/configs"),
        PurePosixPath("sglang/srt/layers/moe/fused_moe_triton/configs"),
    )
    suffixes = ("", "_down")

    def device_name(self, name: str) -> str:
        return name.replace(" ", "_")

    def columns(self, problem: MoeProblem) -> int:
        """The last extent of w2 as it is stored: bytes of 4-bit integers, of which vLLM counts two each."""
        return problem.N // problem.packed

    def places(self, problem: MoeProblem, target: ExportTarget) -> tuple[PurePosixPath, ...]:
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)+", target.triton):
            what = f"the results' Triton is {show(target.triton)}, and SGLang has a folder for each version"
            raise UserError(what, accepted="a version such as 3.6.0")
        version = f"triton_{target.triton.replace('.', '_')}"
        channel = ",per_channel_quant=True" if self.says_channels(problem) else ""
        name = self.file_name(problem, target) + channel
        there = [folder for folder in self.folders if (target.root / folder).is_dir()]
        names = [f"{name}{suffix}.json" for suffix in self.suffixes]
        return tuple(folder / version / one for folder in there or self.folders[:1] for one in names)

    def says_channels(self, problem: MoeProblem) -> bool:
        return problem.scaling == "channel" and problem.dtype == "fp8_w8a8"

    def entry_at(self, place: PurePosixPath, offer: Offer, arch: str) -> Entry:
        return ordered(offer, DOWN if place.stem.endswith(self.suffixes[1]) else UP)

    def files(self, root: Path) -> tuple[list[SizeFile], list[str]]:
        base = next((root / folder for folder in self.folders if (root / folder).is_dir()), root)
        versions = sorted(base.glob("triton_*"), key=lambda path: [*map(int, re.findall(r"\d+", path.name))])
        files, remarks = self.found([path for one in versions[-1:] for path in sorted(one.glob("*.json"))])
        older = [path for one in versions[:-1] for path in one.glob("E=*.json")]
        return files, remarks + ([f"{len(older)} files of older Triton versions"] if older else [])


FILES = {one.server: one for one in (VllmMoe(), SglangMoe())}


def fault_of_name(file: str, problem: MoeProblem) -> str:
    """Why a server does not look a file of this name up for a layer; "" for names of no server, and on all devices."""
    named = FileName.of(file)
    if named is None:
        return ""
    dtype = "" if problem.dtype in SIXTEEN_BIT else problem.dtype
    block = problem.block_shape if problem.scaling == "block" else (0, 0)
    files = FILES[problem.server]
    channels = files.says_channels(problem)
    asked = FileName(problem.E, files.columns(problem), named.device, dtype, block, channels, down=False)
    parts = {
        "E": "E",
        "N": "N",
        "dtype": "dtype",
        "block_shape": "block_shape",
        "per_channel": "per_channel_quant",
        "down": "_down",
    }
    wrong = [what for part, what in parts.items() if getattr(named, part) != getattr(asked, part)]
    wrong += (
        [] if files.spells(file) else [f"block_shape, of which {files.server} writes [{files.separator.join('NK')}]"]
    )
    return f"is another file than this layer's by its name: {', '.join(wrong)}" if wrong else ""


class AiterMoe(Consumer):
    """Follows get_moe_configs of AITER's moe_config_utils. AITER's kernel was not measured; vLLM's was used instead."""

    name = "aiter-moe"
    kind = MoeProblem.kind
    device_key = "arch"
    folder = PurePosixPath("aiter/ops/triton/configs/moe")
    buckets = (("small_M", 256), ("medium_M", 1024), ("large_M", 0))
    grid = (("small_M", 255), ("medium_M", 1023), ("large_M", 4096))
    uses_smaller_m = True
    takes = "fused MoE layers that were tuned in vLLM's kernel on an AMD GPU, without block scales"

    def problem_fault(self, problem: MoeProblem, arch: str) -> str:
        if not arch.startswith("gfx"):
            return f"is for {arch or 'an unknown architecture'}; AITER runs on AMD GPUs"
        return (
            ""
            if problem.scaling in ("none", "tensor", "channel")
            else f"has {problem.scaling} scales, which its files are not for"
        )

    def other_consumer_fault(self, problem: MoeProblem) -> str:
        return other_kernel_fault(problem, "vllm", "aiter")

    @property
    def tuned_by(self) -> str:
        return "moe --kernel_from vllm=PATH tunes vllm's, which stands in for aiter's"

    def config_fault(self, problem: MoeProblem, config: Any, arch: str) -> str:
        return family_fault(config, "vllm")

    def places(self, problem: MoeProblem, target: ExportTarget) -> tuple[PurePosixPath, ...]:
        if not re.fullmatch("gfx[0-9a-f]{3,8}", target.device):
            what = f"the architecture is {show(target.device)}"
            raise UserError(what, where="--device_name", accepted="one such as gfx942")
        kind = "DEFAULT" if problem.dtype in SIXTEEN_BIT else problem.dtype.upper()
        return (self.folder / f"{target.device}-MOE-{kind}.json",)

    def key(self, problem: MoeProblem) -> str:
        return next(name for name, below in self.buckets if below > problem.M or not below)

    def entry(self, offer: Offer, arch: str) -> Entry:
        return ordered(offer, UP)

    def order(self, key: str) -> tuple[Any, ...]:
        names = [name for name, _ in self.buckets]
        return (names.index(key), "") if key in names else (len(names), key)

    def rank(self, offer: Offer) -> tuple[Any, ...]:
        """The largest M of a bucket, for which its entry is tuned, comes first; then as in ``MoeFiles``."""
        return (-offer.problem.M, offer.problem.routed_E, *super().rank(offer))
