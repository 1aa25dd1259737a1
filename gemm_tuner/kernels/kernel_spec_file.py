"""Reads the spec file of a user's kernel: its arguments, the configurations to try, and how to check results.

language:  cute for CuTe DSL: kernel is then a function of params and case values that returns what is compiled;
           a launch gets the tensors and then the args, and there is no grid (examples/kernels/cute_quack.yaml)
cases:     {rows: [1, 4096], cols: [1000, 8192], dtype: fp16}     products, or a list of such mappings
tensors:   {x: {shape: [rows, cols], dtype: dtype}, out: {shape: [rows, cols], dtype: dtype, output: true}}
args:      {stride: cols, BLOCK: next_power_of_2(cols)}           expressions; later ones may use earlier ones
params:    {ROWS: [1, 2, 4], num_warps: [2, 4, 8], TILE: [[64, 64], [128, 64]]}      TILE[0] is the first of a list
derived:   {blocks: cdiv(rows, ROWS)}                 like args, and shown in the results
grid:      ["cdiv(rows, ROWS)"]
rules:     [ROWS <= rows, {keep: BLOCK / num_warps <= 2048, why: registers}]
reference: softmax.py:reference          takes tensors and values by name, and dtype: the precision to compute in
manual_check: softmax.py:judge           instead of a reference: raises, or returns False, for wrong outputs
check:     {rtol: 1.0e-2, atol: 1.0e-2, rms: 1.0e-2, max_mismatched_ratio: 0.01, nondeterministic: true}
check_cases: {rows: 3, cols: 37, dtype: fp16}
reset, restore: [out]                    tensors that are zeroed, or restored, before each call, outside of its time
key:       ["pow2(rows)", dtype]                       cases with the same key share a configuration in exports
           ["bucket(rows)"] with buckets: {small: 256, medium: 2048, large: inf}
select:    last: in finals the last call of a process is its time, instead of the median of its calls
flops, bytes: expressions, for the roofline and for ranking if nothing is timed
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.definitions import definitions, parameters, require_decorator
from gemm_tuner.kernels.expressions import Expression
from gemm_tuner.kernels.kernel_spec import SELECTS, Case, Check, Function, KernelSpec, Tensor
from gemm_tuner.kernels.keys import parse_buckets, parse_key
from gemm_tuner.kernels.spec_faults import require_whole
from gemm_tuner.system import program
from gemm_tuner.system.documents import load_yaml, refuse_unknown, show
from gemm_tuner.system.input_files import printable, read_text
from gemm_tuner.system.values import choice

KEYS = (
    *("name", "kernel", "cases", "tensors", "args", "params", "grid", "rules", "reference", "manual_check", "check"),
    *("check_cases", "derived", "reset", "restore", "key", "buckets", "flops", "bytes", "select", "language"),
)
LANGUAGES = ("triton", "cute")
TENSOR_KEYS = ("shape", "dtype", "init", "output")
CHECK_SWITCHES = ("skip_check", "nondeterministic")
CHECK_KEYS = ("rtol", "atol", "rms", "max_mismatched_ratio", *CHECK_SWITCHES)
INITS = ("randn", "uniform", "integer", "zeros", "ones", "nan")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
MAX_SOURCE_BYTES = 4 * 2**20
MAX_CASES = 10_000


def read(path: Path, target: str = "") -> tuple[KernelSpec, tuple[Case, ...]]:
    """Reads a spec file and its cases. target: FILE.py:NAME, overriding the key ``kernel``.

    Raises UserError naming the file and the key.
    """
    where, row = printable(path), load_yaml(path, "spec")
    if not isinstance(row, dict):
        raise UserError("is no spec", where=where, accepted=f"a mapping with {', '.join(KEYS)}")
    if "kernel" not in row and ("command" in row or "file" in row):
        raise UserError("is the spec of a program", where=where, hint=program.as_called(f"tune_gemm.py spec {where}"))
    refuse_unknown(row, KEYS, where)
    named = target or row.get("kernel")
    if not isinstance(named, str):
        raise UserError("names no kernel", where=where, accepted="kernel: FILE.py:NAME, or the first argument")
    language = choice(row, "language", LANGUAGES, where) if "language" in row else "triton"
    if language == "cute" and "grid" in row:
        raise UserError("has a grid", where=where, accepted="none for language: cute, whose host code has it")
    kernel = function(named, Path() if target else path.parent, "kernel" if target else f"{where}, kernel")
    if language == "triton":
        require_decorator(kernel.source, kernel.name, named.rpartition(":")[0])
    spec = KernelSpec(
        name=word(row.get("name", kernel.name), f"{where}, name"),
        kernel=kernel,
        tensors=tuple(_tensors(row.get("tensors"), f"{where}, tensors")),
        args=_texts(row.get("args", {}), f"{where}, args"),
        params=params(row.get("params"), f"{where}, params"),
        grid=_grid(row.get("grid"), f"{where}, grid") if language == "triton" else (),
        derived=_texts(row.get("derived", {}), f"{where}, derived"),
        language=language,
        **judged_by(row, path.parent, where),
    )
    cases = cases_of(row.get("cases", {}), f"{where}, cases") or ((),)
    spec = replace(spec, **keys_of(row, cases, where))
    require_whole(spec, cases, where)
    return spec, cases


def judged_by(row: Mapping[str, Any], folder: Path, where: str) -> dict[str, Any]:
    """The fields of a KernelSpec about configurations to try, checks and performance."""
    if "reference" in row and "manual_check" in row:
        raise UserError("has a reference and a manual_check", where=where, accepted="one of them")
    return {
        **{key: function(row[key], folder, f"{where}, {key}") for key in ("reference", "manual_check") if key in row},
        "rules": tuple(_rules(row.get("rules", []), f"{where}, rules")),
        "check": _check(row.get("check", {}), f"{where}, check"),
        "check_cases": cases_of(row.get("check_cases", []), f"{where}, check_cases"),
        "reset": _names(row.get("reset", []), f"{where}, reset"),
        "restore": _names(row.get("restore", []), f"{where}, restore"),
        "flops": str(row.get("flops", "")),
        "bytes": str(row.get("bytes", "")),
        **({"select": choice(dict(row), "select", SELECTS, where)} if "select" in row else {}),
    }


def function(text: Any, folder: Path, where: str) -> Function:
    """The function of a text FILE.py:NAME, with the file relative to ``folder``. Raises UserError."""
    file, colon, name = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not colon or not WORD.fullmatch(name):
        raise UserError(f"is {show(text)}", where=where, accepted="FILE.py:NAME")
    path = folder / file
    source = read_text(path, "Python file", "UTF-8 text", MAX_SOURCE_BYTES)
    needed = definitions(source, name, printable(path))
    return Function(name, needed, parameters(needed, name, printable(path)))


def word(value: Any, where: str) -> str:
    if not isinstance(value, str) or not WORD.fullmatch(value):
        raise UserError(f"is {show(value)}", where=where, accepted="letters, digits and _")
    return value


def _tensors(value: Any, where: str) -> Iterator[Tensor]:
    if not isinstance(value, dict) or not value:
        what = "is missing" if value is None else f"is {show(value)}"
        accepted = "tensors by the kernel's parameter: {x: {shape: ...}}; or --host FILE.py:FUNCTION, which makes them"
        raise UserError(what, where=where, accepted=accepted)
    for name, row in value.items():
        at = f"{where}, {show(name)}"
        if not isinstance(row, dict) or "shape" not in row or "dtype" not in row:
            raise UserError(f"is {show(row)}", where=at, accepted="{shape: [rows, cols], dtype: fp16}")
        refuse_unknown(row, TENSOR_KEYS, at)
        shape = row["shape"] if isinstance(row["shape"], list) else [row["shape"]]
        output = row.get("output", False)
        if type(output) is not bool:
            raise UserError(f"output is {show(output)}", where=at, accepted="true, false")
        init = choice(row, "init", INITS, at) if "init" in row else "nan" if output else "randn"
        yield Tensor(word(name, at), tuple(_text(one, at) for one in shape), _text(row["dtype"], at), init, output)


def _text(value: Any, where: str) -> str:
    """The text of an expression, after validation."""
    if type(value) not in (int, float, str):
        raise UserError(f"is {show(value)}", where=where, accepted="a number or an expression such as cdiv(rows, ROWS)")
    return Expression.parse(str(value), where).text


def _texts(value: Any, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise UserError(f"is {show(value)}", where=where, accepted="expressions by name: {stride: cols}")
    return tuple((word(name, where), _text(one, f"{where}, {name}")) for name, one in value.items())


def params(value: Any, where: str) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """The parameters; their values are validated like axes of a space."""
    if not isinstance(value, dict) or not value:
        raise UserError("No configurations to tune", where=where, accepted="lists by name: {num_warps: [2, 4, 8]}")
    rows = {name: one if isinstance(one, list) else [one] for name, one in value.items()}
    for name, values in rows.items():
        if not values:
            raise UserError("No configurations to tune", where=f"{where}, {name}", accepted="at least one value")
    return tuple(
        (word(name, where), tuple(tuple(one) if isinstance(one, list) else one for one in values))
        for name, values in rows.items()
    )


def _grid(value: Any, where: str) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    if value is None or not 1 <= len(texts) <= 3:
        raise UserError(f"is {show(value)}", where=where, accepted="one to three expressions: [cdiv(rows, ROWS)]")
    return tuple(_text(one, where) for one in texts)


def _names(value: Any, where: str) -> tuple[str, ...]:
    return tuple(word(one, where) for one in (value if isinstance(value, list) else [value]))


def _rules(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """(expression, reason) of each rule."""
    for number, row in enumerate(value if isinstance(value, list) else [value], 1):
        at = f"{where}, rule {number}"
        if isinstance(row, dict):
            refuse_unknown(row, ("keep", "why"), at)
            yield _text(row.get("keep"), at), " ".join(str(row.get("why", "")).split())
        else:
            yield _text(row, at), ""


def cases_of(value: Any, where: str) -> tuple[Case, ...]:
    rows = value if isinstance(value, list) else [value]
    found: list[Case] = []
    for row in rows:
        if not isinstance(row, dict):
            raise UserError(f"is {show(row)}", where=where, accepted="values by name: {rows: [1, 4096], dtype: fp16}")
        names = [word(name, where) for name in row]
        values = [one if isinstance(one, list) else [one] for one in row.values()]
        if [] in values:
            accepted = "a value or a list of values"
            raise UserError(f"{names[values.index([])]} has no values", where=where, accepted=accepted)
        for one in itertools.chain(*values):
            if not isinstance(one, (int, float, bool, str)) or (isinstance(one, str) and not WORD.fullmatch(one)):
                raise UserError(f"holds {show(one)}", where=where, accepted="numbers, true, false and words")
        found += [tuple(zip(names, point, strict=True)) for point in itertools.product(*values)] if names else []
        if len(found) > MAX_CASES:
            raise UserError(f"holds more than {MAX_CASES} cases", where=where)
    return tuple(dict.fromkeys(found))


def keys_of(row: Mapping[str, Any], cases: tuple[Case, ...], where: str) -> Mapping[str, Any]:
    """``key`` and ``buckets``, after checking that every case has a value for them."""
    buckets = parse_buckets(row["buckets"], f"{where}, buckets") if "buckets" in row else ()
    if "key" not in row and not buckets:
        return {}
    of_case = set.intersection(*({name for name, _ in case} for case in cases))
    return {"key": parse_key(row.get("key", []), buckets, of_case, f"{where}, key"), "buckets": buckets}


def _check(value: Any, where: str) -> Check:
    if not isinstance(value, dict):
        raise UserError(f"is {show(value)}", where=where, accepted="{rtol: 1.0e-2, atol: 1.0e-2}")
    refuse_unknown(value, CHECK_KEYS, where)
    for name, one in value.items():
        if name in CHECK_SWITCHES and type(one) is not bool:
            raise UserError(f"{name} is {show(one)}", where=where, accepted="true, false")
        most = 1.0 if name == "max_mismatched_ratio" else 1e6
        if name not in CHECK_SWITCHES and (type(one) not in (int, float) or not 0 <= one <= most):
            raise UserError(f"{name} is {show(one)}", where=where, accepted=f"0 to {most:g}, such as 1.0e-2")
    given: dict[str, Any] = {name: one if name in CHECK_SWITCHES else float(one) for name, one in value.items()}
    return Check(**given)
