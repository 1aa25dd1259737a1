"""What ``core.workload.Workload`` asks of a kind of problem, for softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from gemm_tuner.core.records import Config, Device, Problem, Target, Verdict
from gemm_tuner.core.workload import Launch, launch_all
from gemm_tuner.space.plain_workload import PlainWorkload
from softmax_kind.problem import SoftmaxProblem

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Operands:
    """x, y: (rows, columns), contiguous."""

    x: Any
    y: Any


class SoftmaxWorkload(PlainWorkload):
    kind = SoftmaxProblem.kind
    baseline_name = "torch.softmax"
    problem_keys = ("rows", "columns", "dtype")
    templates_dir = HERE / "templates"
    rules_dir = HERE / "rules"

    def problem_from_dict(self, row: Mapping[str, Any]) -> SoftmaxProblem:
        return SoftmaxProblem.from_dict(row)

    def template_values(self, problem: Problem, configs: Sequence[Config]) -> dict[str, Any]:
        return super().template_values(replace(of(problem), rows=0, columns=0), configs)

    def specialization(self, problem: Problem, config: Config, target: Target) -> str:
        """Triton compiles one kernel for a number of columns that 16 divides, one for 1, and one for others."""
        columns = of(problem).columns
        return "1" if columns == 1 else "d" if columns % 16 == 0 else "x"

    def compile_calls(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, blank: Callable[[str, int], Any]
    ) -> list[Launch]:
        count = of(problem).rows * of(problem).columns
        blanks = Operands(blank(of(problem).dtype, count), blank(of(problem).dtype, count))
        return self.launches(script, config, problem, blanks, None, 1)

    def operands(self, problem: Problem, rotating_bytes: int, init_type: str, seed: int, device: str) -> list[Operands]:
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        kind = {"fp32": torch.float32, "fp16": torch.float16}[of(problem).dtype]
        x = torch.randn(of(problem).rows, of(problem).columns, generator=generator, device=device).to(kind)
        return [Operands(x, torch.full_like(x, float("nan")))]

    def launches(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, operands: Any, scratch: Any, num_sms: int
    ) -> list[Launch]:
        calls: list[Launch] = script.calls(config, (of(problem).rows, of(problem).columns), operands)
        return calls

    def baseline_call(self, problem: Problem, operands: Any) -> Callable[[], Any]:
        import torch

        return lambda: torch.softmax(operands.x, dim=-1, out=operands.y)

    def check_problems(
        self, problem: Problem, config: dict[str, Any], *, descriptors: bool, interpreted: bool
    ) -> tuple[Problem, ...]:
        """The tuned size, with few rows in the interpreter, and an odd one."""
        sized = replace(of(problem), rows=min(of(problem).rows, 4)) if interpreted else problem
        return sized, replace(of(problem), rows=3, columns=config["BLOCK_SIZE"] - (0 if config["EXACT"] else 5))

    def check(self, script: ModuleType, problem: Problem, name: str, seed: int, device: str) -> Verdict:
        """Compares with float64. The bound of an element, relative to it, is 32 roundings of fp32, in which
        exponentials and their sum are computed, and two of the type."""
        import torch

        (operands,) = self.operands(problem, 0, "randn", seed, device)
        launch_all(self.launches(script, script.CONFIGS[name], problem, operands, None, 1))
        expected = torch.softmax(operands.x.double(), dim=-1)
        error = (operands.y.double() - expected).abs()
        roundings = 32 * torch.finfo(torch.float32).eps + 2 * torch.finfo(operands.y.dtype).eps
        score = (error / (roundings * expected)).nan_to_num(nan=float("inf"))
        worst = int(score.argmax())
        at, over = divmod(worst, of(problem).columns), float(score.flatten()[worst])
        text = "" if over <= 1 else f"Y[{at[0]}, {at[1]}] is {float(operands.y[at]):.6g}, not {float(expected[at]):.6g}"
        return Verdict(problem, name, over <= 1, float(error.nan_to_num(nan=float("inf")).max()), over, at, text)

    def predict_us(self, columns: Any, problem: Problem, device: Device) -> Any:
        """Memory time, longer by the part of a block that lies beyond a row."""
        return self.roofline_us(problem, device) * np.maximum(1.0, columns.BLOCK_SIZE / of(problem).columns)

    def roofline_us(self, problem: Problem, device: Device) -> float:
        return problem.bytes_moved / device.dram_gbps / 1e3

    def features(self, candidates: Any, problem: Problem, device: Device, families: Sequence[str]) -> Any:
        numbers = candidates[["BLOCK_SIZE", "num_warps", "EXACT", "predicted_us"]]
        return np.column_stack([numbers.to_numpy(np.float64), np.full(len(candidates), np.log2(of(problem).columns))])


def of(problem: Problem) -> SoftmaxProblem:
    assert isinstance(problem, SoftmaxProblem)
    return problem


WORKLOAD = SoftmaxWorkload()
