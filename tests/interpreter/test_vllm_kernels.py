"""The examples for kernels of vLLM, with a stand-in for its package: captured, and right in the interpreter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from host_runner import verdicts
from samples import ROOT, device
from vllm_kernels_stand_in import EXPAND, SHRINK, SSU, written

from gemm_tuner.hosts import host_spec_file
from gemm_tuner.hosts.host_spec import HostProblem
from gemm_tuner.hosts.probe_process import answer

EXAMPLES = ROOT / "examples" / "kernels"
BLOCKS = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 16, "num_warps": 4, "num_stages": 2}
# What vLLM 0.33 launches without a file for the first case of a spec, which is of one token; on sm_90 its launcher sets
# one stage for expand.
DEFAULTS = {
    "vllm_ssu": {"BLOCK_SIZE_M": 4, "num_warps": 4},
    "vllm_lora_shrink": {"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 256, "SPLIT_K": 64, "GROUP_SIZE_M": 8, "num_warps": 4,
                         "num_stages": 2},
    "vllm_lora_expand": {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "num_warps": 4, "num_stages": 1},
}  # fmt: skip
KERNELS = {
    "vllm_ssu": (SSU, "vllm_ssu.py:run", {"BLOCK_SIZE_M": 8, "num_warps": 2}),
    "vllm_lora_shrink": (SHRINK, "vllm_lora.py:shrink", {**BLOCKS, "SPLIT_K": 4, "GROUP_SIZE_M": 8}),
    "vllm_lora_expand": (EXPAND, "vllm_lora.py:expand", BLOCKS),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_servers_kernel_is_captured_and_right(name: str, tmp_path: Path) -> None:
    (file, kernel), host, config = KERNELS[name]
    given = f"{written(tmp_path) / file}:{kernel}", f"{EXAMPLES / host}", EXAMPLES / f"{name}.yaml"
    spec, cases = host_spec_file.read(*given)
    assert set(config) == {parameter for parameter, _ in spec.params}
    one = HostProblem.of(spec, cases[0])
    captured = answer(HostProblem(one.name, one.sha, one.case, spec, device=device("sm_90")))
    assert captured.fault is None, captured.fault
    assert dict(zip([parameter for parameter, _ in spec.params], captured.default or (), strict=True)) == DEFAULTS[name]
    found = verdicts(*given, config, "sm_90")
    assert len(found) == len(spec.check_cases) > 0
    assert all(right and 0 < error <= 1 for right, _, error in found), found


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("vllm_ssu", "tl.store(at, state.to", "tl.store(at, (state * 1.1).to"),
        ("vllm_lora_shrink", "total * scaling", "total"),
        ("vllm_lora_expand", "w += adapter * ls_d0_ptr", "w += 0 * ls_d0_ptr"),
    ],
)
def test_a_wrong_kernel_is_found(name: str, old: str, new: str, tmp_path: Path) -> None:
    (file, kernel), host, config = KERNELS[name]
    path = written(tmp_path) / file
    source = path.read_text()
    assert old in source
    path.write_text(source.replace(old, new))
    found = verdicts(f"{path}:{kernel}", f"{EXAMPLES / host}", EXAMPLES / f"{name}.yaml", config, "sm_90")
    assert not any(right for right, _, _ in found), found


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_of_another_version_is_told(name: str, tmp_path: Path) -> None:
    (file, kernel), host, _ = KERNELS[name]
    path = written(tmp_path) / file
    path.write_text(re.sub(r"\n    (state_ptr|input_ptr), ", r"\n    more, \1, ", path.read_text()))
    spec, cases = host_spec_file.read(f"{path}:{kernel}", f"{EXAMPLES / host}", EXAMPLES / f"{name}.yaml")
    one = HostProblem.of(spec, cases[0])
    captured = answer(HostProblem(one.name, one.sha, one.case, spec, device=device("sm_90")))
    assert captured.fault is not None and "other arguments than vLLM 0.33" in captured.fault[0]
