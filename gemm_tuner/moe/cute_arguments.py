"""What the kernels in CuTe DSL are compiled with and launched with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemm_tuner.moe.cute import is_fused
from gemm_tuner.moe.launch import DOWN, UP, part_config
from gemm_tuner.moe.problem import MoeProblem


@dataclass(frozen=True)
class SortedTensors:
    """The tensors of one GEMM; C's rows are places, sorted by expert. c: of an up-projection with its activation that
    one's results. tokens: row of A of each place; None where a place has the row of its own number. starts: the first
    place of each expert, and behind the last."""

    a: Any
    w: Any
    c: Any
    bias: Any
    starts: Any
    tokens: Any
    router: Any


def symbol(config: dict[str, Any], part: str) -> str:
    """A kernel's name; the order of tiles is an argument of its launch."""
    own = part_config(config, part)
    tile = "x".join(str(size) for size in tile_of(own))
    activated = "_activated" if part == UP and is_fused(config) else ""
    return f"cute_moe_{part}_{tile}_c{own['CLUSTER_M']}_p{own['PINGPONG']}{activated}"


def tile_of(own: dict[str, Any]) -> list[int]:
    return [own["BLOCK_SIZE_M"], own["BLOCK_SIZE_N"], own["BLOCK_SIZE_K"]]


def compiled(problem: MoeProblem, config: dict[str, Any], part: str) -> dict[str, Any]:
    """The parameters of ``build`` in the template."""
    own = part_config(config, part)
    fused = part == UP and is_fused(config)
    return {
        "dtype": problem.dtype,
        "bias": problem.bias,
        "gathers": part == UP,
        "weighs": part == DOWN,
        "activation": problem.activation if fused else "",
        "halves": fused and problem.gate == "halves",
        "tile": tile_of(own),
        "cluster_m": own["CLUSTER_M"],
        "pingpong": own["PINGPONG"] == 1,
    }


def values(
    problem: MoeProblem, config: dict[str, Any], part: str, given: SortedTensors | None, num_sms: int
) -> dict[str, Any]:
    """given: None for compiling only."""
    own = part_config(config, part)
    arguments: tuple[Any, ...] = ()
    if given is not None:
        tensors = given.a, given.w, given.c, given.starts, given.tokens, given.bias, given.router
        arguments = (*tensors, max(1, num_sms // own["CLUSTER_M"]), own["GROUP_SIZE_M"])
    return {"compiled": compiled(problem, config, part), "arguments": arguments}
