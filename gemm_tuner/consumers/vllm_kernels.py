"""vLLM's files for two more of its kernels, as of 0.33: Mamba's selective_state_update, and LoRA's shrink and expand.

Both are tuned as kernels of a spec (examples/kernels/vllm_*.yaml); what a file needs is in the values of a case, by
their names there. Of a Mamba state vLLM looks up sequences times heads, nearest; of LoRA max_loras, m, k and n, nearest
in this order, but num_slices exactly: it stops for a layer of a number that a file lacks.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from gemm_tuner.consumers.consumer import Body, Served, SizeFile, file_safe
from gemm_tuner.core.errors import UserError
from gemm_tuner.moe import tuned_file
from gemm_tuner.system.documents import show

HINT = "give the name that vLLM sees by --device_name"
SLICES = ("1", "2", "3")  # of layers with one output, of gate and up, of q, k and v

Values = Mapping[str, Any]


class KernelFile(ABC):
    """Files of configurations of one kernel. needs: values of a case. takes: parameters, by their key in an entry."""

    name: str
    needs: tuple[str, ...]

    @abstractmethod
    def place(self, case: Values, params: Values, device: str) -> PurePosixPath:
        """The file of a case, relative to the folder of -o."""

    @abstractmethod
    def keys(self, case: Values, params: Values) -> tuple[str, ...]:
        """Where the entry is in the file: nested keys, all whole numbers."""

    @abstractmethod
    def takes(self, case: Values, params: Values) -> dict[str, str]:
        """The parameters that an entry has, by key."""

    def constant(self, params: Values) -> dict[str, Any]:
        """What an entry has beside the parameters."""
        return {}

    def head(self, triton: str) -> dict[str, Any]:
        """What comes first in a file."""
        return {}

    def remark(self, body: Mapping[str, Any]) -> str:
        """What a user of the file has to know; "" for nothing."""
        return ""

    def entry(self, case: Values, params: Values) -> dict[str, Any]:
        """Raises UserError for a parameter that is not there."""
        taken = self.takes(case, params)
        for key, name in taken.items():
            if name not in params:
                accepted = f"params {', '.join(taken.values())}"
                raise UserError(f"has no {name}, which is {key} in {self.name}'s file", accepted=accepted)
        return {**{key: params[name] for key, name in taken.items()}, **self.constant(params)}

    def require(self, case: Values) -> None:
        """Raises UserError for a value that is not there, and for a number that is none."""
        for name in self.needs:
            if name not in case:
                what = f"has no {name} in its case, by which vLLM looks it up"
                accepted = f"cases with {', '.join(self.needs)}"
                raise UserError(what, accepted=accepted, hint="examples/kernels/vllm_*.yaml")
            if not name.endswith("dtype") and (type(case[name]) is not int or case[name] < 1):
                raise UserError(f"{name} is {show(case[name])}", accepted="a whole number of 1 or more")


class VllmSsu(KernelFile, Served):
    """Follows get_ssm_configs of vLLM's mamba_ssm; $VLLM_TUNED_CONFIG_FOLDER comes before vLLM's own folder."""

    name = "vllm-ssu"
    needs = ("batch", "nheads", "headdim", "dstate", "cache_dtype")
    folder = PurePosixPath("vllm/model_executor/layers/mamba/ops/configs/selective_state_update")
    cache_dtypes = ("float16", "bfloat16", "float32")
    pattern = re.compile(r"(headdim=\d+,dstate=\d+),device_name=([^/,]+),cache_dtype=(float16|float32)\.json")

    def place(self, case: Values, params: Values, device: str) -> PurePosixPath:
        dtype = case["cache_dtype"]
        if dtype not in self.cache_dtypes:
            raise UserError(f"cache_dtype is {show(dtype)}", accepted=", ".join(self.cache_dtypes))
        dtype = dtype.replace("bfloat16", "float16")  # one file for both types of 16 bits
        named = file_safe(self.device_name(device), HINT)
        sizes = f"headdim={case['headdim']},dstate={case['dstate']}"
        return self.folder / f"{sizes},device_name={named},cache_dtype={dtype}.json"

    def device_name(self, name: str) -> str:
        return re.sub(r"[\s/]+", "_", name)

    def keys(self, case: Values, params: Values) -> tuple[str, ...]:
        return (str(case["batch"] * case["nheads"]),)

    def takes(self, case: Values, params: Values) -> dict[str, str]:
        return {"BLOCK_SIZE_M": "BLOCK_SIZE_M", "num_warps": "num_warps"}

    def head(self, triton: str) -> dict[str, Any]:
        return {tuned_file.VERSION_KEY: triton} if triton else {}

    def files(self, root: Path) -> tuple[list[SizeFile], list[str]]:
        base = root / self.folder if (root / self.folder).is_dir() else root
        found, remarks = [], []
        for path in sorted(base.glob("headdim=*.json")):
            named = self.pattern.fullmatch(path.name)
            if named is None or self.device_name(named[2]) != named[2]:
                remarks.append(f"{path.name}: {self.name} never asks for a file of this name")
            else:
                found.append(SizeFile(path, f"{named[1]},{named[2]},{named[3]}"))
        return found, remarks

    def entries(self, path: Path) -> Body:
        """vLLM passes over keys that are no numbers."""
        return {key: entry for key, entry in tuned_file.entries(path).items() if key.isdigit()}

    def look_up(self, body: Mapping[str, Any], m: int) -> str:
        for name in ("BLOCK_SIZE_M", "num_warps"):
            lacking = [key for key, entry in body.items() if name not in entry]
            if lacking:
                raise ValueError(f"the loader stops at {lacking[0]}, which has no {name}")
        return tuned_file.nearest(body, m)


class VllmLora(KernelFile):
    """Follows load_lora_op_config and get_lora_op_configs of vLLM's LoRA; only $VLLM_TUNED_CONFIG_FOLDER is read."""

    name = "vllm-lora"
    needs = ("max_loras", "num_slices", "m", "hidden_size", "rank")

    def place(self, case: Values, params: Values, device: str) -> PurePosixPath:
        kind = "SHRINK"
        if not self.shrinks(params):
            if type(case.get("add_inputs")) is not bool:
                what = "is neither of shrink, which has SPLIT_K, nor of expand, whose case has add_inputs"
                raise UserError(what, hint="examples/kernels/vllm_lora_*.yaml")
            kind = f"EXPAND_{str(case['add_inputs']).upper()}"
        named = file_safe(device.replace(" ", "_").replace("-", "_"), HINT)
        return PurePosixPath(f"{named}_{kind}.json")

    def shrinks(self, params: Values) -> bool:
        return "SPLIT_K" in params

    def keys(self, case: Values, params: Values) -> tuple[str, ...]:
        k, n = "hidden_size", "rank"
        if not self.shrinks(params):
            k, n = n, k
        return tuple(str(case[name]) for name in ("max_loras", "num_slices", "m", k, n))

    def takes(self, case: Values, params: Values) -> dict[str, str]:
        of_shrink = {"split_k": "SPLIT_K", "group_size_m": "GROUP_SIZE_M"} if self.shrinks(params) else {}
        blocks = {"block_m": "BLOCK_M", "block_n": "BLOCK_N", "block_k": "BLOCK_K"}
        return {**blocks, **of_shrink, "num_warps": "num_warps", "num_stages": "num_stages"}

    def constant(self, params: Values) -> dict[str, Any]:
        return {"num_ctas": params.get("num_ctas", 1), "max_nreg": None}

    def remark(self, body: Mapping[str, Any]) -> str:
        of_loras = [one for one in body.values() if isinstance(one, dict)]
        lacking = sorted({slices for one in of_loras for slices in SLICES if slices not in one})
        return f"vLLM stops for layers of num_slices {' or '.join(lacking)}, which it lacks" if lacking else ""


KERNEL_FILES: dict[str, KernelFile] = {one.name: one for one in (VllmSsu(), VllmLora())}
