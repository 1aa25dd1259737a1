"""What host functions launch, captured on tensors without memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gemm_tuner.core.records import Device
from gemm_tuner.hosts import host_spec_file
from gemm_tuner.hosts.captured import compiled_launches
from gemm_tuner.hosts.host_code import HostCode
from gemm_tuner.hosts.host_errors import HostError
from gemm_tuner.hosts.module_loader import UserModules
from gemm_tuner.hosts.redirection import META, redirected
from gemm_tuner.hosts.stand_in_device import described
from gemm_tuner.languages.triton.launch_recorder import Recorder
from gemm_tuner.space import space

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(__file__).with_name("host_sample.py")


@pytest.fixture(scope="module")
def device() -> Device:
    return space.load(ROOT / "rules" / "space_sm_90.yaml", "sm_90").device


@pytest.fixture
def on_no_gpu(device: Device) -> Iterator[None]:
    with described(device), redirected(META):
        yield


def captured(kernel: str, host: str, params: dict[str, Any], **case: Any) -> Recorder:
    spec, _ = host_spec_file.read(f"{SAMPLE}:{kernel}", f"{SAMPLE}:{host}", None)
    code = HostCode(spec, UserModules(dict(spec.host.modules)))
    return code.call(tuple(case.items()), params, 0, runs=False)[0]


def names(recorder: Recorder) -> list[str]:
    return [symbol.partition("__")[0] for symbol, *_ in recorder.launches]


@pytest.mark.usefixtures("on_no_gpu")
def test_every_launch_is_captured_and_the_tuned_kernel_has_the_configuration() -> None:
    found = captured("doubled", "three_launches", {"BLOCK": 32, "num_warps": 2, "SHIFT_BLOCK": 64}, n=100)
    assert names(found) == ["doubled", "shifted", "shifted"] and found.tuned_at == [0]
    grids, options = [launch[2] for launch in found.launches], found.launches[0][4]
    assert grids == [(4,), (2,), (2,)]  # by the configuration's BLOCK, not by the host's own
    assert options == {"BLOCK": 32, "num_warps": 2} and "num_warps" not in found.launches[1][4]
    assert found.launches[1][0] == found.launches[2][0]
    first, *others = compiled_launches(found.launches, found.tuned_at)
    assert first[0].startswith("doubled__") and len(others) == 2
    assert [one.ptr_range() for one in first[3][:2]] == [400, 400]


@pytest.mark.usefixtures("on_no_gpu")
def test_a_symbol_names_the_constants_of_a_kernel() -> None:
    """Triton's cache does not know symbols: one binary must have one, whichever configuration asks for it."""
    one, other = (captured("doubled", "three_launches", {"BLOCK": block}, n=100) for block in (32, 64))
    assert one.launches[0][0] != other.launches[0][0]
    assert one.launches[1][0] == other.launches[1][0]
    as_arguments = captured("doubled", "three_launches", {"BLOCK": 32}, n=999)
    assert as_arguments.launches[0][0] == one.launches[0][0]


@pytest.mark.usefixtures("on_no_gpu")
def test_tritons_own_tuning_is_replaced_and_heuristics_stay() -> None:
    found = captured("tuned_copy", "copy", {}, n=64)
    assert [config["BLOCK"] for config in found.listed or []] == [16, 32]  # 4096 is pruned by the user's function
    for block, even in ((16, True), (32, True), (24, False)):  # 24 is not listed: the spec may try it
        _, _, grid, args, options = captured("tuned_copy", "copy", {"BLOCK": block}, n=64).launches[0]
        assert grid == (-(-64 // block),) and options["BLOCK"] == block and options["EVEN"] is even
        assert args[1].hooked == block


@pytest.mark.usefixtures("on_no_gpu")
def test_the_architectures_file_answers_for_the_gpu(device: Device) -> None:
    _, _, grid, args, options = captured("doubled", "persistent", {}, n=50).launches[0]
    assert grid == (device.num_sms,) and options["BLOCK"] == device.shared_memory_bytes // 1024
    described_x = compiled_launches([("", None, grid, args, {})], [0])[0][3][1]
    assert described_x.data_ptr() == 4 and described_x.ptr_range() == 200  # not aligned: x[1:]


@pytest.mark.usefixtures("on_no_gpu")
@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("reads_registers", "reads_registers reads n_regs of the compiled doubled"),
        ("reads_values", "reads_values reads values of a tensor"),
        ("launches_nothing", "launches_nothing launches no doubled"),
        ("launches_another", "launches no doubled, only shifted"),
    ],
)
def test_what_cannot_be_captured_is_said(host: str, words: str) -> None:
    with pytest.raises(HostError, match=words) as caught:
        captured("doubled", host, {}, n=16)
    assert caught.value.by_spec is host.startswith("reads")


def test_what_takes_the_place_of_torch_and_triton_is_gone_afterwards(device: Device) -> None:
    import torch
    from triton.runtime import JITFunction

    before = torch.cuda.get_device_properties, torch.Generator, JITFunction.run
    with described(device), redirected(META), pytest.raises(HostError):
        captured("doubled", "reads_values", {}, n=16)
    assert before == (torch.cuda.get_device_properties, torch.Generator, JITFunction.run)
    assert torch.ones(2).sum().item() == 2
