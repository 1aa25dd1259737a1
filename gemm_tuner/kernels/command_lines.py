"""Makes the command lines that build and run one combination of a spec's parameters."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import string
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.kernels.program_spec import COMMAND, Instance, ProgramSpec
from gemm_tuner.system.documents import show
from gemm_tuner.system.values import did_you_mean

# A placeholder in build lines and commands: a path for the build's output in the run's folder.
OUT = "out"
SHELL = ("/bin/sh", "-c")
MODULAR_PYTHON = "MODULAR_PYTHON"
MOJO, PYTHON = (".mojo", ".🔥"), (".py",)


@dataclass(frozen=True, slots=True)
class Lines:
    """Command lines. build: empty if nothing is built. out: value of {out}. env: variables that the spec sets."""

    run: tuple[str, ...]
    build: tuple[str, ...]
    out: str
    env: Mapping[str, str]


def placeholders(template: str, known: frozenset[str], where: str) -> tuple[str, ...]:
    """The names in braces in a template; {{ and }} are literal braces. Raises UserError for an unknown name."""
    hint = "write {{ and }} for braces that are not of a parameter"
    try:
        fields = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UserError(f"{show(template)}: {error}", where=where, hint=hint) from None
    names = []
    for _, name, form, conversion in fields:
        if name is None:
            continue
        if name.removeprefix("$") not in known or form or conversion:
            near = did_you_mean(name, known)
            written = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            accepted = ", ".join(f"{{{one}}}" for one in sorted(known))
            raise UserError(f"{{{written}}} is no parameter", where=where, accepted=accepted, hint=near or hint)
        names.append(name.removeprefix("$"))
    return tuple(names)


def filled(template: str, values: Mapping[str, object]) -> str:
    """A template with its placeholders replaced."""
    parts = string.Formatter().parse(template)
    return "".join(text + ("" if name is None else str(values[name.removeprefix("$")])) for text, name, _, _ in parts)


def lines_of(spec: ProgramSpec, instance: Instance, build_folder: Path) -> Lines:
    """The command lines of a combination. Raises EnvironmentFault if the interpreter of its program is not
    installed."""
    build: tuple[str, ...] = ()
    out = ""
    values: dict[str, object] = dict(instance.values)
    if spec.build:
        name = hashlib.sha256(filled(spec.build, {**values, OUT: ""}).encode()).hexdigest()[:16]
        out = str(build_folder / name)
        values[OUT] = out
        build = _argv(spec.build, values, by_shell=spec.shell)
    is_command = spec.kind == COMMAND
    run = _argv(spec.target, values, by_shell=spec.shell) if is_command else _program(spec, instance)
    return Lines(run, build, out, {name: filled(text, values) for name, text in spec.env.items()})


def _argv(template: str, values: Mapping[str, object], *, by_shell: bool) -> tuple[str, ...]:
    """The arguments of a command line. It is split before values are inserted, so that blanks in values do not split
    arguments and values are not interpreted by a shell."""
    if by_shell:
        return (*SHELL, filled(template, {name: shlex.quote(str(value)) for name, value in values.items()}))
    return tuple(filled(word, values) for word in shlex.split(template))


def _program(spec: ProgramSpec, instance: Instance) -> tuple[str, ...]:
    """The arguments that run the program. Parameters are passed to Mojo as -D NAME=VALUE and to Python as --NAME=VALUE;
    run-time parameters follow the file as --NAME=VALUE."""
    at_run_time = {param.name for param in spec.params if param.at_run_time}
    is_python = spec.target.endswith(PYTHON)
    defines: list[str] = []
    words: list[str] = []
    for name, value in instance.values.items():
        if is_python or name in at_run_time:
            words.append(f"--{name}={value}")
        else:
            defines += ["-D", f"{name}={value}"]
    starter = _python(spec) if is_python else mojo(spec.program)
    return (*starter, *defines, spec.target, *words)


def _python(spec: ProgramSpec) -> tuple[str, ...]:
    return tuple(shlex.split(spec.program)) or (os.environ.get(MODULAR_PYTHON) or sys.executable,)


def mojo(program: str) -> tuple[str, ...]:
    """The mojo command: that of the spec, else the one next to $MODULAR_PYTHON, else from PATH."""
    if program:
        return tuple(shlex.split(program))
    python = os.environ.get(MODULAR_PYTHON)
    if python and (beside := Path(python).parent / "mojo").is_file():
        return (str(beside),)
    found = shutil.which("mojo")
    if found is None:
        hint = "pip install mojo, or name the program by mojo: in the spec"
        raise EnvironmentFault("mojo is not on PATH, nor beside $MODULAR_PYTHON", hint=hint)
    return (found,)


def idle(spec: ProgramSpec) -> list[str]:
    """The parameters with several values that no line of a command uses, so that all of these run the same."""
    if spec.kind != COMMAND:
        return []  # a program gets them all
    names = frozenset(param.name for param in spec.params) | {OUT}
    texts = (spec.target, spec.build, *spec.env.values())
    used = {name for text in texts for name in placeholders(text, names, "")}
    return [param.name for param in spec.params if len(param.values) > 1 and param.name not in used]


def not_there(argv: tuple[str, ...], cwd: Path, environ: Mapping[str, str]) -> str:
    """Why a command cannot be started; "" if it can."""
    word = argv[0]
    if "/" not in word:
        return "" if shutil.which(word, path=environ.get("PATH")) else f"no such command: {word}"
    path = cwd / word
    if not path.is_file():
        return f"no such program: {word} in {cwd}"
    return "" if os.access(path, os.X_OK) else f"may not be run: {word}"


def words_in(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a command line; for a shell command line an approximation."""
    if argv[:2] != SHELL:
        return argv
    try:
        return tuple(shlex.split(argv[2], comments=False))
    except ValueError:
        return tuple(argv[2].split())
