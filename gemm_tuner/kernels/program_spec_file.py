"""Reads the spec files of programs. Errors name the file, the key and the accepted values."""

from __future__ import annotations

import datetime
import math
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels import command_lines
from gemm_tuner.kernels.expressions import Expression
from gemm_tuner.kernels.program_spec import (
    COMMAND,
    CSV_COLUMN,
    FILE,
    HIGHER,
    JSON,
    LOWER,
    MEDIAN,
    PROFILE,
    REGEX,
    SELECTS,
    TABLE,
    Metric,
    Param,
    ProgramSpec,
    Rule,
    Value,
)
from gemm_tuner.system import program
from gemm_tuner.system.documents import load_yaml, refuse_unknown, show
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.values import choice, did_you_mean, integer

KEYS = (
    "name", FILE, COMMAND, "params", "rules", "build", "metric", "expect_name", "repeat", "select", "timeout_s",
    "build_timeout_s", "env", "cwd", "shell", "mojo", "python", "best", PROFILE,
)  # fmt: skip
METRIC_SOURCES = (REGEX, JSON, CSV_COLUMN)
MAX_SPECS = 100_000
MAX_REPEAT = 1000
MAX_SECONDS = 7 * 86400
NAME = re.compile(r"\$?[A-Za-z_][A-Za-z_0-9]{0,99}")


def read_spec(path: Path) -> ProgramSpec:
    """Reads a spec file. Raises UserError."""
    return spec_of(load_yaml(path, "spec file"), path)


def spec_of(document: object, path: Path) -> ProgramSpec:
    """The spec of a document. path: its file, for messages and relative paths. Raises UserError."""
    where = printable(path)
    if not isinstance(document, dict):
        accepted = f"a mapping with name, params and one of {FILE} and {COMMAND}"
        raise UserError(f"is {show(document)}", where=where, accepted=accepted)
    if "kernel" in document:
        hint = program.as_called(f"tune_gemm.py kernel --spec {where}")
        raise UserError("is the spec of a Triton kernel", where=where, accepted="file: or command:", hint=hint)
    refuse_unknown(document, KEYS, where)
    kind, target = _target(document, where)
    params = _params(document.get("params", {}), f"{where}, params")
    names = frozenset(param.name for param in params)
    cwd = _folder(document, path, where)
    spec = ProgramSpec(
        path=path,
        document=document,
        name=_text(document, "name", where) or path.stem,
        kind=kind,
        target=target,
        params=params,
        cwd=cwd,
        rules=_rules(document.get("rules", []), names, f"{where}, rules"),
        program=_program(document, kind, target, where),
        shell=_switch(document, "shell", where),
        build=_text(document, "build", where),
        env=_env(document.get("env", {}), names, f"{where}, env"),
        timeout_s=_seconds(document, "timeout_s", 60.0, where),
        build_timeout_s=_seconds(document, "build_timeout_s", 300.0, where),
        metric=_profile(document, where)
        if PROFILE in document
        else _metric(document.get("metric"), f"{where}, metric"),
        profiler=(document[PROFILE].get("tool") or "auto") if PROFILE in document else "auto",
        repeat=integer(document, "repeat", where, 1, MAX_REPEAT) if "repeat" in document else 1,
        select=choice(document, "select", SELECTS, where) if "select" in document else MEDIAN,
        expect_name=_text(document, "expect_name", where),
        best=_best(document.get("best"), f"{where}, best"),
    )
    _check_templates(spec, names, where)
    return spec


def _target(document: Mapping[str, Any], where: str) -> tuple[str, str]:
    given = [key for key in (FILE, COMMAND) if key in document]
    if len(given) != 1:
        what = "neither file nor command is given" if not given else "file and command are given"
        accepted = 'one of file: bench.mojo and command: "./bench --tile={TILE}"'
        raise UserError(what, where=where, accepted=accepted)
    target = _text(document, given[0], where)
    suffixes = command_lines.MOJO + command_lines.PYTHON
    if given[0] == FILE and not target.endswith(suffixes):
        hint = "write command: for another program"
        raise UserError(f"file is {show(target)}", where=where, accepted=", ".join(suffixes), hint=hint)
    if not target.strip():
        raise UserError(f"{given[0]} is empty", where=where)
    return given[0], target


def _program(document: Mapping[str, Any], kind: str, target: str, where: str) -> str:
    """The interpreter of the program, from the key for its kind of file."""
    own = "python" if target.endswith(command_lines.PYTHON) else "mojo"
    for key in ("mojo", "python"):
        if key in document and (kind == COMMAND or key != own):
            fits = "file: x.mojo" if key == "mojo" else "file: x.py"
            raise UserError(f"{key} says what runs {fits}, and there is none", where=where, hint="delete it")
    program = _text(document, own, where)
    _check_words(program, f"{where}, {own}")
    return program


def _params(value: object, where: str) -> tuple[Param, ...]:
    if not isinstance(value, dict):
        raise UserError(f"is {show(value)}", where=where, accepted="names, each with a value or a list of values")
    params, seen = [], set()
    for key, values in value.items():
        if not isinstance(key, str) or not NAME.fullmatch(key) or key == command_lines.OUT:
            accepted = f"letters, digits and _; $ in front for a value of run time; not {command_lines.OUT}"
            raise UserError(f"{show(key)} is no name of a parameter", where=where, accepted=accepted)
        name = key.removeprefix("$")
        if name in seen:
            raise UserError(f"{name} is given twice, with and without $", where=where, hint="delete one of the two")
        seen.add(name)
        listed = values if isinstance(values, list) else [values]
        if not listed:
            raise UserError(f"{key} has no values", where=where, accepted="a value or a list of values")
        params.append(Param(name, tuple(_scalar(one, key, where) for one in listed), key.startswith("$")))
    if math.prod(len(param.values) for param in params) > MAX_SPECS:
        raise UserError("there are too many combinations", where=where, accepted=f"up to {MAX_SPECS}")
    return tuple(params)


def _scalar(value: object, key: str, where: str) -> Value:
    if isinstance(value, (datetime.date, datetime.datetime)):
        return str(value)
    if isinstance(value, (bool, int, float, str)) and "\0" not in str(value):
        return value
    raise UserError(f"a value of {key} is {show(value)}", where=where, accepted="text, a number, true or false")


def _rules(value: object, names: frozenset[str], where: str) -> tuple[Rule, ...]:
    if not isinstance(value, list):
        raise UserError(f"is {show(value)}", where=where, accepted="a list of expressions")
    rules = []
    for number, one in enumerate(value, 1):
        place = f"{where}, entry {number}"
        why = ""
        if isinstance(one, dict):
            refuse_unknown(one, ("keep", "why"), place)
            why, one = _text(one, "why", place), one.get("keep")
        if not isinstance(one, str):
            accepted = 'an expression such as "BM <= M", or {keep: "BM <= M", why: reason}'
            raise UserError(f"is {show(one)}", where=place, accepted=accepted)
        keep = Expression.parse(one, place)
        for name in sorted(keep.names - names):
            hint = did_you_mean(name, names) or "quote it if it is text"
            raise UserError(f"{show(one)} names {name}", where=place, accepted=", ".join(sorted(names)), hint=hint)
        rules.append(Rule(keep, why))
    return tuple(rules)


def _metric(value: object, where: str) -> Metric:
    if value is None:
        return Metric()
    accepted = f"one of {', '.join(METRIC_SOURCES)}, with unit and better where they differ from ms and lower"
    if not isinstance(value, dict):
        raise UserError(f"is {show(value)}", where=where, accepted=accepted)
    refuse_unknown(value, (*METRIC_SOURCES, "unit", "better"), where)
    kinds = [key for key in METRIC_SOURCES if key in value]
    if len(kinds) > 1 or (not kinds and value.keys() - {"better"}):
        raise UserError(f"has {' and '.join(kinds) or 'no place of the number'}", where=where, accepted=accepted)
    better = choice(value, "better", (LOWER, HIGHER), where) if "better" in value else LOWER
    if not kinds:
        return Metric(TABLE, better=better)
    pattern = _text(value, kinds[0], where)
    if kinds[0] == REGEX:
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise UserError(f"the regex is wrong: {error}", where=where) from None
        if groups != 1:
            raise UserError(
                f"the regex has {groups} groups", where=where, accepted="one, round the number: met=([0-9.]+)"
            )
    return Metric(kinds[0], pattern, _text(value, "unit", where) or "ms", better)


def _profile(document: Mapping[str, Any], where: str) -> Metric:
    """The metric for the key ``profile``: times of matching kernels, ms."""
    if "metric" in document:
        raise UserError("has a metric and a profile", where=where, accepted="one of them")
    value, place = document[PROFILE], f"{where}, {PROFILE}"
    if not isinstance(value, dict) or "kernels" not in value:
        raise UserError(f"is {show(value)}", where=place, accepted='{kernels: "matmul.*", tool: nsys}')
    refuse_unknown(value, ("kernels", "tool"), place)
    pattern = _text(value, "kernels", place)
    _text(value, "tool", place)
    try:
        re.compile(pattern)
    except re.error as error:
        raise UserError(f"the regex is wrong: {error}", where=place) from None
    return Metric(PROFILE, pattern)


def _env(value: object, names: frozenset[str], where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise UserError(f"is {show(value)}", where=where, accepted="names, each with a value")
    env = {}
    for key, text in value.items():
        if not isinstance(key, str) or not key or "=" in key or "\0" in key:
            raise UserError(f"{show(key)} is no name of an environment variable", where=where)
        env[key] = str(_scalar(text, key, where))
        command_lines.placeholders(env[key], names, f"{where}, {key}")
    return env


def _best(value: object, where: str) -> float | None:
    """The metric in the key ``best`` of a written spec; its other fields are informational."""
    if value is None:
        return None
    met = value.get("met") if isinstance(value, dict) else None
    if isinstance(met, bool) or not isinstance(met, (int, float)) or not math.isfinite(met):
        raise UserError(f"met is {show(met)}", where=where, accepted="what --output best.yaml writes")
    return float(met)


def _folder(document: Mapping[str, Any], path: Path, where: str) -> Path:
    folder = (path.parent / (_text(document, "cwd", where) or ".")).resolve()
    if not folder.is_dir():
        raise UserError(f"cwd: {printable(folder)} is no folder", where=where)
    return folder


def _check_templates(spec: ProgramSpec, names: frozenset[str], where: str) -> None:
    """Checks that placeholders are known, quotes are closed, and the program exists."""
    own = names | {command_lines.OUT} if spec.build else names
    if spec.kind == COMMAND:
        command_lines.placeholders(spec.target, own, f"{where}, command")
        if not spec.shell:
            _check_words(spec.target, f"{where}, command")
    elif not (spec.cwd / spec.target).is_file():
        hint = "a path is relative to the spec file's folder, or to cwd where that is given"
        raise UserError(f"there is no {spec.cwd / spec.target}", where=f"{where}, file", hint=hint)
    command_lines.placeholders(spec.build, own, f"{where}, build")
    if not spec.shell:
        _check_words(spec.build, f"{where}, build")
    command_lines.placeholders(spec.expect_name, names, f"{where}, expect_name")
    at_run_time = {param.name for param in spec.params if param.at_run_time}
    for name in command_lines.placeholders(spec.build, own, where):
        if name in at_run_time:
            hint = "delete the $, or take it out of the build line"
            raise UserError(f"${name} is a value of run time", where=f"{where}, build", hint=hint)


def _check_words(line: str, where: str) -> None:
    try:
        shlex.split(line)
    except ValueError as error:
        raise UserError(f"{show(line)}: {error}", where=where, hint="close the quotes, or write shell: true") from None


def _text(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, (str, int, float)) or isinstance(value, bool) or "\0" in str(value):
        raise UserError(f"{key} is {show(value)}", where=where, accepted="text")
    return str(value)


def _switch(entry: Mapping[str, Any], key: str, where: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise UserError(f"{key} is {show(value)}", where=where, accepted="true or false")
    return value


def _seconds(entry: Mapping[str, Any], key: str, default: float, where: str) -> float:
    value = entry.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_SECONDS:
        raise UserError(f"{key} is {show(value)}", where=where, accepted="seconds above 0")
    return float(value)
