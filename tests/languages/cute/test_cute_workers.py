"""Compile workers of CuTe DSL are forks of a process that has imported the DSL for their architecture."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gemm_tuner.languages.cute import compiler
from gemm_tuner.languages.cute.language import ARCH_VARIABLE, PLACE_VARIABLE
from gemm_tuner.system.installation import import_path

STAND_IN = Path(__file__).resolve().parents[2] / "helpers" / "cute_stand_in"
PATH = os.pathsep.join((import_path(), str(STAND_IN.parent)))
SCRIPT = """
import os, sys

def work(answers):
    arch, kept = os.environ.get("CUTE_DSL_ARCH"), "CUTE_DSL_KEEP" in os.environ
    answers.send((os.getppid(), "cutlass.cute" in sys.modules, arch, kept))

if __name__ == "__main__":
    import multiprocess
    from gemm_tuner.compile import fork_server, worker_servers
    from gemm_tuner.core.language import language_of
    from samples import device
    if sys.argv[1:]:
        sys.path.insert(0, sys.argv[1])
    cute = language_of("cute")
    assert cute.worker_imports(None) == ("", {})
    for arch in ("sm_90", "sm_100", "sm_90"):
        target = device(arch).target
        worker_servers.begin(cute, "", target)
        module, variables = cute.worker_imports(target)
        ours, theirs = multiprocess.Pipe()
        process = fork_server.started(work, (theirs,), worker_servers.server_modules(module, ""), variables)
        print(*ours.recv())
        process.join()
"""


def told(folder: Path, *path: str, **more: str) -> list[list[str]]:
    (script := folder / "tune.py").write_text(SCRIPT)
    environ = {**os.environ, "PYTHONPATH": PATH, "CUTE_DSL_KEEP": "all", **more}
    command = [sys.executable, str(script), *path]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def test_each_architecture_has_its_own(tmp_path: Path) -> None:
    one, other, again = told(tmp_path, PYTHONPATH=os.pathsep.join((str(STAND_IN), PATH)))
    assert [found[1:] for found in (one, other, again)] == [
        ["True", "sm_90a", "False"],
        ["True", "sm_100a", "False"],
        ["True", "sm_90a", "False"],
    ]
    assert one[0] == again[0] != other[0]


def test_a_dsl_that_the_server_would_not_find_is_left_to_the_workers(tmp_path: Path) -> None:
    """Another one, or none, would be imported in its place."""
    assert {found[1] for found in told(tmp_path, str(STAND_IN))} == {"False"}


WARM = """
from gemm_tuner.languages.cute import worker_imports
from quack.gemm_{0} import Gemm{1}
kernel = Gemm{1}.kernel
while hasattr(kernel, "__wrapped__"):
    kernel = kernel.__wrapped__
print(kernel.__code__ is not getattr(kernel, "_original_code", kernel.__code__))
"""


COMPILERS_OF_TORCH = """
import sys
from gemm_tuner.languages.cute import worker_imports
import torch
print("torch._dynamo" in sys.modules, torch.compile.__module__, torch.compiler.disable.__module__)
"""


@pytest.mark.skipif(importlib.util.find_spec("quack") is None, reason="CuTe DSL is not installed")
def test_the_library_is_imported_without_the_compilers_of_torch() -> None:
    """They take as long as everything else that is imported, and no worker calls what they would compile."""
    environ = {**os.environ, ARCH_VARIABLE: "sm_90", PLACE_VARIABLE: compiler.place(), "PYTHONPATH": PATH}
    command = [sys.executable, "-c", COMPILERS_OF_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert done.stdout.split() == ["False", "torch", "torch.compiler"], done.stderr


@pytest.mark.skipif(importlib.util.find_spec("quack") is None, reason="CuTe DSL is not installed")
@pytest.mark.parametrize("arch", ["sm90", "sm100"])
def test_functions_of_the_library_are_rewritten_before_workers_are_forked(arch: str) -> None:
    variables = {ARCH_VARIABLE: arch.replace("sm", "sm_"), PLACE_VARIABLE: compiler.place()}
    command = [sys.executable, "-c", WARM.format(arch, arch.capitalize())]
    environ = {**os.environ, **variables, "PYTHONPATH": PATH}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert done.stdout == "True\n", done.stderr
