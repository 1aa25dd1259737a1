"""``gt.install()``: replaces triton.autotune by one that uses tuned results, else a fallback, and never tunes."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.kernels import launch_notes
from gemm_tuner.kernels.kernel_spec import LAUNCH_OPTIONS
from gemm_tuner.kernels.launch_notes import LaunchNote, Memory
from gemm_tuner.languages.kernel_cache import VARIABLE
from gemm_tuner.languages.triton import autotuner
from gemm_tuner.surface.traced_grid import traced
from gemm_tuner.surface.tunables import is_tensor, reached_elements
from gemm_tuner.surface.tuned_results import TunedResults, misfit

NOTES = "launch_notes.jsonl"
ORIGINAL = "_gemm_tuner_original"
# Names of Triton's exceptions at a launch that mean that no kernel ran.
DOES_NOT_FIT = ("OutOfResources", "CompileTimeAssertionFailure", "PTXASError", "CompilationError")
TYPE_OF = {one.torch_name: name for name, one in DTYPES.items()}
# Launch options that notes leave out if all configurations have these values.
USUAL = {"num_ctas": 1}
Fallback = Callable[[Sequence[Any], dict[str, Any]], Sequence[Any]]


@dataclass
class Installed:
    """The state of ``install``. Also a context manager, which uninstalls at its end.

    served, fallbacks: (kernel, key) that got a tuned configuration, and that did not. stale: kernels whose tuned
    configurations do not match their parameters; there is one warning per kernel.
    """

    results: TunedResults
    notes: Path
    online: bool = False
    fallback: Fallback | None = None
    served: set[tuple[str, Hashable]] = field(default_factory=set)
    fallbacks: set[tuple[str, Hashable]] = field(default_factory=set)
    stale: set[str] = field(default_factory=set)

    def uninstall(self) -> None:
        """Restores triton.autotune for new kernels; kernels that are already decorated do not change."""
        for place in autotuner.places():
            original = getattr(place.autotune, ORIGINAL, None)
            if original is not None:
                place.autotune = original

    def __enter__(self) -> Installed:
        return self

    def __exit__(self, *about: object) -> None:
        self.uninstall()

    def note(self, tuner: Any, of_kernel: Mapping[str, Any], grid: Any) -> None:
        """Records a launch. A failure only causes a warning, because it must not prevent the launch."""
        try:
            launch_notes.append(self.notes, _note(tuner, of_kernel, grid))
        except Exception as error:
            warnings.warn(f"{self.notes}: {tuner.base_fn.__name__} is not noted: {error}", stacklevel=2)


def install(
    results: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    notes: str | os.PathLike[str] | None = None,
    *,
    online: bool = False,
    fallback: Fallback | None = None,
    verified: Collection[str] = ("true", "agreed"),
    predicted: bool = False,
) -> Installed:
    """Replaces triton.autotune for kernels that are decorated afterwards, so call it before importing them. A launch
    uses the configuration that a results file has for its key. For an unknown key nothing is tuned: the first
    configuration that can be launched is used, and the launch is recorded for ``tune_gemm.py collect``.

    results:  results files of ``tune_gemm.py kernel``. verified: accepted values of ``verified`` in their rows.
    predicted: use rows that were predicted without a GPU, too, also those checked only in the interpreter. Without it
              they are left out, with a warning.
    notes:    file for recorded launches; default: launch_notes.jsonl in the cache folder (GEMM_TUNER_CACHE_DIR).
    online:   tune unknown keys with triton's own autotuner, in the process.
    fallback: a function that takes the configurations and the arguments by name, and returns configurations in the
              order to try.

    Raises EnvironmentFault without triton, UserError for a file that is not a results file.
    """
    if not autotuner.places():
        raise EnvironmentFault("triton is not installed", where="gt.install", hint="pip install triton")
    paths = [results] if isinstance(results, (str, os.PathLike)) else list(results)
    tuned = TunedResults.read(paths, verified, predicted=predicted)
    if tuned.left_out:
        rows = f"{tuned.left_out} row{'s were' if tuned.left_out > 1 else ' was'} predicted and never run"
        warnings.warn(f"gt.install: {rows}, and left out; predicted=True uses such rows", stacklevel=2)
    installed = Installed(tuned, Path(notes or _default_notes()), online, fallback)
    current = autotuner.places()[0].autotune
    drop_in = _drop_in(getattr(current, ORIGINAL, current), installed)
    for place in autotuner.places():
        place.autotune = drop_in
    return installed


def _default_notes() -> Path:
    asked = os.environ.get(VARIABLE, "")
    return (Path(asked) if asked else platformdirs.user_cache_path("gemm_tuner", appauthor=False)) / NOTES


def _drop_in(original: Callable[..., Any], installed: Installed) -> Callable[..., Any]:
    @functools.wraps(original)
    def autotune(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        decorate = original(*args, **kwargs)

        def decorator(function: Any) -> Any:
            tuner = decorate(function)
            tuner.__class__ = autotuner.class_with(_run)
            tuner.installed, tuner.chosen = installed, {}
            return tuner

        return decorator

    setattr(autotune, ORIGINAL, original)
    return autotune


def _run(tuner: Any, tuned: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In place of ``Autotuner.run``, which is ``tuned``."""
    named = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs}
    of_kernel = {name: one for name, one in named.items() if name in tuner.arg_names}
    key = autotuner.key_of(tuner.keys, of_kernel)
    config = tuner.chosen.get(key)
    if config is None and tuner.installed.online and _served(tuner, of_kernel) is None:
        return tuned(*args, **kwargs)
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    try:
        if config is not None:
            return autotuner.launch(tuner, config, args, kwargs)
        return _first_launch(tuner, key, of_kernel, args, kwargs)
    finally:
        tuner.nargs = {}


def _first_launch(
    tuner: Any, key: Hashable, of_kernel: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Launches the tuned configuration, else the first that fits the GPU; in the latter case records the launch."""
    installed, name = tuner.installed, tuner.base_fn.__name__
    served = _served(tuner, of_kernel)
    configs = list(tuner.prune_configs(kwargs)) if len(tuner.configs) > 1 else list(tuner.configs)
    if served is None and len(tuner.configs) > 1 and not kwargs.get("warmup"):
        if installed.fallback is not None:
            configs = list(installed.fallback(configs, of_kernel))
        installed.fallbacks.add((name, key))
        installed.note(tuner, of_kernel, kwargs.get("grid"))
    fault: Exception | None = None
    for config in ([served] if served is not None else []) + configs:
        try:
            launched = autotuner.launch(tuner, config, args, kwargs)
        except Exception as error:
            if not any(kind.__name__ in DOES_NOT_FIT for kind in type(error).__mro__):
                raise
            if config is served:
                warnings.warn(f"{name}: the tuned configuration {config} does not launch: {error}", stacklevel=5)
            fault = error
            continue
        if config is served:
            installed.served.add((name, key))
        tuner.chosen[key] = config
        return launched
    assert fault is not None
    raise fault


def _served(tuner: Any, of_kernel: Mapping[str, Any]) -> Any:
    """The tuned configuration, with the hook of the kernel's own equal configuration; None if there is none."""
    case, _ = _scalars(tuner, of_kernel)
    types = {f"{name}_dtype": _dtype(one) for name, one in of_kernel.items() if is_tensor(one)}
    # As in triton, arguments that a launch does not have are not part of the key.
    key = [name for name in tuner.keys if name in {*of_kernel, *_defaults(tuner)}]
    found = tuner.installed.results.config(tuner.base_fn.__name__, {**case, **types}, key)
    if found is None or _is_stale(tuner, found, of_kernel):
        return None
    for one in tuner.configs:
        if found.items() <= one.all_kwargs().items():
            return one
    return autotuner.config_of(found, autotuner.config_fields())


def _is_stale(tuner: Any, found: Mapping[str, Any], of_kernel: Mapping[str, Any]) -> bool:
    """Whether the configuration cannot be launched with this kernel; warns once per kernel."""
    options = {*autotuner.config_fields(), *LAUNCH_OPTIONS}
    needed = {name for one in tuner.configs for name in one.kwargs} - options - {*of_kernel, *_defaults(tuner)}
    fault = misfit(found, {*tuner.arg_names, *options}, needed, of_kernel)
    name = tuner.base_fn.__name__
    if fault and name not in tuner.installed.stale:
        tuner.installed.stale.add(name)
        warnings.warn(f"{name}: its tuned configuration does not fit it ({fault}); tune it again", stacklevel=2)
    return bool(fault)


def _defaults(tuner: Any) -> dict[str, Any]:
    parameters = inspect.signature(tuner.base_fn).parameters
    return {name: one.default for name, one in parameters.items() if one.default is not one.empty}


def _note(tuner: Any, of_kernel: Mapping[str, Any], grid: Any) -> LaunchNote:
    configs = [_plain_config(one) for one in tuner.configs]
    params = frozenset(name for one in configs for name in one)
    scalars, unsaid = _scalars(tuner, of_kernel)
    tensors = {name: one for name, one in of_kernel.items() if is_tensor(one)}
    unsaid += [f"{name} is a tensor of {one.dtype}" for name, one in tensors.items() if not _dtype(one)]
    given = {*of_kernel, *scalars, *params}
    unsaid += [f"{name} is set by triton.heuristics" for name in tuner.arg_names if name not in given]
    found = traced(grid, of_kernel, params)
    return LaunchNote(
        kernel=tuner.base_fn.__name__,
        file=os.path.realpath(inspect.getsourcefile(tuner.base_fn) or ""),
        key=list(tuner.keys),
        scalars=scalars,
        tensors={name: Memory(_dtype(one), reached_elements(one)) for name, one in tensors.items()},
        grid=list(found.texts) if found else [],
        constants=list(found.constants) if found else [],
        configs=configs,
        unsaid=unsaid,
        device=_device(),
    )


def _scalars(tuner: Any, of_kernel: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """(arguments that are not tensors, including defaults; those that cannot be written to a file)."""
    of_configs = {name for one in tuner.configs for name in one.all_kwargs()}
    values = {name: one for name, one in {**_defaults(tuner), **of_kernel}.items() if not is_tensor(one)}
    scalars = {name: one for name, one in values.items() if isinstance(one, (bool, int, float, str))}
    others = {name: one for name, one in values.items() if name not in scalars and name not in of_configs}
    unsaid = [f"{name} is {'None' if one is None else 'a ' + type(one).__name__}" for name, one in others.items()]
    return {name: one for name, one in scalars.items() if name not in of_configs}, unsaid


def _plain_config(config: Any) -> dict[str, Any]:
    values = {**config.kwargs, **{name: getattr(config, name, None) for name in LAUNCH_OPTIONS}, **config.kwargs}
    return {name: value for name, value in values.items() if value is not None and USUAL.get(name) != value}


def _dtype(tensor: Any) -> str:
    """A key of DTYPES, "" for other types."""
    return TYPE_OF.get(str(tensor.dtype).removeprefix("torch."), "")


def _device() -> str:
    torch = sys.modules.get("torch")
    return str(torch.cuda.get_device_name()) if torch and torch.cuda.is_available() else "cpu"
