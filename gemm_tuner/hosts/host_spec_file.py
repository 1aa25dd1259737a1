"""Reads the spec of a kernel with a host function: FILE.py:NAME, FILE.py:FUNCTION, and a spec file with fewer keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.hosts.host_spec import Host, HostSpec
from gemm_tuner.hosts.module_sources import Modules, module_sources
from gemm_tuner.kernels import kernel_spec_file
from gemm_tuner.kernels.definitions import top_level_function
from gemm_tuner.kernels.kernel_spec import LAUNCH_OPTIONS, Case, Function
from gemm_tuner.system.documents import load_yaml, refuse_unknown, show
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.values import did_you_mean

KEYS = (
    *("name", "kernel", "host", "cases", "params", "rules", "reference", "manual_check", "check", "check_cases"),
    *("reset", "restore", "key", "buckets", "flops", "bytes", "select"),
)
OF_THE_HOST = ("tensors", "args", "grid")


def names_host(path: Path) -> bool:
    """Whether a spec file names a host function. Raises UserError for a file that cannot be read."""
    row = load_yaml(path, "spec")
    return isinstance(row, dict) and "host" in row


def read(target: str, host: str, path: Path | None) -> tuple[HostSpec, tuple[Case, ...]]:
    """The spec and its cases. target, host: FILE.py:NAME of the kernel and of the host function, each "" where the spec
    file names it. path: the spec file; without one, the only case is that of the host function's defaults.

    Raises UserError naming the file and the key.
    """
    row: Any = load_yaml(path, "spec") if path else {}
    where = printable(path) if path else "--host"
    if not isinstance(row, dict):
        raise UserError("is no spec", where=where, accepted=f"a mapping with {', '.join(KEYS)}")
    for key in OF_THE_HOST:
        if key in row:
            hint = f"leave {key} or {'--host' if host else 'host'} out"
            raise UserError(f"has {key}, which the host function makes", where=where, hint=hint)
    refuse_unknown(row, KEYS, where)
    folder = path.parent if path else Path()
    named = target or row.get("kernel")
    if named is None:
        raise UserError("names no kernel", where=where, accepted="FILE.py:NAME, the first argument")
    kernel_file, kernel_name = file_and_name(named, Path() if target else folder, "kernel")
    at = Path() if host else folder
    host_file, host_name = file_and_name(host or row.get("host"), at, "--host" if host else f"{where}, host")
    if kernel_file.resolve() == host_file.resolve():
        kernel_file = host_file
    elif kernel_file.stem == host_file.stem:
        raise UserError("is another file of the same name as the kernel's", where="--host", hint="rename one of them")
    modules = module_sources([(kernel_file, kernel_name), (host_file, host_name)])
    parameters, _, _ = signature(modules, kernel_file.stem, kernel_name)
    own, required, takes_any = signature(modules, host_file.stem, host_name)
    spec = HostSpec(
        name=kernel_spec_file.word(row.get("name", kernel_name), f"{where}, name"),
        kernel=Function(kernel_name, "", parameters),
        tensors=(),
        args=(),
        params=kernel_spec_file.params(row["params"], f"{where}, params") if "params" in row else (),
        grid=(),
        host=Host(host_name, host_file.stem, kernel_file.stem, own, takes_any, modules),
        **kernel_spec_file.judged_by(row, folder, where),
    )
    cases = kernel_spec_file.cases_of(row.get("cases", {}), f"{where}, cases") or ((),)
    spec = replace(spec, **kernel_spec_file.keys_of(row, cases, where))
    require_arguments(spec, (*cases, *spec.check_cases), required, where)
    return spec, cases


def file_and_name(text: Any, folder: Path, where: str) -> tuple[Path, str]:
    """Splits FILE.py:NAME. Raises UserError."""
    file, colon, name = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not colon or not kernel_spec_file.WORD.fullmatch(name):
        raise UserError(f"is {show(text)}", where=where, accepted="FILE.py:NAME")
    return folder / file, name


def signature(modules: Modules, module: str, name: str) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """(names of a function's parameters, those without a default, whether it has a ``**`` parameter)."""
    of = top_level_function(dict(modules)[module], name, f"{module}.py").args
    positional = [one.arg for one in (*of.posonlyargs, *of.args)]
    named = [one.arg for one in of.kwonlyargs]
    optional = {*positional[len(positional) - len(of.defaults) :]} if of.defaults else set()
    optional |= {name for name, default in zip(named, of.kw_defaults, strict=True) if default is not None}
    required = tuple(one for one in (*positional, *named) if one not in optional)
    return (*positional, *named), required, of.kwarg is not None


def require_values(spec: HostSpec, cases: tuple[Case, ...]) -> None:
    """Raises UserError for an argument of the host function that no case gives and that is no parameter of the kernel,
    so that the kernel's own triton.autotune cannot have it either."""
    _, required, _ = signature(spec.host.modules, spec.host.module, spec.host.name)
    known = {*spec.kernel.parameters, *(name for name, _ in spec.params)}
    for case in cases:
        for name in required:
            if name not in known and name not in dict(case):
                accepted = f"cases: {{{name}: [...]}} in --spec"
                raise UserError(
                    f"{name}, a parameter of {spec.host.name}, gets no value", where="--host", accepted=accepted
                )


def require_arguments(spec: HostSpec, cases: tuple[Case, ...], required: tuple[str, ...], where: str) -> None:
    """Raises UserError unless the host function accepts every case value and parameter, and gets all it requires."""
    host, tried = spec.host, [name for name, _ in spec.params]
    for case in cases:
        for name in dict(case):
            if name not in host.parameters and not host.takes_any:
                hint = did_you_mean(name, host.parameters)
                what = f"{name}, a value of a case, is no parameter of {host.name}"
                raise UserError(what, where=where, accepted=", ".join(host.parameters), hint=hint)
        missing = [name for name in required if name not in dict(case) and name not in tried]
        if spec.params and missing:
            raise UserError(
                f"{missing[0]}, a parameter of {host.name}, gets no value", where=where, accepted="cases or params"
            )
    for key, named in (("reset", spec.reset), ("restore", spec.restore)):
        for name in named:
            if name not in spec.kernel.parameters:
                hint = did_you_mean(name, spec.kernel.parameters)
                what = f"{name} is no parameter of {spec.kernel.name}"
                raise UserError(what, where=f"{where}, {key}", accepted=", ".join(spec.kernel.parameters), hint=hint)
    known = (*host.parameters, *spec.kernel.parameters, *LAUNCH_OPTIONS)
    for name in tried:
        if name not in known and not host.takes_any:
            raise UserError(
                f"{name} is a parameter neither of {host.name} nor of {spec.kernel.name}", where=f"{where}, params",
                accepted=", ".join(known), hint=did_you_mean(name, known),
            )  # fmt: skip
