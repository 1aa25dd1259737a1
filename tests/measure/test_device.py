"""Which GPU a run is for, and what it does without one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import cuda_driver_stand_in
import pytest
from samples import NO_GPU, RULES, TEMPLATES, device, gpu

from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EXIT_INPUT, EnvironmentFault, UserError
from gemm_tuner.measure import device as devices
from gemm_tuner.measure.device import Machine, choose_gpus, measured_device
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.run_options import RunOptions

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is here")
TWO_H200 = Machine((gpu(0), gpu(1)), NO_GPU.versions, "570.1")
MIXED = Machine((gpu(0), gpu(1, "NVIDIA A100", "sm_80")), NO_GPU.versions, "570.1")


def asked(**changes: object) -> RunOptions:
    return replace(RunOptions((), TEMPLATES, RULES, Path("results")), **changes)


def found(machine: Machine, monkeypatch: pytest.MonkeyPatch, **changes: object) -> prepare.Environment:
    monkeypatch.setattr(devices, "look", lambda: machine)
    return prepare.find_environment(asked(**changes))


@pytest.mark.parametrize(
    ("machine", "gpu_ids", "ngpus", "chosen"),
    [
        (TWO_H200, None, None, (0,)),
        (TWO_H200, None, 2, (0, 1)),
        (TWO_H200, (1,), None, (1,)),
        (TWO_H200, (1, 0), None, (1, 0)),
        (MIXED, (1,), None, (1,)),
    ],
)
def test_the_gpus_asked_for(
    machine: Machine, gpu_ids: tuple[int, ...] | None, ngpus: int | None, chosen: tuple[int, ...]
) -> None:
    assert choose_gpus(machine, gpu_ids, ngpus) == chosen


@pytest.mark.parametrize(
    ("machine", "gpu_ids", "ngpus", "status", "words"),
    [
        (TWO_H200, (7,), None, EXIT_INPUT, ["--gpu_ids", "no GPU 7", "accepted: 0, 1"]),
        (TWO_H200, (0, 0), None, EXIT_INPUT, ["--gpu_ids", "twice"]),
        (TWO_H200, None, 3, EXIT_INPUT, ["--ngpus", "no 3 GPUs", "1 to 2"]),
        (MIXED, (0, 1), None, EXIT_INPUT, ["--gpu_ids", "0: NVIDIA H200, 1: NVIDIA A100", "one kind"]),
        (MIXED, None, 2, EXIT_INPUT, ["--ngpus", "several kinds"]),
        (NO_GPU, (0,), None, EXIT_ENVIRONMENT, ["--gpu_ids", "no GPU", "predicted"]),
        (NO_GPU, None, 1, EXIT_ENVIRONMENT, ["--ngpus", "no GPU", "predicted"]),
    ],
)
def test_gpus_that_are_not_there(
    machine: Machine,
    gpu_ids: tuple[int, ...] | None,
    ngpus: int | None,
    status: int,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UserError) as caught:
        found(machine, monkeypatch, gpu_ids=gpu_ids, ngpus=ngpus)
    assert caught.value.exit_status == status
    assert [word for word in words if word not in caught.value.one_line()] == []


def test_a_gpu_at_hand_is_used_and_described(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(({**gpu(0), "num_sms": 114, "l2_bytes": 0},), NO_GPU.versions, "570.1")
    environment = found(machine, monkeypatch)
    assert (environment.source, environment.gpus, environment.device.target.arch) == ("measured", (0,), "sm_90")
    assert (environment.device.num_sms, environment.device.l2_bytes) == (114, device("sm_90").l2_bytes)
    assert found(machine, monkeypatch, arch="sm_90").source == "measured"
    assert found(MIXED, monkeypatch, gpu_ids=(1,)).device.target.arch == "sm_80"


def test_amd_devices_keep_what_torch_does_not_know() -> None:
    mi300x = measured_device(device("gfx942"), {**gpu(0, "AMD Instinct MI300X", "gfx942"), "num_sms": 228})
    assert (mi300x.num_sms, mi300x.l2_bytes) == (228, device("gfx942").l2_bytes)
    assert mi300x.shared_memory_bytes == 65536


@pytest.mark.parametrize(("arch", "expected"), [("", "sm_90"), ("gfx942", "gfx942")])
def test_without_a_gpu_the_times_are_predicted(monkeypatch: pytest.MonkeyPatch, arch: str, expected: str) -> None:
    environment = found(NO_GPU, monkeypatch, arch=arch)
    assert (environment.source, environment.gpus) == ("predicted", ())
    assert environment.device == device(expected)


def test_a_gpu_of_another_architecture_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = found(TWO_H200, monkeypatch, arch="gfx942")
    assert (environment.source, environment.device) == ("predicted", device("gfx942"))
    with pytest.raises(UserError, match="--arch: GPU 1 is sm_90, not gfx942"):
        found(TWO_H200, monkeypatch, arch="gfx942", gpu_ids=(1,))


@pytest.mark.parametrize(
    ("machine", "arch", "words"),
    [(NO_GPU, "", "torch sees no GPU.*sm_90.*under nsys"), (TWO_H200, "gfx942", "GPU is sm_90.*gfx942.*under nsys")],
)
def test_a_profiler_asked_for_is_never_left_out_silently(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, arch: str, words: str
) -> None:
    with pytest.raises(UserError, match=words) as caught:
        found(machine, monkeypatch, arch=arch, profiler="nsys")
    assert caught.value.exit_status == EXIT_ENVIRONMENT
    assert found(TWO_H200, monkeypatch, profiler="nsys").source == "measured"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'ImportError: libcuda is broken' >&2; exit 1", ["ImportError: libcuda is broken", "import torch"]),
        ("exit 1", ["no output"]),
    ],
)
def test_a_probe_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: list[str]) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(devices.sys, "executable", str(python))
    with pytest.raises(UserError) as caught:
        devices.look()
    assert caught.value.exit_status == EXIT_ENVIRONMENT
    assert [word for word in words if word not in caught.value.one_line()] == []


@pytest.mark.parametrize(
    ("versions", "imported"),
    [
        ("cuda = None\nhip = None\n", False),
        ("cuda = '13.0'\nhip = None\n", True),
        ("cuda = None\nhip = '7.0'\n", True),
        ("debug = False\n", True),
        (None, True),
    ],
)
def test_torch_is_imported_only_where_it_was_built_for_gpus(
    versions: str | None, imported: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its import says that it ran, as an error does."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('torch was imported')\n")
    if versions is not None:
        (tmp_path / "torch" / "version.py").write_text(versions)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if imported:
        with pytest.raises(UserError, match="torch was imported"):
            devices.look()
    else:
        assert devices.look().gpus == ()


def broken_torch(folder: Path, cuda: str) -> None:
    """A torch that is not to be imported."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("raise OSError('torch was imported')\n")
    (folder / "torch" / "version.py").write_text(f"cuda = {cuda!r}\nhip = None\n")


def test_what_a_thread_that_looks_finds_or_raises_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "look", lambda: TWO_H200)
    assert devices.begin_to_look().result(timeout=240) is TWO_H200

    def fails() -> Machine:
        raise EnvironmentFault("the driver is hung")

    monkeypatch.setattr(devices, "look", fails)
    with pytest.raises(EnvironmentFault, match="the driver is hung"):
        prepare.find_environment(asked(looking=devices.begin_to_look()))


@needs_compiler
def test_the_driver_is_asked_in_place_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_torch(tmp_path, "13.0")
    cuda_driver_stand_in.build(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    first, second = devices.look().gpus
    assert first == {
        "id": 0, "uuid": "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "pci": "0001:c3:00", "name": "NVIDIA H200",
        "arch": "sm_90", "num_sms": 132, "memory_bytes": 150110011392, "l2_bytes": 62914560,
        "shared_memory_bytes": 232448,
    }  # fmt: skip
    assert second == {**first, "id": 1, "uuid": "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f", "pci": "0001:c4:00"}


@needs_compiler
@pytest.mark.parametrize(
    ("driver", "cuda"),
    [("no device", "13.0"), ("old", "13.0"), ("a part", "13.0"), ("no function", "13.0"), ("", "of no number")],
)
def test_torch_is_asked_where_the_driver_does_not_tell_what_it_sees(
    driver: str, cuda: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_torch(tmp_path, cuda)
    cuda_driver_stand_in.build(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("STAND_IN_CUDA", driver)
    with pytest.raises(UserError, match="torch was imported"):
        devices.look()


def test_processes_that_number_a_gpu_differently_lock_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    nameless = {"arch": "sm_90", "uuid": "", "pci": ""}
    locks = []
    for visible, number in (("", 1), ("1", 0), ("2,1", 1)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        locks.append(devices.lock_name_here({**nameless, "id": number}))
    assert locks == ["number-1"] * 3
    assert devices.lock_name_here({**nameless, "id": 0, "uuid": "GPU-ab"}) == "GPU-ab"
