"""Short forms of fused MoE layers and of their configurations for tables. They are for display only, never for
lookup."""

from __future__ import annotations

from gemm_tuner.core.records import Problem
from gemm_tuner.gemm.config import AMD_NAME_PARTS, FAMILY_NAME_PARTS, NAME_PARTS
from gemm_tuner.moe import launchers
from gemm_tuner.moe.cute import FUSED
from gemm_tuner.moe.launch import OF_DOWN
from gemm_tuner.moe.launcher import TMA
from gemm_tuner.moe.rules import of

TILE = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
# Fields that are left out where they are 0, which turns them off.
SWITCHES = {"PROGRAMS_PER_SM": "ps", "SWAP_AB": "ab", "W_BY_TMA": "wt", TMA: "tma", "PINGPONG": "pp", FUSED: "fused"}
SHORT = {field: short.lower() for field, short in (*NAME_PARTS, *FAMILY_NAME_PARTS, *AMD_NAME_PARTS)} | SWITCHES
LEGEND = (
    "vllm 16x64x128 gm1 w4 s3: family vllm_moe, BLOCK_SIZE_M x N x K, GROUP_SIZE_M, num_warps, num_stages; after down "
    "what is different in the second GEMM; further fields where they are used: "
    + ", ".join(f"{short} {name}" for name, short in SWITCHES.items())
    + "; times of fused contain the activation, which those of others do not"
)


def short_config(name: str) -> str:
    """A short form of a configuration's name, such as ``sglang 64x128x64 gm1 w4 s3 down bn256 s2``; other texts are
    returned unchanged."""
    config = launchers.named(name)
    if config is None or not all(field in config.options() for field in TILE):
        return name
    fields = config.options()
    tile = "x".join(str(fields.pop(field)) for field in TILE)
    words, own = [], []
    for field, value in fields.items():
        if field.startswith(OF_DOWN):
            own.append(f"{SHORT[field.removeprefix(OF_DOWN)]}{value}")
        elif value or field not in SWITCHES:
            words.append(f"{SHORT[field]}{value}")
    return " ".join([config.family.removesuffix("_moe"), tile, *words, *(["down", *own] if own else [])])


def label_parts(problem: Problem) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """``Workload.label_parts``: of a layer at several numbers of tokens, the layer is what they have in common."""
    one = of(problem)
    layer, _, tokens = one.shape.rpartition(" ")
    return (*one.subject.split(), layer), tokens, ()
