"""y[r] = sum of row r of x, both float32: the problem, and what ``core.workload.Workload`` asks of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from gemm_tuner.core.records import Config, Device, Problem, Verdict
from gemm_tuner.core.workload import Launch, launch_all
from gemm_tuner.space.plain_workload import PlainWorkload

HERE = Path(__file__).parent
LARGEST = 7  # sums of up to 2**21 integers between -7 and 7 are exact in float32, in any order


@dataclass(frozen=True, slots=True)
class RowSumProblem:
    kind: ClassVar[str] = "row_sum"
    rate_key: ClassVar[str] = ""
    signature: ClassVar[str] = "fp32"
    rows: int
    columns: int

    @property
    def key(self) -> str:
        return f"row_sum_{self.rows}x{self.columns}"

    @property
    def subject(self) -> str:
        return self.kind

    @property
    def shape(self) -> str:
        return f"{self.rows} x {self.columns}"

    @property
    def flops(self) -> float:
        return float(self.rows * self.columns)

    @property
    def bytes_moved(self) -> float:
        return 4.0 * self.rows * (self.columns + 1)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class Operands:
    x: Any
    y: Any


class RowSumWorkload(PlainWorkload):
    kind = RowSumProblem.kind
    language = "c"
    baseline_name = "numpy.sum"
    problem_keys = ("rows", "columns")
    templates_dir = HERE / "templates"
    rules_dir = HERE / "rules"

    def problem_from_dict(self, row: Mapping[str, Any]) -> RowSumProblem:
        if row.keys() != {"rows", "columns"} or any(type(n) is not int or not 0 < n < 2**20 for n in row.values()):
            raise ValueError("a row_sum has rows and columns, positive integers below 2^20")
        return RowSumProblem(**row)

    def template_values(self, problem: Problem, configs: Sequence[Config]) -> dict[str, Any]:
        return super().template_values(RowSumProblem(0, 0), configs)

    def compile_calls(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, blank: Callable[[str, int], Any]
    ) -> list[Launch]:
        return self.launches(script, config, problem, Operands(None, None), None, 1)

    def operands(self, problem: Problem, rotating_bytes: int, init_type: str, seed: int, device: str) -> list[Operands]:
        size = of(problem).rows, of(problem).columns
        x = np.random.default_rng(seed).integers(-LARGEST, LARGEST + 1, size).astype(np.float32)
        copies = max(1, int(rotating_bytes // problem.bytes_moved))
        return [Operands(x.copy(), np.full(size[0], np.nan, np.float32)) for _ in range(copies)]

    def launches(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, operands: Any, scratch: Any, num_sms: int
    ) -> list[Launch]:
        calls: list[Launch] = script.calls(config, (of(problem).rows, of(problem).columns), operands)
        return calls

    def baseline_call(self, problem: Problem, operands: Any) -> Callable[[], Any]:
        return lambda: np.sum(operands.x, axis=1, out=operands.y)

    def check_problems(
        self, problem: Problem, config: dict[str, Any], *, descriptors: bool, interpreted: bool
    ) -> tuple[Problem, ...]:
        """The tuned size, and one whose rows end within a step of the loop."""
        return problem, replace(of(problem), rows=3, columns=4 * config["PARTS"] + 1)

    def check(self, script: ModuleType, problem: Problem, name: str, seed: int, device: str) -> Verdict:
        """All sums of the operands are exact: compared for equality."""
        (operands,) = self.operands(problem, 0, "", seed, device)
        launch_all(self.launches(script, script.CONFIGS[name], problem, operands, None, 1))
        expected = operands.x.sum(axis=1, dtype=np.float64)
        error = np.nan_to_num(np.abs(operands.y - expected), nan=np.inf)
        worst = int(error.argmax())
        ok = not error.any()
        text = "" if ok else f"y[{worst}] is {operands.y[worst]:.6g}, not {expected[worst]:.6g}"
        return Verdict(problem, name, ok, float(error.max()), 0.0 if ok else np.inf, (worst, 0), text)

    def predict_us(self, columns: Any, problem: Problem, device: Device) -> Any:
        """Memory time, longer where few additions run at once."""
        return self.roofline_us(problem, device) * (1 + 1 / columns.PARTS)

    def roofline_us(self, problem: Problem, device: Device) -> float:
        return problem.bytes_moved / device.dram_gbps / 1e3

    def features(self, candidates: Any, problem: Problem, device: Device, families: Sequence[str]) -> Any:
        return candidates[["PARTS", "predicted_us"]].to_numpy(np.float64)


def of(problem: Problem) -> RowSumProblem:
    assert isinstance(problem, RowSumProblem)
    return problem


WORKLOAD = RowSumWorkload()
