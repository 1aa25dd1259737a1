"""The protocol of a kind of problem, and the look-up of its implementation by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.plugins import find
from gemm_tuner.core.records import Config, Device, Problem, Target, Verdict

# (symbol, kernel, grid, positional arguments, keyword arguments) of one kernel of a call.
Launch = tuple[str, Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]
# Of problems that were written before there was more than one kind.
FIRST_KIND = "gemm"
# Packages outside this one name their workloads in this group of entry points: ``softmax = package.module``.
ENTRY_POINTS = "gemm_tuner.kinds"


class PreparedLaunches(list[Launch]):
    """Launches of one call whose operands are its own. ready: what comes before each call and is not in its time.
    kept: what must live as long, such as tensors of which the launches have addresses only."""

    def __init__(
        self, launches: Iterable[Launch], ready: Callable[[], None] | None = None, kept: Sequence[Any] = ()
    ) -> None:
        super().__init__(launches)
        self.ready, self.kept = ready, kept


def launch_all(launches: Iterable[Launch]) -> None:
    """Starts the kernels of one call; does not wait for them."""
    for _, kernel, grid, positional, options in launches:
        kernel[grid](*positional, **options)


OwnRule = tuple[str, str, Callable[[Any, Problem, Device], Any]]


@dataclass(frozen=True)
class OwnSpace:
    """A space that problems bring with them. families: the values of axes by family. rules: (name, reason, predicate)
    of each; the predicate takes columns, problem and device, and says True for what it keeps. heuristics: rules that
    --no_heuristics drops."""

    families: Mapping[str, Mapping[str, Any]]
    rules: tuple[OwnRule, ...]
    heuristics: tuple[OwnRule, ...] = ()


class CallOperands(Protocol):
    """Tensors and factors of one call, as a dataclass: None for those that the problem does not have."""


class Jury(Protocol):
    """Compares the results of configurations with each other."""

    def hear(self, script: ModuleType, name: str) -> None:
        """Runs one configuration. Raises what its launch raises."""

    def verdicts(self) -> Mapping[str, Verdict]:
        """Of all that were heard, by name."""


class Workload(Protocol):
    """Everything specific to one kind of problem. Methods that need torch import it when they are called."""

    kind: str
    # Of its kernels: names the ``core.language.Language``.
    language: str
    # What ``baseline_call`` calls, for people.
    baseline_name: str
    # Whether no two sets of operands share a tensor.
    sets_are_apart: bool
    # Of an entry of a size file or a results file: those that say which problem it is for, without ``kind``.
    problem_keys: tuple[str, ...]
    # Beside --templates, and in place of the default --rules; None for those of this package's templates/ and rules/.
    templates_dir: Path | None
    rules_dir: Path | None

    def problem_from_dict(self, row: Mapping[str, Any]) -> Problem:
        """What ``Problem.to_dict`` gave, without ``kind``. Raises ValueError for a row that no problem is."""

    def config_from_dict(self, row: Mapping[str, Any]) -> Config:
        """What ``Config.to_dict`` gave."""

    def row(self, problem: Problem) -> dict[str, Any]:
        """The keys of a results row that say which problem it is for. Raises ValueError for one that would not read."""

    def type_fault(self, problem: Problem, device: Device) -> UserError | None:
        """Why the architecture cannot compute a problem, with what it can; None when it can."""

    def on_device(self, problems: Sequence[Problem], device: Device) -> list[Problem]:
        """The same problems with what only the device and the user's code together tell. Raises UserError."""

    # The space. Tables have the column family and one an axis.

    def own_space(self, problems: Sequence[Problem], device: Device) -> OwnSpace | None:
        """The space of a run's problems; None where space files and rule files hold it."""

    def default_config(self, problem: Problem, device: Device) -> Config | None:
        """What is launched without tuning, where that is known: it stands in the finals, keeps its place unless it is
        beaten beyond noise, and its time is the one that results are compared with."""

    def check_axes(self, axes: Any, where: str, device: Device) -> dict[str, tuple[Any, ...]]:
        """The values of each axis of a family, as a space file gives them. Raises UserError naming the axis."""

    def frame(self, families: Mapping[str, Mapping[str, tuple[Any, ...]]]) -> Any:
        """All combinations of the axes of all families, as a DataFrame."""

    def configs_of(self, configs: Any) -> list[Config]:
        """The configurations of the rows of such a table, in order."""

    def names(self, configs: Any) -> Any:
        """The names of the rows, as a Series; equal to ``Config.name``."""

    def recombined(self, problem: Problem, screened: Sequence[tuple[Config, tuple[float, ...]]]) -> list[Config]:
        """Configurations that were not screened and that the times of single kernels speak for: they come into the
        finals. screened: configurations with the time of each kernel of a call, microseconds. The same times give the
        same again."""

    # Compiling, without torch and GPU.

    def template_values(self, problem: Problem, configs: Sequence[Config]) -> dict[str, Any]:
        """Further variables for the templates of this kind. They must not depend on what kernels get as arguments:
        problems of one signature share a script."""

    def specialization(self, problem: Problem, config: Config, target: Target) -> str:
        """Names the binary that a problem needs of a configuration; equal names share one compile."""

    def loads_by_descriptor(self, config: Config, target: Target) -> bool:
        """Whether the kernel loads through TMA descriptors, which bind the sizes that it can be checked at."""

    def compile_cost(self, config: Config) -> float:
        """Grows with the time that compiling takes: the most expensive are compiled first."""

    def start_worker(self) -> None:
        """Prepares this process, a compile worker, after its language has: what it takes here counts neither as a
        kernel's time nor as its memory."""

    def compile_calls(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, blank: Callable[[str, int], Any]
    ) -> list[Launch]:
        """The launches of one call with operands that have no memory. The main kernel is the one with the
        symbol of the configuration, or the first.

        blank: stands for a tensor of a type, by its key in ``core.dtypes``, and of so many elements.
        """

    # In the launcher process.

    def require_memory(self, problem: Problem, rotating_bytes: int, device: str) -> None:
        """Raises MemoryError when the operands will not fit, before torch tries to allocate them."""

    def operands(self, problem: Problem, rotating_bytes: int, init_type: str, seed: int, device: str) -> Sequence[Any]:
        """As many sets of operands as fit into ``rotating_bytes``, at least one; a seed gives the same values again."""

    def scratch(self, script: ModuleType, config: dict[str, Any], problem: Problem, num_sms: int) -> tuple[int, int]:
        """(fp32 elements for partial sums, int32 locks) that a call needs in addition to its operands."""

    def launches(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, operands: Any, scratch: Any, num_sms: int
    ) -> list[Launch]:
        """The kernels of one call."""

    def before_call(self, problem: Problem, operands: Any) -> Callable[[], None] | None:
        """What makes these operands ready for the next call, outside of its time, as they are now; None for nothing."""

    def baseline_call(self, problem: Problem, operands: Any) -> Callable[[], Any] | None:
        """The vendor library's call for the same problem, or None where it has none."""

    def check_problems(
        self, problem: Problem, config: dict[str, Any], *, descriptors: bool, interpreted: bool
    ) -> tuple[Problem, ...]:
        """The sizes at which a configuration is checked, the tuned one first; in the interpreter small ones.

        descriptors: its kernel loads through TMA descriptors.
        """

    def check(self, script: ModuleType, problem: Problem, name: str, seed: int, device: str) -> Verdict:
        """Runs one configuration and compares it with the reference."""

    def derived(self, problem: Problem, config: Config, device: Device) -> Mapping[str, Any]:
        """Values that follow from a configuration, by name, for people to see in its row."""

    def compares_configs(self, problem: Problem) -> bool:
        """Whether there is no reference: configurations are then compared with each other, by a ``jury``."""

    def jury(self, problem: Problem, seed: int, device: str) -> Jury:
        """Compares configurations of one size. Called where ``compares_configs``."""

    # Prediction. None where there is no model.

    def predict_us(self, columns: Any, problem: Problem, device: Device) -> Any:
        """Predicted kernel time of each row of ``columns`` (a table of configurations), microseconds."""

    def roofline_us(self, problem: Problem, device: Device) -> float | None:
        """Lower bound of the time by the device's data sheet, microseconds."""

    def features(self, candidates: Any, problem: Problem, device: Device, families: Sequence[str]) -> Any:
        """Shape (candidates, features), for the search's regression; the same columns for every problem of a run."""

    def same_launch(self, problem: Problem, config: Config, num_sms: int) -> tuple[str | int, ...]:
        """What a launch depends on apart from the code; equal for configurations whose programs do the same work."""


@lru_cache(maxsize=32)
def workload_of(kind: str) -> Workload:
    """The workload of a kind: ``WORKLOAD`` of the module gemm_tuner.<kind>.workload, or of an entry point.

    Raises ValueError for a kind that is neither.
    """
    found: Workload = find(f"gemm_tuner.{kind}.workload", "WORKLOAD", ENTRY_POINTS, kind, "kind of problem")
    return found


def problem_from_dict(row: Mapping[str, Any]) -> Problem:
    """What ``Problem.to_dict`` gave. Raises ValueError for a row that no problem is: its name becomes part of paths."""
    if not isinstance(row, Mapping):
        raise ValueError("is no problem")
    kind = row.get("kind", FIRST_KIND)
    if not isinstance(kind, str):
        raise ValueError(f"its kind is {repr(kind)[:60]}")
    return workload_of(kind).problem_from_dict({key: value for key, value in row.items() if key != "kind"})


def config_from_dict(kind: str, row: Mapping[str, Any]) -> Config:
    """What ``Config.to_dict`` of this kind of problem gave."""
    return workload_of(kind).config_from_dict(row)
