"""The examples with host functions: captured for every case; nothing is compiled here."""

from __future__ import annotations

import pytest
from test_probe import DEVICE, ROOT

from gemm_tuner.hosts import host_spec_file
from gemm_tuner.hosts.host_spec import HostProblem
from gemm_tuner.hosts.probe_process import answer
from gemm_tuner.kernels.kernel_spec import Case

EXAMPLES = ROOT / "examples" / "kernels"


@pytest.mark.parametrize(
    ("file", "kernel", "configurations"),
    [("layer_norm", "layer_norm_rows", 9), ("attention", "attention_rows", 24), ("grouped_gemm", "grouped_matmul", 10)],
)
def test_every_case_of_an_example_is_captured(file: str, kernel: str, configurations: int) -> None:
    path = EXAMPLES / f"{file}.py"
    spec, cases = host_spec_file.read(f"{path}:{kernel}", f"{path}:run", path.with_suffix(".yaml"))

    def listed(case: Case) -> int:
        one = HostProblem.of(spec, case)
        found = answer(HostProblem(one.name, one.sha, case, spec, device=DEVICE))
        assert found.fault is None, found.fault
        return len(found.listed or ())

    assert max(listed(case) for case in cases) == configurations
    assert all(listed(case) for case in spec.check_cases)
