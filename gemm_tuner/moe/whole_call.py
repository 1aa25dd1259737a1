"""A whole call of a fused MoE layer on one rank: alignment, both GEMMs with what is between them, and the sum.

The GEMMs are the server's kernel as it is tuned; the other kernels are ours (``whole_call_kernels``). Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.workload import launch_all
from gemm_tuner.moe.check import processors
from gemm_tuner.moe.launch import DOWN, UP, Tensors, extent, sides
from gemm_tuner.moe.launchers import of_problem
from gemm_tuner.moe.operands import Gemm, MoeOperands
from gemm_tuner.moe.problem import NO_GATE, MoeProblem

if TYPE_CHECKING:
    from gemm_tuner.moe.workload import MoeWorkload

BLOCK = 1024
OWNERS_BLOCK = 32
LARGEST = {"fp8_e4m3": 448.0, "fp8_e4m3_fnuz": 224.0}  # of 8-bit floats, as servers quantise to


@dataclass(frozen=True)
class WholeCall:
    """x: tokens in 16 bits. tensors: of the GEMMs that are launched; the first one's C is the activation's input, whose
    result is the second one's A. is_sorted: rows of both lie where the alignment places them. out: (tokens, K).
    aligned: what the alignment writes. launches: of both GEMMs."""

    problem: MoeProblem
    x: Any
    tensors: Mapping[str, Tensors]
    is_sorted: bool
    out: Any
    ids: Any
    aligned: tuple[Any, Any, Any]
    launches: list[Any]
    block_m: int
    counts: Any

    def run(self) -> None:
        """Starts all kernels of a call."""
        one = self.problem
        self._align()
        if one.dtype == "fp8_w8a8":
            self._activate(self.x, self.tensors[UP], one.K, "", "", None)
        launch_all(self.launches[:1])
        self._between()
        launch_all(self.launches[1:])
        self._add_up()

    def _between(self) -> None:
        one = self.problem
        kind, places = one.activation.removesuffix(NO_GATE), self.aligned[0] if self.is_sorted else None
        self._activate(self.tensors[UP].c, self.tensors[DOWN], one.N, one.gate, kind, places)

    def _add_up(self) -> None:
        from gemm_tuner.moe import whole_call_kernels as kernels

        one = self.problem
        kernels.add_up[(one.M, -(-one.K // BLOCK))](self.tensors[DOWN].c, self.out, one.K, one.topk, BLOCK)

    def _align(self) -> None:
        from gemm_tuner.moe import whole_call_kernels as kernels

        one, (row_ids, owners, total) = self.problem, self.aligned
        if not of_problem(one).sorts(one):
            return
        counts, starts, taken = self.counts
        self.counts.zero_()
        row_ids.fill_(one.rows)
        programs = (-(-one.rows // BLOCK),)
        kernels.count_rows[programs](self.ids, counts, one.rows, BLOCK)
        by = of_problem(one).buckets(one)
        padded = 1 << (by.count - 1).bit_length()
        kernels.lay_out[(-(-len(owners) // OWNERS_BLOCK),)](
            counts, starts, owners, total, by.count, by.first, one.E, len(owners), self.block_m, padded, OWNERS_BLOCK
        )
        kernels.place_rows[programs](self.ids, starts, taken, row_ids, one.rows, BLOCK)

    def _activate(self, source: Any, to: Tensors, columns: int, gate: str, kind: str, places: Any) -> None:
        """Fills A of a GEMM. places: the rows of sorted tensors, of which padding is left out."""
        from gemm_tuner.moe import whole_call_kernels as kernels

        one = self.problem
        block = one.block_shape[1] if one.scaling == "block" else 1 << (columns - 1).bit_length()
        scaling = "none" if to.a_scale is None else "given" if one.scaling == "tensor" else "made"
        groups = -(-columns // block)
        kernels.activate[(to.a.shape[0], groups)](
            source, to.a, to.a_scale, places, columns, groups, one.rows, gate, kind, scaling, LARGEST[one.fp8], block
        )


def made(workload: MoeWorkload, script: ModuleType, config: dict[str, Any], operands: MoeOperands) -> WholeCall:
    """A call of a configuration on operands, whose activations and results it has for itself."""
    import torch

    one = operands.problem
    x, gemms = own_tensors(operands)
    block_m = int(config["BLOCK_SIZE_M"])
    row_ids, owners, total = (None if t is None else t.clone() for t in operands.alignment(block_m))
    mine = replace(operands, gemms=gemms, aligned={block_m: (row_ids, owners, total)}, placed={}, results={})
    by = of_problem(one).buckets(one)
    ids = torch.from_numpy(by.of_ids(operands.ids, one.E).reshape(-1).copy()).to(x.device)
    counts = torch.zeros(3, by.count, dtype=torch.int32, device=x.device)
    launches = workload.launches(script, config, one, mine, None, processors(x.device.type))
    out = torch.empty(one.M, one.K, dtype=gemms[DOWN].c.dtype, device=x.device)
    assert extent(one, UP).rows_a == one.M
    tensors, is_sorted = mine.of_config(config), sides(config, UP).c_sorted
    return WholeCall(one, x, tensors, is_sorted, out, ids, (row_ids, owners, total), launches, block_m, counts)


def own_tensors(operands: MoeOperands) -> tuple[Any, dict[str, Gemm]]:
    """The tokens of a call, and its GEMMs."""
    import torch

    one, gemms = operands.problem, operands.gemms
    x = gemms[UP].a if one.dtype != "fp8_w8a8" else gemms[UP].a.float().to(getattr(torch, DTYPES[one.out].torch_name))
    x = x.to(gemms[UP].c.dtype)

    def own(part: str) -> Gemm:
        given = gemms[part]
        scale = None if given.a_scale is None else given.a_scale.clone()
        a = given.a if part == UP and one.dtype != "fp8_w8a8" else torch.empty_like(given.a)
        return replace(given, a=a, c=torch.empty_like(given.c), a_scale=scale)

    return x, {part: own(part) for part in (UP, DOWN)}


def captured(call: WholeCall) -> Callable[[], None]:
    """The call as a CUDA graph, after it ran twice: started at once, whatever the host needs for each kernel. Graphs
    hold addresses, not tensors, so what is returned keeps the call, and with it its memory."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call.run()
        call.run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call.run()
    return partial(_replayed, graph, call)


def _replayed(graph: Any, call: WholeCall) -> None:
    graph.replay()
