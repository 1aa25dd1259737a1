"""Kernels of a server's package, which is not imported: it would need its GPU, and take seconds."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_probe import DEVICE

from gemm_tuner.hosts import host_spec_file
from gemm_tuner.hosts.host_spec import HostProblem
from gemm_tuner.hosts.host_trial import HostTrial
from gemm_tuner.hosts.module_sources import module_sources
from gemm_tuner.hosts.redirection import CPU

NEVER = "raise ImportError('the package is imported')\n"
PACKAGE = {
    "server/__init__.py": NEVER,
    "server/triton_utils/__init__.py": NEVER,
    "server/ops/__init__.py": NEVER,
    "server/ops/helpers.py": """
from server.triton_utils import tl, triton
import a_package_that_is_not_there

FACTOR = tl.constexpr(2)

@triton.jit
def twice(x):
    return x * FACTOR

def imported_by_its_name():
    return a_package_that_is_not_there
""",
    "server/ops/rows.py": """
from server.logger import init_logger
from server.ops.helpers import twice
from server.triton_utils import (
    HAS_TRITON,
    tl,
    triton,
)

logger = init_logger(__name__)
if HAS_TRITON:
    @triton.jit
    def plus(x):
        return x + 1
else:
    plus = None

@triton.jit
def row_kernel(out, pad_of, pad, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    mask &= tl.load(pad_of).to(tl.int64) != pad
    tl.store(out + at, plus(twice(at)), mask=mask)
""",
    "host.py": """
import torch
import triton
from rows import row_kernel

def run(n, BLOCK):
    out = torch.zeros(n, device="cuda")
    row_kernel[(triton.cdiv(n, BLOCK),)](out, torch.ones(1, device="cuda", dtype=torch.int32), 0, n, BLOCK)
    return out
""",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in PACKAGE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_packages_own_kernel_runs_without_the_package(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Helpers come out of the file that defines them; a comparison of scalars in a mask is what the interpreter of
    Triton 3.9 alone does not take."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernel = package / "server" / "ops" / "rows.py"
    spec, _ = host_spec_file.read(f"{kernel}:row_kernel", f"{package / 'host.py'}:run", None)
    script: Any = ModuleType("script")
    script.MODULES, script.CONFIGS = dict(spec.host.modules), {"one": {"BLOCK": 4}}
    one = HostProblem.of(spec, (("n", 6),))
    trial = HostTrial(HostProblem(one.name, one.sha, one.case, spec, device=DEVICE), 0, CPU)
    assert trial.outputs(script, "one")["output"].tolist() == [1, 3, 5, 7, 9, 11]


def test_lines_stay_and_other_imports_too(package: Path) -> None:
    found = dict(module_sources([(package / "server" / "ops" / "rows.py", "row_kernel")]))
    assert sorted(found) == ["rows", "server.ops.helpers"]
    assert "a_package_that_is_not_there" not in found["server.ops.helpers"]
    source = PACKAGE["server/ops/rows.py"].splitlines()
    assert found["rows"].splitlines()[source.index("def row_kernel(out, pad_of, pad, n, BLOCK: tl.constexpr):")] == (
        "def row_kernel(out, pad_of, pad, n, BLOCK: tl.constexpr):"
    )
    # What the package's file imports itself is left to be imported.
    rows = package / "server" / "ops" / "rows.py"
    rows.write_text(
        PACKAGE["server/ops/rows.py"].replace("import twice", "import a_package_that_is_not_there as twice")
    )
    assert sorted(dict(module_sources([(rows, "row_kernel")]))) == ["rows"]
