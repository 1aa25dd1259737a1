"""A whole call whose GEMMs take rows sorted by expert without padding, and leave their results in that order. Needs
torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gemm_tuner.moe import sorted_rows
from gemm_tuner.moe.check import processors
from gemm_tuner.moe.cute import is_fused
from gemm_tuner.moe.launch import DOWN, UP, Tensors
from gemm_tuner.moe.sorted_rows import SortedRows
from gemm_tuner.moe.whole_call import BLOCK, WholeCall, own_tensors

if TYPE_CHECKING:
    from gemm_tuner.moe.operands import MoeOperands
    from gemm_tuner.moe.workload import MoeWorkload


@dataclass(frozen=True)
class SortedCall(WholeCall):
    """rows: what the alignment writes. router: fp32 weight of each row, by token and slot. fused: the first GEMM writes
    the second one's A."""

    rows: SortedRows
    router: Any
    fused: bool

    def _align(self) -> None:
        from gemm_tuner.moe import sorting_kernels, whole_call_kernels

        one, rows = self.problem, self.rows
        counts, taken = self.counts
        self.counts.zero_()
        programs = (-(-one.rows // BLOCK),)
        whole_call_kernels.count_rows[programs](self.ids, counts, one.rows, BLOCK)
        sorting_kernels.start_buckets[(1,)](counts, rows.starts, one.E + 1, 1 << one.E.bit_length())
        to = rows.tokens, rows.router, rows.places
        sorting_kernels.sort_rows[programs](
            self.ids, rows.starts, taken, self.router, *to, one.rows, one.topk, BLOCK
        )  # fmt: skip

    def _between(self) -> None:
        if not self.fused:
            super()._between()

    def _add_up(self) -> None:
        from gemm_tuner.moe import sorting_kernels

        one, programs = self.problem, (self.problem.M, -(-self.problem.K // BLOCK))
        given = self.tensors[DOWN].c, self.rows.places, self.rows.starts[one.E :], self.out
        sorting_kernels.add_up_places[programs](*given, one.K, one.topk, BLOCK)


def made(workload: MoeWorkload, script: ModuleType, config: dict[str, Any], operands: MoeOperands) -> SortedCall:
    """As ``whole_call.made``."""
    import torch

    one = operands.problem
    x, gemms = own_tensors(operands)
    fused = is_fused(config)
    if fused:
        gemms[UP] = replace(gemms[UP], c=gemms[DOWN].a)
    given = sorted_rows.of(operands)
    rows = SortedRows(given.starts.clone(), given.tokens.clone(), given.router.clone(), given.places.clone())
    mine = replace(operands, gemms=gemms, by_expert=[rows])
    ids = torch.from_numpy(sorted_rows.buckets(operands)).to(x.device)
    counts = torch.zeros(2, one.E + 1, dtype=torch.int32, device=x.device)
    launches = workload.launches(script, config, one, mine, None, processors(x.device.type))
    out = torch.empty(one.M, one.K, dtype=gemms[DOWN].c.dtype, device=x.device)
    tensors = {part: Tensors(a=gemm.a, c=gemm.c) for part, gemm in gemms.items()}
    of_call = one, x, tensors, False, out, ids, (None, None, None), launches, 1, counts
    return SortedCall(*of_call, rows, operands.router, fused)
