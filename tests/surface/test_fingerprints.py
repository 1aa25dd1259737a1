"""What makes a tuned result another one."""

from __future__ import annotations

import importlib
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import triton

from gemm_tuner.surface import fingerprints
from gemm_tuner.surface.fingerprints import NoFingerprint

SOURCE = """
import functools

SCALE = {scale}

def helper(x):
    return x + {step}

def decorated(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)
    return call

@decorated
def uses(x, block={block}):
    return helper(x) * SCALE

def unrelated():
    return {unrelated}

def closed(over):
    def inside(x):
        return x * over
    return inside
"""
VALUES = {"scale": 2, "step": 1, "block": 64, "unrelated": 0}


def module(folder: Path, **changed: int) -> Any:
    path = folder / "kernels.py"
    path.write_text(SOURCE.format(**{**VALUES, **changed}), encoding="utf-8")
    made = ModuleType("kernels")
    exec(compile(path.read_text("utf-8"), str(path), "exec"), made.__dict__)
    __import__("linecache").checkcache(str(path))
    return made


@pytest.mark.parametrize(
    ("changed", "same"), [({}, True), ({"unrelated": 5}, True), ({"step": 2}, False), ({"scale": 3}, False)]
)
def test_a_function_is_its_source_and_what_it_uses(tmp_path: Path, changed: dict[str, int], same: bool) -> None:
    before = fingerprints.of(module(tmp_path).uses)
    assert (fingerprints.of(module(tmp_path, **changed).uses) == before) is same


PROGRAM = {
    "user_main.py": """
import json, torch, triton
import user_lib.ops as ops
from user_lib.ops import direct
from user_lib import table as alias
from triton.language import constexpr

ORDER = [1, {{"deep": (2, {listed})}}]
WIDTH = constexpr({width})
LOOP = []
LOOP.append(LOOP)

def run(x):
    return [direct(x), ops.inner.by_attribute(x), alias.of(x), ORDER, WIDTH, LOOP, json.dumps(x), triton.cdiv(x, 2)]
""",
    "user_lib/__init__.py": "",
    "user_lib/ops.py": """
import user_lib.inner as inner

def direct(x):
    return direct(x - 1) if x else inner.circle(x)

def of_ops():
    return {unused}
""",
    "user_lib/inner.py": """
from user_lib import ops

FACTORS = {{"a": {factor}}}

def circle(x):
    return ops.direct(x) + {called}

def by_attribute(x):
    return FACTORS["a"] * x
""",
    "user_lib/table.py": """
def double(x):
    return {tabled} * x

TABLE = {{"double": double}}

def of(x):
    return TABLE["double"](x)
""",
}


def of_program(folder: Path, library: Path, **changed: int) -> str:
    """Of ``run``, imported anew."""
    values = dict.fromkeys(("unused", "listed", "width", "factor", "called", "tabled"), 1)
    for name, text in PROGRAM.items():
        path = (library if "/" in name else folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(**{**values, **changed}), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for one in (library, folder):
            patch.syspath_prepend(str(one))
        try:
            return fingerprints.of(importlib.import_module("user_main").run)
        finally:
            for name in [one for one in sys.modules if one.startswith("user_")]:
                del sys.modules[name]


@pytest.mark.parametrize("changed", ["", "unused", "listed", "width", "factor", "called", "tabled"])
def test_what_is_used_of_other_modules_counts(tmp_path: Path, changed: str) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    same = of_program(before, before) == of_program(after, after, **({changed: 2} if changed else {}))
    assert same is (changed in ("", "unused"))


def test_what_is_installed_counts_by_its_version(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    assert of_program(before, before / "site-packages") == of_program(after, after / "site-packages", called=2)


@pytest.mark.parametrize("fill", ["HELD.append(x)", "HELD[0] = x"])
def test_a_register_that_calls_fill_is_no_edit(tmp_path: Path, fill: str) -> None:
    path = tmp_path / "register.py"
    path.write_text(f"HELD = [0]\ndef last(): return HELD[-1]\ndef build(x): {fill}\n", encoding="utf-8")
    made = ModuleType("register")
    exec(compile(path.read_text("utf-8"), str(path), "exec"), made.__dict__)
    before = fingerprints.of(made.last)
    made.build(5)
    assert fingerprints.of(made.last) == before


def test_calls_deeper_than_python_recurses_end() -> None:
    made = ModuleType("chain")
    exec("\n".join(f"def f{n}(x): return f{n + 1}(x)" for n in range(2000)) + "\ndef f2000(x): pass", made.__dict__)
    assert fingerprints.of(made.f0) != fingerprints.of(made.f1)


def test_closures_defaults_and_bound_arguments_count(tmp_path: Path) -> None:
    made = module(tmp_path)
    ones = [made.closed(1), made.closed(2), partial(made.closed, 1), partial(made.closed, 2), made.uses, made.helper]
    assert len({fingerprints.of(one) for one in ones}) == len(ones)
    assert fingerprints.of(made.closed(1)) == fingerprints.of(made.closed(1))
    assert fingerprints.of(module(tmp_path, block=32).uses) != fingerprints.of(made.uses)


def test_tensors_count_by_type_shape_and_strides() -> None:
    square = torch.zeros(4, 4)
    assert fingerprints.of(square) == fingerprints.of(torch.ones(4, 4))
    others = [square, torch.zeros(4, 5), torch.zeros(4, 4, dtype=torch.float16), torch.zeros(5, 4).t()[:4]]
    assert len({fingerprints.of(one) for one in others}) == len(others)


def test_values_of_unlike_types_differ_and_what_says_nothing_is_named() -> None:
    values: list[Any] = [1, True, 1.0, "1", (1,), [1], {1: 1}, {1}, None, torch.float16]
    values += [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 64}, num_warps=8)]
    assert len({fingerprints.of(one) for one in values}) == len(values)
    with pytest.raises(NoFingerprint, match="object"):
        fingerprints.of({"a": object()})


def test_a_value_that_holds_itself_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert fingerprints.of(loop) != fingerprints.of([])


def test_equal_in_another_process() -> None:
    call = "from gemm_tuner.surface import fingerprints as f; print(f.of(f.of), f.of({'a': {1, 2, 'x'}, 'b': print}))"
    other = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True).stdout.split()
    assert other == [fingerprints.of(fingerprints.of), fingerprints.of({"a": {1, 2, "x"}, "b": print})]
