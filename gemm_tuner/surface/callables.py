"""``gt.callables``: makes a function that tunes itself for its arguments, and caches results and compiled kernels."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.store.run_folder import DEFAULT_OUTPUT_DIR
from gemm_tuner.surface.aiter import name_of
from gemm_tuner.surface.call_parts import CallParts, described, rebuilt, takes
from gemm_tuner.surface.clocks import Clock, UserClock
from gemm_tuner.surface.records import Call, Check, Config, Effort, Tuned
from gemm_tuner.surface.signatures import frozen, signature, types
from gemm_tuner.surface.tuner import tune_callables

Space = Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]]
Derived = Mapping[str, Callable[..., Any]]
# A user's benchmark does its own repetitions, so it is called once per configuration.
BY_USER = Effort(warmup=1, screen_calls=1, rounds=0, early_stop_ratio=0)


@dataclass(frozen=True, slots=True)
class KeyValidation:
    """The cost of sharing a key, from tuning a call whose key was already known.

    us: time of the key's configuration. best_us: time of the best one for this call. Both are from one run.
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
    repeats: int = 2,
    name: str = "",
    clock: str | Clock = "auto",
    effort: Effort | None = None,
    profiler: str = "",
    seed: int = 0,
    output_dir: Path | str | None = DEFAULT_OUTPUT_DIR,
) -> Callables:
    """Makes a function that finds its fastest correct configuration at its first call, and launches it from then on.

    build:     build(config), or build(config, *args) if its parameters allow that: compiles a configuration and returns
               a kernel, which is launched by ``kernel(*args)``.
    run:       run(kernel, *args), to launch differently.
    space:     values by name, of which all combinations are tried; or a list of configurations.
    derived:   values computed by f(config) or f(config, device). They are added to the configuration that ``build``
               gets, and to its row.
    benchmark: a function that takes a function without arguments and returns its time in ``benchmark_unit`` (s, ms, us,
               ns). It is called once per configuration, and rows have ``method: user``.
    key:       key(*args): calls with equal keys share a configuration. Default: types and shapes.
    validate_key: tune this many calls that have a known key but new types and shapes; ``validations`` then has the cost
               of sharing the key.
    compile_key: compile_key(config, *args): configurations with equal keys are compiled once. Default: the
                 configuration,
               the types of args, and their shapes if ``build`` takes them.
    reference: reference(*args) returns the expected outputs. outputs: outputs(*args) returns the tensors that a call
               writes, if it returns none.
    restore:   restore(*args) is called before each call, outside of the timed interval, for kernels that change inputs.
    repeats:   this many additional calls must give the same bits; use 0 for kernels with a nondeterministic order of
               sums.
    profiler:  as for ``tune_callables``; another process must be able to import all functions. It recreates tensors and
               arrays of floats from types and shapes, with normal random numbers.
    """
    if profiler and benchmark is not None:
        raise UserError("a benchmark of yours and a profiler are given", where="profiler=", accepted="one of them")
    return Callables(
        parts=CallParts(build, run, reference, outputs, restore, {"rtol": rtol, "atol": atol, "repeats": repeats}),
        configs=tuple(combinations(space)),
        derived=dict(derived or {}),
        clock=clock if benchmark is None else UserClock(benchmark, benchmark_unit),
        key=key or signature,
        validate_key=validate_key,
        compile_key=compile_key,
        name=name or name_of(build),
        effort=effort or (Effort() if benchmark is None else BY_USER),
        profiler=profiler,
        seed=seed,
        output_dir=output_dir,
    )


def combinations(space: Space) -> list[Config]:
    """All combinations in the order of the names, or the list itself. Raises UserError if it is empty."""
    if isinstance(space, Mapping):
        values = [list(value) if not isinstance(value, (str, bytes)) else [value] for value in space.values()]
        found = [dict(zip(space, one, strict=True)) for one in itertools.product(*values)]
    else:
        found = [dict(config) for config in space]
    if not found:
        raise UserError("No configurations to tune", where="space", accepted="values by name, or a list of dicts")
    return found


@dataclass
class Callables:
    """Created by ``callables``. found: results by key. compiled: kernels by compile key.

    tunings, compiles: number of tunings, and of calls of ``build``.
    """

    parts: CallParts
    configs: tuple[Config, ...]
    derived: dict[str, Callable[..., Any]]
    clock: str | Clock
    key: Callable[..., Hashable]
    validate_key: int
    compile_key: Callable[..., Hashable] | None
    name: str
    effort: Effort
    profiler: str
    seed: int
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
        """Launches the best configuration for the key of these arguments; the first call with a key tunes.
        Thread-safe.

        Raises NoBestKernel, and what the kernel raises.
        """
        return self.parts.launch(self._kernel(self.tune(*args).config, args), args)

    def best(self, *args: Any) -> Any:
        """The compiled kernel of the best configuration. Raises NoBestKernel."""
        return self._kernel(self.tune(*args).config, args)

    def tune(self, *args: Any) -> Tuned:
        """The result for the key of these arguments; tunes if there is none. Raises NoBestKernel."""
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
        """Tunes a call whose key is known, and compares the key's configuration in the same run."""
        shared = self.found[key].config
        beside = {} if self.profiler else {"of the key": self.parts.call(self._kernel(shared, args), args)}
        own = self._tuned(args, beside)
        us = next((row.us for row in own.rows if row.baseline or (not beside and row.config == shared)), None)
        if us is not None and own.best is not None:
            self.validations.append(KeyValidation(key, call, shared, own.config, us, own.latency_us))

    def _tuned(self, args: tuple[Any, ...], baselines: Mapping[str, Call]) -> Tuned:
        self.tunings += 1
        parts = self.parts
        if self.profiler:
            build: Callable[[Config], Call] = partial(rebuilt, parts.addresses(), dict(parts.limits), described(args))
        else:
            build = partial(self._call, args)
        return tune_callables(
            [self.complete(number) for number in range(len(self.configs))],
            build,
            name=self.name,
            check=Check(None, **parts.limits) if self.profiler else parts.check(args),
            clock=self.clock,
            baselines=baselines,
            effort=replace(self.effort, rounds=max(self.effort.rounds, len(baselines))),
            profiler=self.profiler,
            seed=self.seed,
            output_dir=self.output_dir,
        )

    def complete(self, number: int) -> Config:
        """A configuration with its derived values, which are computed once. Raises UserError if that fails."""
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
        """The device as an argument, if the function takes a second parameter."""
        if not takes(function, 2):
            return ()
        from gemm_tuner.surface.device import current

        return (current(),)

    def _call(self, args: tuple[Any, ...], config: Config) -> Call:
        return self.parts.call(self._kernel(config, args), args)

    def _kernel(self, config: Config, args: tuple[Any, ...]) -> Any:
        """The compiled kernel of a configuration, cached by its compile key."""
        if self.compile_key is not None:
            key = self.compile_key(config, *args)
        else:
            key = (frozen(config), signature(*args) if self.parts.takes_args(args) else types(*args))
        if key not in self.compiled:
            self.compiles += 1
            self.compiled[key] = self.parts.compile(config, args)
        return self.compiled[key]
