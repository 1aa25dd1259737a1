"""The classes behind triton.autotune, for what replaces or imitates it. Triton is imported on demand."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

# (tuner, its own ``run``, positional arguments, keyword arguments) -> what ``run`` returns.
Run = Callable[[Any, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def places() -> list[Any]:
    """The modules that have the attribute triton.autotune; none without triton."""
    try:
        import triton.runtime.autotuner
    except ImportError:
        return []
    return [triton, triton.runtime, triton.runtime.autotuner]


@functools.cache
def class_with(run: Run) -> type[Any]:
    """A subclass of triton's Autotuner with another ``run``. Objects are created as Autotuner and then change their
    class, so that this works with the constructor of any Triton version, and other decorators see the expected
    attributes."""
    from triton.runtime.autotuner import Autotuner

    class OfflineAutotuner(Autotuner):  # type: ignore[misc]
        def run(self, *args: Any, **kwargs: Any) -> Any:
            return run(self, super().run, args, kwargs)

    return OfflineAutotuner


def key_of(names: Sequence[str], of_kernel: Mapping[str, Any]) -> Hashable:
    """The key as in triton: values of the key's arguments, and types of tensors."""
    values = [of_kernel[name] for name in names if name in of_kernel]
    return (*values, *(str(one.dtype) for one in of_kernel.values() if hasattr(one, "dtype")))


def launch(tuner: Any, config: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Launches one configuration, as Autotuner does with the fastest."""
    tuner.best_config = config
    if config.pre_hook is not None:
        config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
    return tuner.fn.run(*args, **kwargs, **config.all_kwargs())


def config_fields() -> set[str]:
    """The fields of this version's triton.Config."""
    from triton import Config

    return set(inspect.signature(Config).parameters)


def config_of(values: Mapping[str, Any], fields: Collection[str], pre_hook: Any = None) -> Any:
    """A triton.Config of parameters and options. fields: the names of options."""
    from triton import Config

    options = {name: value for name, value in values.items() if name in fields}
    kwargs = {name: value for name, value in values.items() if name not in options}
    return Config(kwargs, pre_hook=pre_hook, **options)
