"""Records the launches of host code instead of (or in addition to) executing them. Needs Triton.

Host code launches kernels through ``JITFunction.run``, often via ``Autotuner.run`` and ``Heuristics.run``. These are
replaced by functions that give the tuned kernel the configuration being tried instead of letting triton.autotune time
its own; heuristics still apply. The same is done in Triton's interpreter.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gemm_tuner.core.workload import Launch
from gemm_tuner.system.replaced import replaced

COPIED = ("version", "do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline", "launch_metadata")
HASH_DIGITS = 10

Before = Callable[[Any, Mapping[str, Any]], None]


class Recorder:
    """Records the kernels of one call of a host function.

    tuned:    the function of the tuned kernel, without decorators.
    chosen:   parameters and launch options for it, which override those of the host function and triton.autotune.
    runs:     whether the kernels are also executed.
    copied:   copies a tensor. result: makes what a launch returns instead of a compiled kernel, from the kernel's name.
    before:   called with the kernel and the arguments of each launch, by name, before it runs.
    reset, restore: parameters of the tuned kernel whose tensors are zeroed, or restored to their present values, before
              each later call; reset_to_zero and restore_value of any kernel's triton.autotune are added.
    launches: in the order of the host code, each kernel with its own symbol.
    tuned_at: the indices of launches of the tuned kernel.
    listed:   the configurations that its triton.autotune has for these arguments; None without triton.autotune.
    """

    def __init__(
        self,
        tuned: Any,
        chosen: Mapping[str, Any],
        *,
        runs: bool,
        copied: Callable[[Any], Any],
        result: Callable[[str], Any],
        before: Before | None = None,
        reset: tuple[str, ...] = (),
        restore: tuple[str, ...] = (),
    ) -> None:
        self._tuned, self._chosen, self._runs, self._before = tuned, dict(chosen), runs, before
        self._copied, self._result = copied, result
        self.launches: list[Launch] = []
        self.tuned_at: list[int] = []
        self.listed: list[dict[str, Any]] | None = None
        self._named: dict[tuple[int, str], Any] = {}
        self._reset, self._restore = reset, restore
        self._zeroed: list[Any] = []
        self._kept: list[tuple[Any, Any]] = []

    def tuned_arguments(self) -> dict[str, Any]:
        """The arguments of the first launch of the tuned kernel, by name."""
        _, kernel, _, args, kwargs = self.launches[self.tuned_at[0]]
        return {**defaults_of(kernel), **dict(zip(kernel.arg_names, args, strict=False)), **kwargs}

    def ready(self) -> None:
        """Prepares a call of the recorded launches: restores tensors that kernels accumulate into or modify in
        place."""
        for tensor in self._zeroed:
            tensor.zero_()
        for tensor, values in self._kept:
            tensor.copy_(values)

    @property
    def readied(self) -> list[Any]:
        """The tensors that ``ready`` changes."""
        return [*self._zeroed, *(tensor for tensor, _ in self._kept)]

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """A context in which the launches of this process are recorded."""
        from triton.runtime import autotuner, jit
        from triton.runtime.interpreter import InterpretedFunction

        autotuned, with_heuristics = self._autotuned, self._with_heuristics(autotuner.Heuristics.run)
        with contextlib.ExitStack() as stack:
            for owner, run in (
                (jit.JITFunction, self._launched(jit.JITFunction.run)),
                (InterpretedFunction, self._launched(InterpretedFunction.run)),
                (autotuner.Autotuner, lambda tuner, *args, **kwargs: autotuned(tuner, args, kwargs)),
                (autotuner.Heuristics, with_heuristics),
            ):
                stack.enter_context(replaced(owner, "run", run))
            yield

    def _is_tuned(self, kernel: Any) -> bool:
        return function_of(kernel) is self._tuned

    def _launched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if self._is_tuned(kernel):
                args, kwargs = given(kernel.arg_names, self._chosen, args, kwargs)
            arguments = {**defaults_of(kernel), **dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
            size = tuple(grid(arguments) if callable(grid) else grid)
            if not warmup and all(int(one) > 0 for one in size):
                if self._is_tuned(kernel):
                    self.tuned_at.append(len(self.launches))
                    self._note(arguments, self._reset, self._restore)
                symbol, own = self._own(kernel, arguments)
                self.launches.append((symbol, own, size, args, kwargs))
                if self._before is not None:
                    self._before(kernel, arguments)
                if self._runs:
                    original(own, *args, grid=size, warmup=False, **kwargs)
            return self._result(kernel.__name__)

        return run

    def _note(self, arguments: Mapping[str, Any], reset: Iterable[str], restore: Iterable[str]) -> None:
        """Records tensors to reset or restore, at their first occurrence."""
        seen = self.readied
        for name in (*reset, *restore):
            tensor = arguments.get(name)
            if tensor is None or any(tensor is one for one in seen):
                continue
            if name in reset:
                self._zeroed.append(tensor)
            else:
                self._kept.append((tensor, self._copied(tensor)))

    def _autotuned(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Replaces ``Autotuner.run`` without timing: uses the configuration being tried, or, for kernels other than the
        tuned one, the first configuration of their list."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        try:
            left = tuner.prune_configs(kwargs)
            config = left[0]
            if self._is_tuned(tuner):
                if self.listed is None:
                    self.listed = [one.all_kwargs() for one in left]
                config = self._config_of(tuner, config)
            self._note({**tuner.nargs, **kwargs}, tuner.reset_to_zero, tuner.restore_value)
            if config.pre_hook is not None:
                config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
            return tuner.fn.run(*args, **{**kwargs, **config.all_kwargs()})
        finally:
            tuner.nargs = None

    def _config_of(self, tuner: Any, first: Any) -> Any:
        """The configuration in the kernel's own list with the chosen values, else a copy of the first with these
        values."""
        import triton

        def fits(config: Any) -> bool:
            return all(config.all_kwargs().get(name, value) == value for name, value in self._chosen.items())

        for config in (first, *tuner.configs):
            if fits(config):
                return config
        names = {"num_warps", "num_stages", "num_ctas", "maxnreg"} & (first.all_kwargs().keys() | self._chosen.keys())
        both = {**first.all_kwargs(), **{name: self._chosen[name] for name in self._chosen}}
        values = {name: both[name] for name in first.kwargs}
        return triton.Config(values, pre_hook=first.pre_hook, **{name: both[name] for name in names})

    def _with_heuristics(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Replaces ``Heuristics.run``, so that heuristics see the chosen values."""

        def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_tuned(kernel):
                args, kwargs = given(kernel.arg_names, self._chosen, args, kwargs)
            return original(kernel, *args, **kwargs)

        return run

    def _own(self, kernel: Any, arguments: Mapping[str, Any]) -> tuple[str, Any]:
        """(symbol of a launch, the kernel with this symbol). The symbol depends on the constants only, so launches that
        compile to the same kernel share it, whatever configuration they belong to."""
        constants = {name: value for name, value in arguments.items() if is_constant(kernel, name)}
        text = repr(sorted((name, text_of(value)) for name, value in constants.items()))
        module = getattr(kernel.fn, "__module__", "")
        digest = hashlib.sha256(f"{module} {text}".encode()).hexdigest()[:HASH_DIGITS]
        symbol = f"{kernel.__name__}__{digest}"
        if (id(kernel), symbol) not in self._named:
            self._named[id(kernel), symbol] = named(kernel, symbol)
        return symbol, self._named[id(kernel), symbol]


def function_of(kernel: Any) -> Any:
    """The Python function under triton.jit, autotune and heuristics."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def defaults_of(kernel: Any) -> dict[str, Any]:
    found = inspect.signature(kernel.fn).parameters.values()
    return {one.name: one.default for one in found if one.default is not one.empty}


def given(
    names: list[str], chosen: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(positional, keyword) arguments, with chosen values replacing existing ones."""
    positional = names[: len(args)]
    placed = tuple(chosen.get(name, value) for name, value in zip(positional, args, strict=False))
    return placed, {**kwargs, **{name: value for name, value in chosen.items() if name not in positional}}


def is_constant(kernel: Any, name: str) -> bool:
    """Whether a launch argument is a constexpr or an option of the launch."""
    names = list(kernel.arg_names)
    return name not in names or names.index(name) in getattr(kernel, "constexprs", ())


def text_of(value: Any) -> str:
    """A constant as text that is the same in every process; functions and types by their names."""
    name = getattr(value, "__qualname__", "") or getattr(getattr(value, "fn", None), "__qualname__", "")
    return name or repr(value)


def named(kernel: Any, symbol: str) -> Any:
    """A copy of the kernel with its own symbol; in Triton's interpreter, which has no symbols, the kernel itself."""
    from triton.runtime import JITFunction

    if not isinstance(kernel, JITFunction):
        return kernel
    of = {name: getattr(kernel, name) for name in COPIED}
    own = type(kernel)(kernel.fn, repr=lambda specialization: symbol, **of)
    own.pre_run_hooks = kernel.pre_run_hooks
    return own
