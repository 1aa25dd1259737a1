"""``gt.par_compile``: compiles the configurations of a kernel in parallel processes, for any target, without a GPU."""

from __future__ import annotations

import inspect
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.compile.compile_tasks import tasks_for, write_scripts
from gemm_tuner.core import architecture
from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.language import Artifact, Language, language_of
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import CompileResult, Device, Status
from gemm_tuner.cute.problem import CuteProblem
from gemm_tuner.cute.workload import fault_of
from gemm_tuner.kernels.definitions import definitions, parameters
from gemm_tuner.kernels.kernel_spec import Case, Function, KernelSpec, Tensor
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.languages import kernel_cache
from gemm_tuner.system.documents import show
from gemm_tuner.system.input_files import read_text
from gemm_tuner.system.installation import data_folder
from gemm_tuner.system.values import did_you_mean

FAMILY = "kernel"
PROBLEMS: dict[str, type[KernelProblem]] = {"triton": KernelProblem, "cute": CuteProblem}
MAX_SOURCE_BYTES = 4 * 2**20
TYPE_OF = {name: key for key, one in DTYPES.items() for name in (key, one.torch_name)}


@dataclass(frozen=True, slots=True)
class Compiled:
    """The result of compiling a configuration.

    status:       ok, compile_error, compile_timeout, or out_of_resources (it needs more shared memory than the device
                  has). reason: why it is not ok.
    registers:    per thread. spills: bytes of stack (NVIDIA) or number of registers (AMD). shared_bytes: per block.
    binary_hash:  equal for equal machine code and launch.
    seconds:      compile time. cached: it was compiled before.
    artifact:     the compiled kernel as files by name; None if there is none.
    """

    config: dict[str, Any]
    status: Status
    reason: str = ""
    registers: int = 0
    spills: int = 0
    shared_bytes: int = 0
    binary_hash: str = ""
    seconds: float = 0.0
    cached: bool = False
    artifact: Artifact | None = field(default=None, repr=False)  # machine code

    @property
    def binary(self) -> bytes:
        """The cubin or hsaco; for CuTe DSL a library with the host code. Raises ValueError if it did not compile."""
        files = self.artifact.files if self.artifact else ()
        found = [content for name, content in files if name.endswith((".cubin", ".hsaco", ".so"))]
        if not found:
            raise ValueError(f"there is no machine code: {self.status.value} {self.reason}")
        return found[0]


def par_compile(
    kernel: Any,
    configs: Iterable[Mapping[str, Any]],
    args: Mapping[str, Any] | Sequence[Any] = (),
    target: str = "",
    num_workers: int = 4,
    *,
    limit_s: float = 60.0,
    language: str = "triton",
) -> list[Compiled]:
    """Compiles each configuration; results are in the order of ``configs``.

    kernel:  a @triton.jit function at the top level of a file; triton.autotune and triton.heuristics above it are
             ignored. configs: values of its constexprs and options such as num_warps.
    language: "cute" for CuTe DSL. ``kernel`` is then a function with the parameters of ``configs`` and ``args`` that
             returns (function, arguments, kernel): function and arguments, with placeholders for tensors, are passed to
             cute.compile; kernel is the only @cute.kernel function. It runs in the compile processes, which execute
             only the definitions of its file that it needs.
    args:    the other arguments, by name or in order: tensors (on any device, also meta) and numbers. As in a launch,
             kernels are specialized for values of 1 and multiples of 16.
    target:  such as sm_90 or gfx942; "" for this machine's GPU, or sm_90 without a GPU.
    limit_s: time limit per configuration.

    Raises UserError for a kernel without a file, an argument that is not a parameter, and without configurations.
    """
    from gemm_tuner.surface.device import current, of_arch

    asked = [dict(config) for config in configs]
    if not asked:
        raise UserError("No configurations to tune", where="par_compile")
    device = of_arch(architecture.plain(target)) if target else current()
    if language not in PROBLEMS:
        raise UserError(f"{show(language)} is no language", where="par_compile", accepted=", ".join(PROBLEMS))
    source = function_of(kernel, language)
    given = _arguments(kernel, source, args, asked)
    kind = PROBLEMS[language]
    if language == "cute" and (fault := fault_of(device)):
        raise fault
    wanted = [_wanted(kind, source, given, config, number) for number, config in enumerate(asked)]
    compiler = language_of(language)
    with tempfile.TemporaryDirectory(prefix="gemm_tuner-") as folder:
        cache = kernel_cache.folder(compiler.cache_name(data_folder("templates")), Path(folder))
        results = _results(compiler, device, wanted, Path(folder), cache, min(num_workers, len(asked)), limit_s)
        return [
            _compiled(compiler, cache, config, results[one.kernel_symbol], device)
            for config, (_, one) in zip(asked, wanted, strict=True)
        ]


def _results(
    language: Language,
    device: Device,
    wanted: list[tuple[KernelProblem, PlainConfig]],
    folder: Path,
    cache: Path,
    workers: int,
    limit_s: float,
) -> dict[str, CompileResult]:
    """The compile results by kernel symbol."""
    log = folder / "compile.log"
    scripts = write_scripts(data_folder("templates"), folder, wanted, device.target)
    tasks = tasks_for(wanted, scripts, device.target)
    try:
        with CompilePool(language, device.target, max(1, workers), cache, log, folder, limit_s) as pool:
            return {task.name: result for task, result in pool.run(tasks)}
    except EnvironmentFault as error:
        said = log.read_text("utf-8", "replace").strip().splitlines() if log.is_file() else []
        raise EnvironmentFault(f"{error.what}: {said[-1]}" if said else error.what, hint=error.hint) from error


def _wanted(
    kind: type[KernelProblem], source: Function, given: _Given, config: Mapping[str, Any], number: int
) -> tuple[KernelProblem, PlainConfig]:
    """The problem and configuration; each has its own spec, because configurations may have different parameters."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in config.items()}
    spec = KernelSpec(
        name=source.name,
        kernel=source,
        tensors=given.tensors,
        args=(),
        params=tuple((name, ()) for name in values),
        grid=("1",),
        rules=(),
    )
    case = tuple((name, value) for name, value in given.case if name not in values)
    return kind.of(spec, case), PlainConfig(FAMILY, (*values.items(), ("number", number)))


def _compiled(
    language: Language, cache: Path, config: dict[str, Any], result: CompileResult, device: Device
) -> Compiled:
    found = Compiled(
        config, result.status, " ".join(result.message.split()), result.registers, result.spills, result.shared_bytes,
        result.binary_hash, result.seconds, result.cached,
        language.pack(cache, result.entries[0]) if result.entries else None,
    )  # fmt: skip
    if found.status is Status.OK and found.shared_bytes > device.shared_memory_bytes:
        text = f"{found.shared_bytes} bytes of shared memory, the limit is {device.shared_memory_bytes}"
        return replace(found, status=Status.OUT_OF_RESOURCES, reason=text)
    return found


def function_of(kernel: Any, language: str = "triton") -> Function:
    """The kernel's definition with the definitions of its file that it needs; the file is not executed.

    Raises UserError if it is not a kernel or has no file.
    """
    function = kernel
    while hasattr(function, "fn"):
        function = function.fn
    if not inspect.isfunction(function) or (function is kernel) != (language == "cute"):
        accepted = "a @triton.jit function" if language == "triton" else "a function of a configuration's values"
        raise UserError(f"{show(kernel)} is no kernel of {language}", where="par_compile", accepted=accepted)
    name, path = function.__name__, Path(inspect.getsourcefile(function) or "")
    if "<locals>" in function.__qualname__:
        raise UserError(f"{name} is defined inside a function", where=str(path), hint="move it to the top of its file")
    if not path.is_file():
        raise UserError(f"{name} has no file", where="par_compile", hint="put the kernel into a file and import it")
    needed = definitions(read_text(path, "Python file", "UTF-8 text", MAX_SOURCE_BYTES), name, str(path))
    return Function(name, needed, parameters(needed, name, str(path)))


@dataclass(frozen=True, slots=True)
class _Given:
    """The arguments of a kernel that are not part of configurations."""

    tensors: tuple[Tensor, ...]
    case: Case


def _arguments(
    kernel: Any, source: Function, args: Mapping[str, Any] | Sequence[Any], configs: Sequence[Mapping[str, Any]]
) -> _Given:
    """The arguments. Raises UserError for a name that is not a parameter, and for parameters without a value."""
    in_configs = {name for config in configs for name in config}
    if isinstance(args, Mapping):
        named = dict(args)
    else:
        free = [name for name in source.parameters if name not in in_configs]
        if len(args) > len(free):
            what = f"{len(args)} arguments are given for {len(free)} parameters"
            raise UserError(what, where=source.name, accepted=", ".join(free))
        named = dict(zip(free, args, strict=False))
    for name in named:
        if name not in source.parameters:
            accepted = ", ".join(source.parameters)
            hint = did_you_mean(name, source.parameters)
            raise UserError(f"has no parameter {name!r}", where=source.name, accepted=accepted, hint=hint)
    defaults = _defaults(kernel)
    every = set.intersection(*(set(config) for config in configs))
    missing = [name for name in source.parameters if name not in {*named, *defaults, *every}]
    if missing:
        raise UserError(f"has no value for {', '.join(missing)}", where=source.name, hint="add them to args or configs")
    values = {**{name: value for name, value in defaults.items() if name in source.parameters}, **named}
    tensors = tuple(_tensor(name, value) for name, value in values.items() if hasattr(value, "shape"))
    scalars = tuple((name, value) for name, value in values.items() if not hasattr(value, "shape"))
    return _Given(tensors, cast(Case, scalars))


def _defaults(kernel: Any) -> dict[str, Any]:
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    found = inspect.signature(kernel).parameters.values()
    return {one.name: one.default for one in found if one.default is not one.empty}


def _tensor(name: str, value: Any) -> Tensor:
    """Describes a tensor or array by its type and the extent of its memory."""
    dtype = str(value.dtype).rpartition(".")[2]
    if dtype not in TYPE_OF:
        raise UserError(f"has the type {dtype}", where=name, accepted=", ".join(TYPE_OF))
    return Tensor(name, (str(math.prod(value.shape)),), TYPE_OF[dtype])
