"""Runs of a host function that returns the same buffer each time, which it keeps in its module."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gemm_tuner.hosts import host_spec_file, kept_outputs
from gemm_tuner.hosts.host_spec import HostProblem
from gemm_tuner.hosts.host_trial import HostTrial
from gemm_tuner.kernels import copies
from gemm_tuner.kernels.check import Unstable
from gemm_tuner.kernels.jury import Jury

# The added value is the parameter ADD, or how often the function was called where that is 0.
SOURCE = """
import torch
import triton
import triton.language as tl

@triton.jit
def added(out, value, ADD: tl.constexpr):
    tl.store(out + tl.arange(0, 8), tl.arange(0, 8) + value + ADD)

KEPT, CALLS = torch.zeros(8), []

def run(n, ADD=0):
    CALLS.append(n)
    added[(1,)](KEPT, len(CALLS) if ADD == 0 else 0, ADD=ADD)
    return KEPT
"""


@pytest.fixture
def trial_and_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[HostTrial, ModuleType]:
    """The kernel is interpreted; "cuda" has the call repeated, which is done on a GPU only."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    return of_source(tmp_path, SOURCE, "added", {"counts": {"ADD": 0}, "three": {"ADD": 3}, "four": {"ADD": 4}})


def of_source(
    folder: Path, source: str, kernel: str, configs: dict[str, dict[str, int]]
) -> tuple[HostTrial, ModuleType]:
    file = folder / "mine.py"
    file.write_text(source)
    spec, _ = host_spec_file.read(f"{file}:{kernel}", f"{file}:run", None)
    script: Any = ModuleType("script")
    script.MODULES, script.CONFIGS = dict(spec.host.modules), configs
    return HostTrial(HostProblem.of(spec, (("n", 8),)), 0, "cuda"), script


def test_repeats_are_compared_with_what_the_first_call_gave(trial_and_script: tuple[HostTrial, ModuleType]) -> None:
    trial, script = trial_and_script
    with pytest.raises(Unstable, match="call 2"):
        trial.outputs(script, "counts")
    assert trial.outputs(script, "three")["output"].tolist() == [*range(3, 11)]


def test_configurations_are_compared_with_what_each_gave(trial_and_script: tuple[HostTrial, ModuleType]) -> None:
    trial, script = trial_and_script
    jury = Jury(trial)
    for name in ("three", "four"):
        jury.hear(script, name)
    assert not any(one.ok for one in jury.verdicts().values())


PARTS = """
import torch
import triton
import triton.language as tl

@triton.jit
def written(out, PART: tl.constexpr):
    tl.store(out + tl.arange(0, 8), tl.arange(0, 8) + 1.0, mask=tl.arange(0, 8) < PART)

ZEROED, EMPTY, DETACHED, KEPT_BY_SIZE = torch.zeros(16), torch.empty(16), torch.empty(8), {}

@torch.inference_mode()
def run(n, PART=8):
    by_size = KEPT_BY_SIZE.setdefault(n, torch.empty(2 * n))
    for out in (ZEROED, EMPTY, DETACHED, by_size):
        written[(1,)](out, PART=PART)
    return ZEROED[:n], EMPTY[:n], DETACHED.detach(), by_size[:n], torch.empty(n)
"""


def test_no_configuration_finds_what_another_wrote_to_a_buffer_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where each is checked by a trial of its own, as with a reference, and where what is returned is a new tensor
    each time."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    trial, script = of_source(tmp_path, PARTS, "written", {"all": {"PART": 8}, "half": {"PART": 4}})
    for name in ("all", "half", "all", "half"):
        trial = HostTrial(trial.problem, 0, "cuda")
        zeroed, empty, detached, by_size, own = trial.outputs(script, name).values()
        written = script.CONFIGS[name]["PART"]
        right = [float(number) for number in range(1, written + 1)]
        assert zeroed.tolist() == [*right, *[0.0] * (8 - written)]
        for one in (empty, detached, by_size):
            assert one[:written].tolist() == right and bool(one[written:].isnan().all())
        assert bool(own.isnan().all())


GEMM = """
import torch
import triton
import triton.language as tl

@triton.jit
def added(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + 1)

KEPT = torch.zeros(8)

def run(n, BLOCK=8):
    added[(1,)](torch.ones(8), KEPT, BLOCK=BLOCK)
    return KEPT
"""


@pytest.mark.parametrize("room", [True, False])
def test_only_what_a_kernel_may_write_is_copied_and_elsewhere_where_memory_is_short(
    room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output, before the first launch."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    made: list[int] = []

    def counted(tensor: Any) -> Any:
        made.append(tensor.data_ptr())
        return copies.copied(tensor)

    monkeypatch.setattr(kept_outputs, "copied", counted)
    monkeypatch.setattr(copies, "has_room", lambda tensor: room)
    trial, script = of_source(tmp_path, GEMM, "added", {"one": {"BLOCK": 8}, "half": {"BLOCK": 4}})
    assert trial.outputs(script, "one")["output"].tolist() == [2.0] * 8
    assert trial.outputs(script, "half")["output"].tolist() == [2.0] * 4 + [0.0] * 4
    assert len(made) == 1
