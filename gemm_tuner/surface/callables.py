"""``gt.callables``: a function that tunes itself for what it is called with, and keeps what it found and compiled."""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.store.run_folder import DEFAULT_OUTPUT_DIR
from gemm_tuner.surface.clocks import Clock, UserClock
from gemm_tuner.surface.records import Call, Check, Config, Effort, Tuned
from gemm_tuner.surface.tuner import tune_callables

Space = Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]]
Derived = Mapping[str, Callable[..., Any]]
# A benchmark of the user's repeats and averages as it likes: its number is taken once.
BY_USER = Effort(warmup=1, screen_calls=1, rounds=0, early_stop_ratio=0)


@dataclass(frozen=True, slots=True)
class KeyValidation:
    """What a shared key costs: a call whose key was known, tuned for itself.

    us: of the configuration that the key gave; best_us: of the best one for this very call. Both are of one finals.
    """

    key: Hashable
    call: Hashable
    config: Config
    best: Config
    us: float
    best_us: float

    @property
    def loss_pct(self) -> float:
        return 100 * (self.us / self.best_us - 1)


def callables(
    build: Callable[..., Any],
    space: Space,
    *,
    run: Callable[..., Any] | None = None,
    derived: Derived | None = None,
    benchmark: Callable[[Callable[[], Any]], float] | None = None,
    benchmark_unit: str = "us",
    key: Callable[..., Hashable] | None = None,
    validate_key: int = 0,
    compile_key: Callable[..., Hashable] | None = None,
    reference: Callable[..., Any] | None = None,
    outputs: Callable[..., Sequence[Any]] | None = None,
    restore: Callable[..., Any] | None = None,
    rtol: float = 1e-2,
    atol: float = 1e-2,
    name: str = "",
    clock: str | Clock = "auto",
    effort: Effort | None = None,
    output_dir: Path | str | None = DEFAULT_OUTPUT_DIR,
) -> Callables:
    """A function that finds its fastest right configuration when it is called, and launches it from then on.

    build:     build(config), or build(config, *args) where its parameters take that, compiles a configuration: it
               returns what is launched, ``kernel(*args)``. run: run(kernel, *args) in the place of that.
    space:     values by name, all combinations of which are tried; or the configurations themselves.
    derived:   values that follow from a configuration, or from it and the device: f(config) or f(config, device). They
               are in the configuration that ``build`` gets, and in its row.
    benchmark: a function of yours that takes a function without arguments and returns its time, in ``benchmark_unit``
               (s, ms, us, ns); its number is what counts, once a configuration, and rows say ``method: user``.
    key:       of *args: calls of one key share a configuration. By default types and shapes.
    validate_key: so many calls whose key is known and whose types and shapes are not are tuned for themselves;
               ``validations`` says what the key cost.
    compile_key: of (config, *args): what is compiled once. By default the configuration and the types of args, and
               their shapes where ``build`` takes them.
    reference: of *args: the expected outputs. outputs: of *args: tensors that a call writes, where it returns none.
    restore:   of *args: runs before each call, outside of its time.
    """
    return Callables(
        build=build,
        configs=tuple(combinations(space)),
        run=run,
        derived=dict(derived or {}),
        clock=clock if benchmark is None else UserClock(benchmark, benchmark_unit),
        key=key or signature,
        validate_key=validate_key,
        compile_key=compile_key,
        reference=reference,
        outputs=outputs,
        restore=restore,
        tolerance=(rtol, atol),
        name=name or getattr(build, "__name__", "callables"),
        effort=effort or (Effort() if benchmark is None else BY_USER),
        output_dir=output_dir,
    )


def combinations(space: Space) -> list[Config]:
    """All combinations in the order of the names, or the list itself. Raises UserError for an empty one."""
    if isinstance(space, Mapping):
        values = [list(value) if not isinstance(value, (str, bytes)) else [value] for value in space.values()]
        found = [dict(zip(space, one, strict=True)) for one in itertools.product(*values)]
    else:
        found = [dict(config) for config in space]
    if not found:
        raise UserError("No configurations to tune", where="space", accepted="values by name, or a list of dicts")
    return found


def signature(*args: Any) -> Hashable:
    """Types and shapes of tensors and arrays, other values as they are."""
    return tuple((*_type_of(arg), tuple(getattr(arg, "shape", ()))) for arg in args)


def types(*args: Any) -> Hashable:
    """As ``signature``, without shapes."""
    return tuple(_type_of(arg) for arg in args)


def _type_of(arg: Any) -> tuple[Hashable, ...]:
    if hasattr(arg, "dtype") and hasattr(arg, "shape"):
        return (str(arg.dtype),)
    return type(arg).__name__, _hashable(arg)


@dataclass
class Callables:
    """Made by ``callables``. found: by key. compiled: what ``build`` gave, by compile key.

    tunings, compiles: how often it tuned, and called ``build``.
    """

    build: Callable[..., Any]
    configs: tuple[Config, ...]
    run: Callable[..., Any] | None
    derived: dict[str, Callable[..., Any]]
    clock: str | Clock
    key: Callable[..., Hashable]
    validate_key: int
    compile_key: Callable[..., Hashable] | None
    reference: Callable[..., Any] | None
    outputs: Callable[..., Sequence[Any]] | None
    restore: Callable[..., Any] | None
    tolerance: tuple[float, float]
    name: str
    effort: Effort
    output_dir: Path | str | None
    found: dict[Hashable, Tuned] = field(default_factory=dict)
    compiled: dict[Hashable, Any] = field(default_factory=dict)
    validations: list[KeyValidation] = field(default_factory=list)
    tunings: int = 0
    compiles: int = 0
    _completed: dict[int, Config] = field(default_factory=dict)
    _seen: set[Hashable] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __call__(self, *args: Any) -> Any:
        """Launches the best configuration of the key of these arguments; tunes first where there is none yet, once
        whatever threads call.

        Raises NoBestKernel, and what the kernel raises.
        """
        return self._launch(self._kernel(self.tune(*args).config, args), args)

    def best(self, *args: Any) -> Any:
        """What ``build`` gave for the best configuration: the compiled kernel. Raises NoBestKernel."""
        return self._kernel(self.tune(*args).config, args)

    def tune(self, *args: Any) -> Tuned:
        """What is known for the key of these arguments; tunes where nothing is. Raises NoBestKernel."""
        key, call = self.key(*args), signature(*args)
        with self._lock:
            if key not in self.found:
                tuned = self._tuned(args, {})
                _ = tuned.winner
                self.found[key] = tuned
            elif call not in self._seen and len(self.validations) < self.validate_key:
                self._validate(key, call, args)
            self._seen.add(call)
            return self.found[key]

    def _validate(self, key: Hashable, call: Hashable, args: tuple[Any, ...]) -> None:
        shared = self.found[key].config
        own = self._tuned(args, {"of the key": self._call(shared, args)})
        us = next(row.us for row in own.rows if row.baseline)
        if us is not None and own.best is not None:
            self.validations.append(KeyValidation(key, call, shared, own.config, us, own.latency_us))

    def _tuned(self, args: tuple[Any, ...], baselines: Mapping[str, Call]) -> Tuned:
        self.tunings += 1
        reference, (rtol, atol) = self.reference, self.tolerance
        expected = None if reference is None else lambda: reference(*args)
        return tune_callables(
            [self.complete(number) for number in range(len(self.configs))],
            lambda config: self._call(config, args),
            name=self.name,
            check=Check(expected, rtol, atol),
            clock=self.clock,
            baselines=baselines,
            effort=replace(self.effort, rounds=max(self.effort.rounds, len(baselines))),
            output_dir=self.output_dir,
        )

    def complete(self, number: int) -> Config:
        """A configuration with its derived values, which are computed once. Raises UserError where that fails."""
        if number not in self._completed:
            config = dict(self.configs[number])
            for name, function in self.derived.items():
                try:
                    config[name] = function(config, *self._device_for(function))
                except Exception as error:
                    what = f"derived value {name} raised {type(error).__name__}: {error}"
                    raise UserError(what, where=str(self.configs[number])) from error
            self._completed[number] = config
        return self._completed[number]

    def _device_for(self, function: Callable[..., Any]) -> tuple[Any, ...]:
        """The device, where the function takes a second parameter."""
        if not takes(function, 2):
            return ()
        from gemm_tuner.surface.device import current

        return (current(),)

    def _call(self, config: Config, args: tuple[Any, ...]) -> Call:
        kernel, restore = self._kernel(config, args), self.restore
        return Call(
            run=lambda: self._launch(kernel, args),
            outputs=self.outputs(*args) if self.outputs else (),
            before=None if restore is None else lambda: restore(*args),
            kernel=kernel,
        )

    def _launch(self, kernel: Any, args: tuple[Any, ...]) -> Any:
        return kernel(*args) if self.run is None else self.run(kernel, *args)

    def _kernel(self, config: Config, args: tuple[Any, ...]) -> Any:
        """What ``build`` makes of a configuration, from memory where its compile key is known."""
        takes_args = bool(args) and takes(self.build, 1 + len(args))
        if self.compile_key is not None:
            key = self.compile_key(config, *args)
        else:
            key = (_frozen(config), signature(*args) if takes_args else types(*args))
        if key not in self.compiled:
            self.compiles += 1
            self.compiled[key] = self.build(config, *args) if takes_args else self.build(config)
        return self.compiled[key]


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many positional arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except (TypeError, ValueError):
        return False
    return True


def _frozen(config: Mapping[str, Any]) -> Hashable:
    return tuple((name, type(value).__name__, _hashable(value)) for name, value in config.items())


def _hashable(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    found: Hashable = value
    return found
