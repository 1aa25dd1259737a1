"""``gt.autotune``: a decorator that tunes a function when it is called with a new key."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.store.run_folder import DEFAULT_OUTPUT_DIR
from gemm_tuner.surface import configurations, result_cache
from gemm_tuner.surface.autotune_result import AutotuneResult
from gemm_tuner.surface.call_keys import CallKeys, Key
from gemm_tuner.surface.configurations import Candidate
from gemm_tuner.surface.fingerprints import NoFingerprint
from gemm_tuner.surface.profile_args import DoBench, ProfileArgs
from gemm_tuner.surface.pruning import pruned
from gemm_tuner.surface.results_of_tuning import result_of
from gemm_tuner.surface.supply import TensorSupplyType, given_inputs
from gemm_tuner.surface.tunables import Arguments, Function, Kernel, Tunable, is_jit, name_of
from gemm_tuner.surface.tuning import SideEffects, Tuning


def autotune(
    configs: Any = None,
    key: Key = None,
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: int | None = 25,
    rep: int | None = 100,
    use_cuda_graph: bool = False,
    do_bench: DoBench | None = None,
    cache_results: bool = True,
    *,
    timeout: float = 100,
    supply_type: TensorSupplyType = TensorSupplyType.Auto,
    ref_prog: Callable[..., Any] | None = None,
    supply_prog: Callable[..., Sequence[Any]] | None = None,
    rtol: float = 1e-2,
    atol: float = 1e-2,
    max_mismatched_ratio: float = 0.01,
    skip_check: bool = False,
    manual_check_prog: Callable[..., Any] | None = None,
    cache_input_tensors: bool = False,
    do_not_specialize: Sequence[str] | None = None,
    early_stop: bool = False,
    early_stop_factor: float = 2.0,
    isolate: bool | None = None,
    profiler: str = "",
    output_dir: Path | str | None = DEFAULT_OUTPUT_DIR,
) -> Callable[[Any], Autotuned]:
    """Decorates a @triton.jit kernel, a factory of kernels such as TileLang's, or any function whose tunable parameters
    have defaults. It is tuned once per key, and afterwards called with the best configuration. The keywords are those
    of triton.autotune and tilelang.autotune; see ``ProfileArgs`` for the latter.

    configs: mappings by argument, or triton.Config, as a list, a generator, a function of the call's arguments, or a
             mapping of lists.
    key:     names or expressions of arguments, or a function of them (``CallKeys``).
    prune_configs_by, reset_to_zero, restore_value, pre_hook, post_hook: as in triton.autotune.
    warmup, rep: number of calls. cache_results: keep results for later processes (GEMM_TUNER_CACHE_DIR).
    do_not_specialize: arguments that are not part of the key if ``key`` is not given.
    isolate: first try candidates in other processes, in parallel, each within ``timeout`` seconds: @triton.jit kernels
             are compiled; kernels of factories are built, and launched unless only this process has the inputs (of
             set_autotune_inputs, of a lambda as supply_prog). None: only for TileLang.
    profiler: for factories, such as "nsys": candidates run in other processes, the finals under this profiler.

    Otherwise everything runs in this process, and a configuration that crashes ends the process.
    """
    if is_jit(configs):
        raise UserError("needs configurations", where="gt.autotune", hint="@gt.autotune(configs=...) above the kernel")
    profile = ProfileArgs(
        warmup=25 if warmup is None else warmup, rep=100 if rep is None else rep, timeout=timeout,
        supply_type=supply_type, ref_prog=ref_prog, supply_prog=supply_prog, rtol=rtol, atol=atol,
        max_mismatched_ratio=max_mismatched_ratio, skip_check=skip_check, manual_check_prog=manual_check_prog,
        cache_input_tensors=cache_input_tensors, backend="cudagraph" if use_cuda_graph else "auto",
        early_stop=early_stop, early_stop_factor=early_stop_factor, do_bench=do_bench,
    )  # fmt: skip
    effects = SideEffects(tuple(reset_to_zero or ()), tuple(restore_value or ()), pre_hook, post_hook)

    def decorate(function: Any, *call: Any, **of_call: Any) -> Autotuned:
        if call or of_call or not (callable(function) or is_jit(function)):
            raise UserError("decorates a function", where="gt.autotune", hint="@gt.autotune(configs=...) above it")
        asked = _Asked(configs, profile, effects, prune_configs_by, cache_results, isolate, profiler, output_dir)
        keys = CallKeys(key, _names(function), do_not_specialize or ())
        return Autotuned(function, asked, keys)

    return decorate


def _names(function: Any) -> tuple[str, ...]:
    return (Kernel(function, None, Arguments()) if is_jit(function) else Function(function, Arguments())).parameters


@dataclass(frozen=True)
class _Asked:
    configs: Any
    profile: ProfileArgs
    effects: SideEffects
    prune: Mapping[str, Any] | None
    cache_results: bool
    isolate: bool | None
    profiler: str
    output_dir: Path | str | None


@dataclass(frozen=True)
class _Entry:
    """A tuned key. candidate: the best one. kernel: of a factory; None for functions that do the work themselves."""

    candidate: Candidate
    kernel: Any
    result: AutotuneResult


class Autotuned:
    """A decorated function.

    results: by key. best_config: of the last call. runs: number of tunings in this process.
    """

    autotuned = True

    def __init__(self, function: Any, asked: _Asked, keys: CallKeys) -> None:
        functools.update_wrapper(self, function, updated=())
        self.__name__ = name_of(function)
        self.__wrapped__ = self.fn = function
        self.runs = 0
        self.best_config: dict[str, Any] | None = None
        self._asked, self._keys = asked, keys
        self._entries: dict[Hashable, _Entry] = {}
        self._tunables: frozenset[str] = frozenset()
        self._lock = threading.RLock()
        if is_jit(function):
            self.arg_names = function.arg_names

    @property
    def results(self) -> dict[Hashable, AutotuneResult]:
        return {key: entry.result for key, entry in self._entries.items()}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a factory's best kernel, or the value of a function that does the work itself."""
        if is_jit(self.fn):
            raise UserError("is launched on a grid", where=self.__name__, hint=f"{self.__name__}[grid](...)")
        tunable = Function(self.fn, Arguments(args, kwargs))
        named = tunable.named(tunable.call)
        if named.keys() & self._tunables:  # the caller sets tunable parameters explicitly
            return self.fn(*args, **kwargs)
        key = self._keys.of(named)
        entry = self._entries.get(key)
        if entry is None:
            with self._lock:
                entry = self._entries.get(key) or self._tuned(tunable, key, named)
                if entry is None:
                    return self.fn(*args, **kwargs)
        self.best_config = dict(entry.candidate.values)
        return self.fn(*args, **{**kwargs, **entry.candidate.values}) if entry.kernel is None else entry.kernel

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self.run, grid=grid, warmup=False)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launches the kernel; called by triton.heuristics and other decorators above this one."""
        tunable = Kernel(self.fn, grid, Arguments(args, kwargs))
        named = tunable.named(tunable.call)
        key = self._keys.of(named)
        entry = self._entries.get(key)
        if entry is None:
            with self._lock:
                entry = self._entries.get(key) or self._tuned(tunable, key, named)
        assert entry is not None  # a name in both call and configuration is an error
        self.best_config = dict(entry.candidate.values)
        if entry.candidate.pre_hook:
            entry.candidate.pre_hook({**named, **entry.candidate.values})
        return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs, **entry.candidate.values)

    def _tuned(self, tunable: Kernel | Function, key: Hashable, named: Mapping[str, Any]) -> _Entry | None:
        """Tunes a call with a new key; None if the call itself sets tunable parameters."""
        call = tunable.call
        if all(
            entry.kernel is None for entry in self._entries.values()
        ):  # a factory's may hold what its key leaves out
            for name in self._keys.note_counters(named):
                what = f"{name} grows from call to call, and is no part of the key: key= can name what is"
                warnings.warn(f"{self.__name__}: {what}", stacklevel=3)
                key = self._keys.of(named)
        candidates = configurations.candidates(self._asked.configs, tunable.parameters, call.args, call.kwargs)
        self._tunables |= {name for one in candidates for name in one.values}
        if isinstance(tunable, Function) and named.keys() & self._tunables:
            return None
        candidates = pruned(candidates, self._asked.prune, named, isinstance(tunable, Kernel))
        given = given_inputs()
        kept_as = self._key_on_disk(call, candidates, given)
        kept = result_cache.kept(kept_as, candidates) if kept_as else None
        if kept is not None:
            candidate, result = kept
        else:
            self.runs += 1
            asked = self._asked
            tuning = Tuning(
                tunable, asked.profile, given, asked.effects, asked.output_dir, asked.isolate, asked.profiler
            )
            result = result_of(tuning.tune(candidates), self.fn, call)
            candidate = next(one for one in candidates if dict(one.values) == dict(result.config))
        entry = self._entry(tunable, candidate, result)
        if kept is None and kept_as:
            result_cache.keep(kept_as, entry.result)
        self._entries[key] = entry
        self._keys.after_tuning(named)
        return entry

    def _entry(self, tunable: Tunable, candidate: Candidate, result: AutotuneResult) -> _Entry:
        if isinstance(tunable, Kernel):
            return _Entry(candidate, None, result)
        built = None if result.kernel is not None else tunable.build(candidate)
        kernel = result.kernel if built is None else built.kernel
        is_direct = isinstance(kernel, functools.partial) and kernel.func is self.fn
        return _Entry(candidate, None if is_direct else kernel, replace(result, kernel=kernel))

    def _key_on_disk(self, call: Arguments, candidates: Sequence[Candidate], given: Any) -> str | None:
        """The key of the stored result; None if results are not stored, with a warning unless that was asked for."""
        if not self._asked.cache_results:
            return None
        if result_cache.disabled_by():
            result_cache.warn_if_disabled(self.__name__, stacklevel=4)
            return None
        others = {"given": given, "effects": self._asked.effects, "profiler": self._asked.profiler}
        try:
            return result_cache.key(self.fn, call, candidates, self._asked.profile, others)
        except NoFingerprint as error:
            warnings.warn(f"{self.__name__}: the result is not kept for later processes: {error}", stacklevel=4)
            return None
