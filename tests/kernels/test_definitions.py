"""What of a user's file is taken: a function and what it needs."""

from __future__ import annotations

from typing import Any

import pytest

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.definitions import definitions, parameters

FILE = """
from __future__ import annotations
import torch, math as m
import triton
print("runs a benchmark")
SIZE = 4
other = torch.zeros(SIZE)
try:
    import fast
except ImportError:
    fast = None

def helper(x):
    return m.sqrt(x) + SIZE

@triton.jit
def kernel(out, n, BLOCK: int, *, mode=helper(1)):
    return fast

def unused():
    return other

if __name__ == "__main__":
    main()
"""


def test_only_what_a_function_needs_is_taken_and_lines_stay() -> None:
    found = definitions(FILE, "kernel", "k.py")
    lines, before = found.splitlines(), FILE.splitlines()
    assert all(line in ("", old) for line, old in zip(lines, before, strict=True))
    kept = [line for line in lines if line]
    assert kept[:3] == ["from __future__ import annotations", "import torch, math as m", "import triton"]
    assert {"SIZE = 4", "    fast = None", "@triton.jit"} <= set(kept)
    assert "print" not in found and "other" not in found and "__main__" not in found
    assert parameters(found, "kernel", "k.py") == ("out", "n", "BLOCK", "mode")


@pytest.mark.parametrize(
    ("source", "name", "words"),
    [(FILE, "kernle", "did you mean kernel?"), ("def f(:\n", "f", "line 1"), ("x = 1\n", "f", "top level")],
)
def test_a_file_without_the_function_is_named(source: str, name: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        definitions(source, name, "k.py")
    assert words in caught.value.one_line() and "k.py" in caught.value.one_line()


SHADOWED = """
import torch
WIDTH, n, y = 4, 5, 6

x = torch.rand(n, device="cuda")
class Plan:
    width = WIDTH

def helper(at):
    def inner():
        return at + y
    return inner()

def kernel(x, block=n):
    at = [n for n in range(block)]
    width = Plan.width
    return helper(x) + width + len(at)

at = kernel(x)
width = kernel(at)
"""


def test_parameters_and_local_variables_are_no_names_of_the_file() -> None:
    """A tutorial has tensors with the names of its kernel's parameters, and those are not made."""
    kept = definitions(SHADOWED, "kernel", "f.py")
    assert "rand" not in kept and "kernel(x)" not in kept and "kernel(at)" not in kept and "import torch" not in kept
    found: dict[str, Any] = {}
    exec(kept, found)
    assert found["kernel"](1) == 1 + 6 + 4 + 5
