"""The protocol of a kind of problem (GEMM, MoE, ...), and the lookup of an implementation by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from gemm_tuner.core.axes import Axis, OwnSpace
from gemm_tuner.core.entries import Entries
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.judges import Examiner, Jury
from gemm_tuner.core.plugins import find
from gemm_tuner.core.records import Config, Device, Problem, Target, Verdict

# One kernel launch of a call: (symbol, kernel, grid, positional arguments, keyword arguments).
Launch = tuple[str, Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]
# The kind of problems in files that were written before there was a key "kind".
FIRST_KIND = "gemm"
# Other packages register their workloads in this entry point group: ``softmax = package.module``.
ENTRY_POINTS = "gemm_tuner.kinds"


class PreparedLaunches(list[Launch]):
    """The launches of one call.

    ready: called before each call, outside of the timed interval; None for nothing.
    kept:  objects that must live as long as the launches, such as tensors that the launches refer to by address only.
    """

    def __init__(
        self, launches: Iterable[Launch], ready: Callable[[], None] | None = None, kept: Sequence[Any] = ()
    ) -> None:
        super().__init__(launches)
        self.ready, self.kept = ready, kept


def launch_all(launches: Iterable[Launch]) -> None:
    """Launches the kernels of one call without waiting for them."""
    for _, kernel, grid, positional, options in launches:
        kernel[grid](*positional, **options)


class Workload(Protocol):
    """Everything that is specific to one kind of problem. Methods that need torch import it when they are called."""

    kind: str
    # Name of the ``core.language.Language`` of its kernels, except those for which ``language_for`` says otherwise.
    language: str
    # Display name of what ``baseline_call`` calls.
    baseline_name: str
    # Whether ``baseline_call`` returns one for any problem.
    has_baseline_call: bool
    # The flags about operands that ``operands`` ignores, by the name of their argument, with the reason.
    idle_flags: Mapping[str, str]
    # Whether the sets that ``operands`` returns never share a tensor.
    sets_are_apart: bool
    # Keys that identify the problem in an entry of a size file or results file, without ``kind``.
    problem_keys: tuple[str, ...]
    # None: all keys of an entry that are neither ``problem_keys`` nor common to all rows are a configuration's.
    entries: Entries | None
    # Whether ``CompileResult.binary_hash`` covers grids and arguments, too: then no two problems share a binary.
    hashes_launches: bool
    # Whether the user wrote down the configurations, to which heuristics such as the limit on spills do not apply: only
    # some spill in a kernel of few registers, and all fast ones in one of many.
    configs_are_given: bool
    # Searched after --templates, and used in place of the default --rules; None for this package's templates/ and
    # rules/.
    templates_dir: Path | None
    rules_dir: Path | None

    def problem_from_dict(self, row: Mapping[str, Any]) -> Problem:
        """The inverse of ``Problem.to_dict``, without ``kind``. Raises ValueError for an invalid row."""

    def config_from_dict(self, row: Mapping[str, Any]) -> Config:
        """The inverse of ``Config.to_dict``."""

    def row(self, problem: Problem) -> dict[str, Any]:
        """The keys of a results row that identify its problem. Raises ValueError for a problem that could not be read
        back from them."""

    def type_fault(self, problem: Problem, device: Device) -> UserError | None:
        """Why the device cannot compute the problem's element types, and which it can; None when it can."""

    def on_device(self, problems: Sequence[Problem], device: Device) -> list[Problem]:
        """The same problems, completed with facts that need both the device and the user's code. Raises UserError."""

    def language_for(self, family: str) -> str:
        """Name of the language of a family's kernels."""

    def other_languages(self, families: Sequence[str]) -> tuple[str, ...]:
        """The languages of these families (of all families if empty) other than ``language``."""

    def absent(self, families: Iterable[str]) -> dict[str, str]:
        """Those of these families that this machine has no compiler for, each with one line that says what is missing
        and how to get it."""

    # For display.

    # The meanings of the words in ``label_parts`` that are abbreviations.
    label_meanings: Mapping[str, str]
    # What short names of configurations consist of; "" where ``short_config`` shortens none.
    config_legend: str

    def label_parts(self, problem: Problem) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
        """A problem's label: (words before, extents, words after). All problems of a kind have as many words; an unused
        one is ""."""

    def short_config(self, name: str) -> str:
        """A short form of a configuration's name; any other text unchanged."""

    def whole_names(self, short: str) -> tuple[str, ...]:
        """The names that ``short_config`` may have shortened to this; empty where that is unknown."""

    # The search space. Tables of configurations have a column ``family`` and one column per axis.

    def own_space(self, problems: Sequence[Problem], device: Device) -> OwnSpace | None:
        """The space that these problems bring with them; None if it is in space files and rule files."""

    # What the search knows of axes, by name; those that are absent are ``Axis()``.
    search_axes: Mapping[str, Axis]
    # Of how many candidates of a size the guided search times a share, at the most; it still chooses among all.
    most_searched: float

    def compile_work(self, candidates: Any, problem: Problem, target: Target) -> tuple[Any, Any] | None:
        """(kernels, seconds) of a table of configurations, arrays with a number for each row. Rows of this and other
        problems with equal ``kernels`` share a binary; ``seconds`` is about what compiling it takes of a core.
        None: a search does not weigh either."""

    def default_config(self, problem: Problem, device: Device) -> Config | None:
        """The configuration that would be launched without tuning, if known. It is a finalist, it is replaced only by
        a configuration that is faster beyond noise, and its time is the baseline in the results."""

    def can_win(self, problem: Problem, config: Config) -> bool:
        """Whether a configuration can become the problem's row; others are measured beside those that can."""

    def rival_key(self, problem: Problem, config: Config) -> str:
        """For a configuration that cannot win: the key by which a row names the fastest of its sort. Sorts whose times
        are of different work have different keys."""

    def check_axes(self, axes: Any, where: str, device: Device) -> dict[str, tuple[Any, ...]]:
        """Validates the axes of one family of a space file and returns their values. Raises UserError naming the
        axis."""

    def frame(self, families: Mapping[str, Mapping[str, tuple[Any, ...]]]) -> Any:
        """A DataFrame of all combinations of axis values of all families."""

    def configs_of(self, configs: Any) -> list[Config]:
        """The configurations of the rows of a table, in order."""

    def names(self, configs: Any) -> Any:
        """``Config.name`` of each row, as a Series."""

    def recombined(self, problem: Problem, screened: Sequence[tuple[Config, tuple[float, ...]]]) -> list[Config]:
        """Configurations that were not screened but should be finalists, judging by the times of single kernels: for
        example the fastest first kernel of one configuration with the fastest second kernel of another. Deterministic.

        screened: configurations with the time of each kernel of a call, microseconds.
        """

    # Compilation, without torch and without a GPU.

    def template_values(self, problem: Problem, configs: Sequence[Config]) -> dict[str, Any]:
        """Extra variables for the templates of this kind. They must not depend on values that are kernel arguments,
        because problems of one signature share a script."""

    def specialization(self, problem: Problem, config: Config, target: Target) -> str:
        """A name for the binary that this problem needs of this configuration; equal names share one compilation."""

    def loads_by_descriptor(self, config: Config, target: Target) -> bool:
        """Whether the kernel loads through TMA descriptors, whose alignment rules limit the sizes it can be checked
        at."""

    def compile_cost(self, config: Config) -> float:
        """A relative compile time; the most expensive kernels are compiled first."""

    def start_worker(self) -> None:
        """Prepares the calling process, a compile worker, after its language has done so. Time and memory used here
        do not count against the limits of a kernel."""

    def compile_calls(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, blank: Callable[[str, int], Any]
    ) -> list[Launch]:
        """The launches of one call, with placeholders instead of tensors. The main kernel is the one with the symbol
        of the configuration, else the first.

        blank: makes a placeholder from a key of ``core.dtypes`` and a number of elements.
        """

    # In the launcher process.

    def require_memory(self, problem: Problem, rotating_bytes: int, device: str) -> None:
        """Raises MemoryError if the operands will not fit, before torch allocates any."""

    def operands(self, problem: Problem, rotating_bytes: int, init_type: str, seed: int, device: str) -> Sequence[Any]:
        """As many sets of operands as fit into ``rotating_bytes``, at least one; equal seeds give equal values."""

    def scratch(self, script: ModuleType, config: dict[str, Any], problem: Problem, num_sms: int) -> tuple[int, int]:
        """Extra memory of a call: (number of fp32 elements for partial sums, number of int32 locks)."""

    def launches(
        self, script: ModuleType, config: dict[str, Any], problem: Problem, operands: Any, scratch: Any, num_sms: int
    ) -> list[Launch]:
        """The kernels of one call."""

    def before_call(self, problem: Problem, operands: Any) -> Callable[[], None] | None:
        """A function that restores the operands to their present state before each call, outside of the timed
        interval; None if calls do not change them."""

    def baseline_call(self, problem: Problem, operands: Any) -> Callable[[], Any] | None:
        """The call of the vendor library for the same problem; None if there is none."""

    def check_problems(
        self, problem: Problem, config: dict[str, Any], *, descriptors: bool, interpreted: bool
    ) -> tuple[Problem, ...]:
        """The sizes at which a configuration is checked: the tuned size first; small sizes for the interpreter.

        descriptors: the kernel loads through TMA descriptors.
        """

    def check(self, script: ModuleType, problem: Problem, name: str, seed: int, device: str) -> Verdict:
        """Runs one configuration and compares its result with the reference."""

    def examiner(self, problem: Problem, seed: int, device: str) -> Examiner:
        """Gives configurations of one problem the verdicts of ``check``; it may keep what their checks share."""

    def prepare_check(self, problem: Problem, device: str) -> None:
        """Loads what the first ``check`` of such a problem needs besides its kernel, in little time and memory."""

    def derived(self, problem: Problem, config: Config, device: Device) -> Mapping[str, Any]:
        """Values computed from a configuration that its results row shows, by name."""

    def compares_configs(self, problem: Problem) -> bool:
        """Whether there is no reference: configurations are then compared with each other, by a ``jury``."""

    def jury(self, problem: Problem, seed: int, device: str) -> Jury:
        """Compares configurations of one size. Called where ``compares_configs``."""

    # Of finals.

    def files_of(self, problem: Problem) -> tuple[str, ...]:
        """Paths of files that the problem names and its operands are made of: their content is a run's identity, and
        travels to machines of a cluster; read them at ``system.carried_files.path_here``."""

    def calls_of_a_sample(self, problem: Problem) -> int:
        """The number of calls in turn whose mean is one sample: calls of a kind take different operands in turn."""

    def deciding(self, problem: Problem, samples_us: tuple[float, ...]) -> tuple[float, ...]:
        """Those of a finals process's samples, in order, that decide."""

    def found_in_finals(
        self, problem: Problem, times: Sequence[Mapping[str, Sequence[float]]], chosen: str
    ) -> Mapping[str, Any]:
        """What the times of all calls of finals say beside the choice, by name, for the row. times: microseconds by
        finalist, of each process."""

    # Prediction. None where there is no model.

    def predict_us(self, columns: Any, problem: Problem, device: Device) -> Any:
        """Predicted kernel time, microseconds, of each row of ``columns`` (a table of configurations)."""

    def roofline_us(self, problem: Problem, device: Device) -> float | None:
        """Lower bound of the time from the data sheet rates of the device, microseconds."""

    def features(self, candidates: Any, problem: Problem, device: Device, families: Sequence[str]) -> Any:
        """Features for the regression of the search, shape (candidates, features); the columns are the same for every
        problem of a run."""

    def same_launch(self, problem: Problem, config: Config, num_sms: int) -> tuple[str | int, ...]:
        """Everything a launch depends on apart from the machine code; equal for configurations that do the same
        work."""


@lru_cache(maxsize=32)
def workload_of(kind: str) -> Workload:
    """The workload of ``kind``: ``WORKLOAD`` of the module gemm_tuner.<kind>.workload, or of an entry point.

    Raises ValueError for an unknown kind.
    """
    found: Workload = find(f"gemm_tuner.{kind}.workload", "WORKLOAD", ENTRY_POINTS, kind, "kind of problem")
    return found


def problem_from_dict(row: Mapping[str, Any]) -> Problem:
    """The inverse of ``Problem.to_dict``. Raises ValueError for an invalid row; keys of problems are parts of paths."""
    if not isinstance(row, Mapping):
        raise ValueError("is no problem")
    kind = row.get("kind", FIRST_KIND)
    if not isinstance(kind, str):
        raise ValueError(f"its kind is {repr(kind)[:60]}")
    return workload_of(kind).problem_from_dict({key: value for key, value in row.items() if key != "kind"})


def config_from_dict(kind: str, row: Mapping[str, Any]) -> Config:
    """The inverse of ``Config.to_dict`` for a kind of problem."""
    return workload_of(kind).config_from_dict(row)
