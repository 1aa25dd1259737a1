"""NVIDIA's CuTe DSL itself, without a GPU; skipped where it is not installed: pip install '.[cute]'."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cute_copy import copy
from samples import ROOT

import gemm_tuner as gt
from gemm_tuner.core.records import Status

# Of a checkout of https://github.com/NVIDIA/cutlass; examples/kernels/cute_gemm.py names the commit.
EXAMPLES = os.environ.get("CUTLASS_EXAMPLES", "")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="CuTe DSL is not installed")


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path_factory.mktemp("cute")))
        yield


def test_a_kernel_is_compiled_named_and_loaded_without_the_dsl(tmp_path: Path) -> None:
    configs = [{"threads": 64}, {"threads": 64, "fault": "aborts"}, {"threads": 128}]
    compiled = gt.par_compile(copy, configs, target="sm_90", language="cute", num_workers=1)
    assert [one.status for one in compiled] == [Status.OK, Status.COMPILE_ERROR, Status.OK], compiled
    assert compiled[1].reason == "the compiler died (exit -6)"
    assert all(one.registers >= 8 and one.spills == one.shared_bytes == 0 for one in (compiled[0], compiled[2]))
    assert b".text.kernel_threads64_number0_0\0" in compiled[0].binary
    assert compiled[0].binary_hash != compiled[2].binary_hash
    gt.save_compiled(compiled, tmp_path / "kernels.json")
    code = (
        "import sys, torch, gemm_tuner as gt\n"
        "launch = gt.load_compiled(gt.read_compiled(sys.argv[1])[0])\n"
        "assert 'cutlass' not in sys.modules\n"
        "try: launch(*[torch.zeros(4, 64, dtype=torch.bfloat16)] * 2)\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "kernels.json"], cwd=ROOT, capture_output=True, text=True
    )
    assert "expected device_type=cuda" in done.stdout, done.stderr
    # The end of a process that has called it does not call the runtime to unload it: no profiler need know that.
    libraries = list(Path(os.environ["GEMM_TUNER_CACHE_DIR"]).rglob("kernel.so"))
    assert libraries and not any(b"cuda_dialect_unload" in one.read_bytes() for one in libraries)


@pytest.mark.skipif(not EXAMPLES, reason="CUTLASS_EXAMPLES names no folder of NVIDIA's examples")
def test_the_space_of_blackwell_has_registers_without_a_gpu() -> None:
    file = Path(EXAMPLES, "cute/blackwell/kernel/dense_gemm/dense_gemm_persistent.py")
    example = ROOT / "examples" / "kernels" / "cute_gemm.py"
    command = [sys.executable, example, "--kernel_from", file, "--arch", "sm_100", "--compile_only", "--workers", "2"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    ok = {" ".join(row[5:]): tuple(map(int, row[:3])) for row in rows if row[4] == "ok"}
    assert len(rows) == 40 and len(ok) >= 16
    assert all(registers > 32 and shared > 100_000 for registers, _, shared in ok.values())
