"""Common base of workloads whose configurations are ``PlainConfig``s: any axes, with int, bool, word or tuple
values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Config, Device, Problem, Target
from gemm_tuner.core.workload_defaults import WorkloadDefaults
from gemm_tuner.system.documents import show

if TYPE_CHECKING:
    import pandas as pd

FORM = "a list of different integers, of true and false, of words, or of lists of integers"


class PlainWorkload(WorkloadDefaults):
    """Base class of workloads. It implements the space, and defaults for kernels without TMA descriptors, scratch
    memory and their own specialization; a subclass implements the rest of ``core.workload.Workload``."""

    baseline_name = "vendor"

    def language_for(self, family: str) -> str:
        return self.language

    def other_languages(self, families: Sequence[str]) -> tuple[str, ...]:
        return ()

    def absent(self, families: Iterable[str]) -> dict[str, str]:
        return {}

    def config_from_dict(self, row: Mapping[str, Any]) -> PlainConfig:
        return PlainConfig.from_dict(row)

    def check_axes(self, axes: Any, where: str, device: Device) -> dict[str, tuple[Any, ...]]:
        """Raises UserError for an axis without values, with equal values, or with a value of another type."""
        if not isinstance(axes, dict) or not axes:
            raise UserError(f"is {show(axes)}", where=where, accepted="axes, such as {BLOCK_SIZE: [1024, 2048]}")
        return {name: _values(name, values, where) for name, values in axes.items()}

    def frame(self, families: Mapping[str, Mapping[str, tuple[Any, ...]]]) -> pd.DataFrame:
        """All combinations; NaN in the columns of axes that a family does not have."""
        import pandas as pd  # slow to import; processes that compile or launch do not need it

        rows = [
            {"family": family, **dict(zip(axes, values, strict=True))}
            for family, axes in families.items()
            for values in itertools.product(*axes.values())
        ]
        return pd.DataFrame(rows)

    def configs_of(self, configs: pd.DataFrame) -> list[Config]:
        return [*map(_config, configs.to_dict("records"))]

    def names(self, configs: pd.DataFrame) -> pd.Series:
        import pandas as pd

        return pd.Series([config.name for config in self.configs_of(configs)], index=configs.index, dtype=object)

    def template_values(self, problem: Problem, configs: Sequence[Config]) -> dict[str, Any]:
        """p: the problem, of which a template may use only what the signature covers. configs: one tuple per
        configuration, with the values of ``fields``."""
        axes = list(configs[0].options()) if configs else []
        rows = [(one.name, one.kernel_symbol, one.family, *one.options().values()) for one in configs]
        return {"p": problem, "configs": rows, "fields": ("name", "binary", "family", *axes)}

    def row(self, problem: Problem) -> dict[str, Any]:
        return problem.to_dict()

    def type_fault(self, problem: Problem, device: Device) -> UserError | None:
        return None

    def specialization(self, problem: Problem, config: Config, target: Target) -> str:
        return ""

    def loads_by_descriptor(self, config: Config, target: Target) -> bool:
        return False

    def compile_cost(self, config: Config) -> float:
        return 1.0

    def require_memory(self, problem: Problem, rotating_bytes: int, device: str) -> None:
        return None

    def scratch(self, script: ModuleType, config: dict[str, Any], problem: Problem, num_sms: int) -> tuple[int, int]:
        return 0, 0

    def baseline_call(self, problem: Problem, operands: Any) -> Callable[[], Any] | None:
        return None

    def same_launch(self, problem: Problem, config: Config, num_sms: int) -> tuple[str | int, ...]:
        return () if self.hashes_launches else (config.name,)


def _config(row: Mapping[Any, Any]) -> PlainConfig:
    """Without the axes of other families, because of which a column holds NaN, and integers as floats."""
    there = {
        str(axis): value for axis, value in row.items() if axis != "family" and value is not None and value == value
    }
    fields = {axis: int(value) if isinstance(value, float) else value for axis, value in there.items()}
    return PlainConfig(str(row["family"]), tuple(fields.items()))


def _values(name: object, values: object, where: str) -> tuple[Any, ...]:
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,63}", name):
        raise UserError(f"axis {show(name)} is no name", where=where, accepted="letters, digits and _")
    if not isinstance(values, list) or not values:
        raise UserError(f"{name} is {show(values)}", where=where, accepted=FORM)
    found = [tuple(value) if isinstance(value, list) else value for value in values]
    if len({type(value) for value in found}) != 1 or not all(map(_is_value, found)):
        raise UserError(f"{name} is {show(values)}", where=where, accepted=FORM)
    if len(set(found)) < len(found):
        raise UserError(f"{name} holds a value twice", where=where, accepted=FORM)
    return tuple(found)


def _is_value(value: object) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(type(one) is int for one in value)
    return isinstance(value, int) or (isinstance(value, str) and re.fullmatch("[A-Za-z0-9_]{1,64}", value) is not None)
