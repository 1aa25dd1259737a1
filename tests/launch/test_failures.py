"""What an error of a launch says of the process that it happened in."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from samples import ROOT

from gemm_tuner.core.records import Status
from gemm_tuner.launch.failures import is_out_of_memory, status_of

# A function that fails as a kernel of CuTe DSL does whose launch CUDA refuses, with the number of its argument.
FAILS = """
#include <stdint.h>
struct any { int32_t type; int32_t small; int64_t value; };
void CuteDSLRT_TVMFFISetRaisedCudaError(void *, int32_t);
void TVMFFIErrorSetRaisedFromCStrParts(const char *, const char **, int32_t);
int __tvm_ffi_fails(void *self, const struct any *given, int32_t count, struct any *result) {
    CuteDSLRT_TVMFFISetRaisedCudaError((void *)TVMFFIErrorSetRaisedFromCStrParts, (int32_t)given[0].value);
    return -1;
}
"""
STATUSES = {
    700: Status.CRASHED, 716: Status.CRASHED, 719: Status.CRASHED, 2: Status.OUT_OF_RESOURCES,
    701: Status.OUT_OF_RESOURCES, 1: Status.LAUNCH_ERROR, 7000: Status.LAUNCH_ERROR,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "status", "is_of_memory"),
    [
        ("Triton Error [CUDA]: an illegal memory access was encountered", Status.CRASHED, False),
        ("CUDA error: operation not supported on global/shared address space", Status.CRASHED, False),
        ("CUDA out of memory. Tried to allocate 9.00 GiB", Status.OUT_OF_RESOURCES, True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", Status.OUT_OF_RESOURCES, True),
        ("out of resource: shared memory, Required: 300000", Status.OUT_OF_RESOURCES, False),
        ("invalid argument", Status.LAUNCH_ERROR, False),
        *((f"CUDA Error Code: {number}", status, number == 2) for number, status in STATUSES.items()),
    ],
)
def test_the_text_says_whether_the_process_can_go_on(text: str, status: Status, is_of_memory: bool) -> None:
    error = RuntimeError(text)
    assert (status_of(error), is_out_of_memory(error)) == (status, is_of_memory)


def test_what_does_not_fit_is_a_lack_of_memory_whatever_it_says() -> None:
    error = MemoryError("the operands take 90000 MiB, 80000 MiB are free")
    assert status_of(error) is Status.OUT_OF_RESOURCES and is_out_of_memory(error)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is here")
@pytest.mark.skipif(importlib.util.find_spec("nvidia_cutlass_dsl") is None, reason="CuTe DSL is not installed")
@pytest.mark.parametrize("imports", ["", "import cutlass.cutlass_dsl.tvm_ffi_provider\n"])
def test_what_the_runtime_of_cute_dsl_says_is_understood(imports: str, tmp_path: Path) -> None:
    """In a process without the DSL itself, as launchers are, and in one of a user's that has it."""
    (tmp_path / "fails.c").write_text(FAILS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "fails.so", "fails.c"], cwd=tmp_path, check=True)
    code = """
import sys
from pathlib import Path
from gemm_tuner.languages.cute import library
from gemm_tuner.launch.failures import status_of
fails = library.load(Path(sys.argv[1]), "fails")
for number in map(int, sys.argv[2:]):
    try:
        fails(number)
    except Exception as error:
        print(status_of(error).value)
"""
    command = [sys.executable, "-c", imports + code, str(tmp_path / "fails.so"), *map(str, STATUSES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == [status.value for status in STATUSES.values()], done.stderr
