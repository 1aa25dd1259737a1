"""Rows sorted by expert without padding, and results in that order. Needs torch.

Row i of C is the result of the i-th row in this order, its place; row i of the second GEMM's A is that of place i, as
the activation makes it of the first one's C.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gemm_tuner.moe.cute import is_fused
from gemm_tuner.moe.cute_arguments import SortedTensors
from gemm_tuner.moe.launch import DOWN, UP

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from gemm_tuner.moe.operands import MoeOperands


@dataclass(frozen=True)
class SortedRows:
    """starts: int32, the first place of each expert, and behind the last, where rows of other ranks are. tokens: int32,
    of each place. router: fp32, of each place. places: int32, of each row."""

    starts: Any
    tokens: Any
    router: Any
    places: Any


def of(operands: MoeOperands) -> SortedRows:
    """Made once."""
    if not operands.by_expert:
        operands.by_expert.append(_made(operands))
    found: SortedRows = operands.by_expert[0]
    return found


def _made(operands: MoeOperands) -> SortedRows:
    import numpy as np
    import torch

    problem, device = operands.problem, operands.router.device
    flat = buckets(operands)
    order = np.argsort(flat, kind="stable").astype(np.int32)
    first = np.searchsorted(flat[order], np.arange(problem.E + 1)).astype(np.int32)
    of_rows = np.empty_like(order)
    of_rows[order] = np.arange(problem.rows, dtype=np.int32)
    starts, row_ids, places = (torch.from_numpy(one).to(device) for one in (first, order, of_rows))
    return SortedRows(starts, (row_ids // problem.topk).int(), operands.router[row_ids], places)


def buckets(operands: MoeOperands) -> npt.NDArray[np.int32]:
    """What each row is sorted by: its expert, or E for all of other ranks, whose places are the last and in no GEMM."""
    import numpy as np

    return np.minimum(operands.ids.ravel(), operands.problem.E).astype(np.int32)


def tensors(operands: MoeOperands, config: dict[str, Any], part: str) -> SortedTensors:
    gemm, rows = operands.gemms[part], of(operands)
    tokens = rows.tokens if part == UP else None
    router = rows.router if part == DOWN else None
    return SortedTensors(gemm.a, gemm.w, result(operands, config, part), gemm.bias, rows.starts, tokens, router)


def result(operands: MoeOperands, config: dict[str, Any], part: str) -> Any:
    """C of a GEMM, [places, columns]; of an up-projection with its activation [places, N], in the memory of C."""
    c, one = operands.gemms[part].c, operands.problem
    if part == DOWN or not is_fused(config):
        return c
    return c.view(-1)[: one.rows * one.N].view(one.rows, one.N)


def in_row_order(operands: MoeOperands) -> MoeOperands:
    """The operands with the second GEMM's A by row instead of by place."""
    down = operands.gemms[DOWN]
    by_row = replace(down, a=down.a[of(operands).places])
    return replace(operands, gemms={**operands.gemms, DOWN: by_row})
