"""What is replayed computes what the host function does: in Triton's interpreter, on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from test_probe import DEVICE, problem

from gemm_tuner.core.workload import PreparedLaunches, launch_all
from gemm_tuner.hosts.host_spec import HostProblem
from gemm_tuner.hosts.redirection import CPU, redirected
from gemm_tuner.hosts.stand_in_device import described
from gemm_tuner.hosts.workload import WORKLOAD, HostInputs
from gemm_tuner.kernels.kernel_spec import Function
from gemm_tuner.languages.scratch import Scratch
from gemm_tuner.launch.candidates import Candidate


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    import triton

    with triton.knobs.runtime.scope():
        triton.knobs.runtime.interpret = True
        yield


def script_of(one: HostProblem, **config: Any) -> ModuleType:
    script = ModuleType("script")
    script.MODULES, script.CONFIGS = dict(one.spec_there.host.modules), {"it": {"name": "it", "binary": "it", **config}}
    return script


def captured(one: HostProblem, inputs: HostInputs | None = None, **config: Any) -> PreparedLaunches:
    script = script_of(one, **config)
    with described(DEVICE), redirected(CPU):
        found = WORKLOAD.launches(script, script.CONFIGS["it"], one, inputs or HostInputs(0), Scratch(), 1)
    assert isinstance(found, PreparedLaunches)
    return found


def test_a_replay_computes_the_same_each_time() -> None:
    launches = captured(problem("doubled", "three_launches", n=50), BLOCK=16, SHIFT_BLOCK=8)
    out, x = launches[0][3][:2]
    assert not out.any() and x.any()  # nothing has run: what it left empty is zero
    for _ in range(2):
        launch_all(launches)
        assert out.allclose(2 * x + 2)
    assert launches.ready is None


def test_what_triton_would_reset_and_restore_is_before_each_replay() -> None:
    launches = captured(problem("added", "add", n=50), BLOCK=16)
    out, x = launches[0][3][:2]
    first = x.clone()
    candidate = Candidate(0, "it", [launches], [launches.ready] if launches.ready else [])
    for _ in range(2):
        candidate.prepare()
        launch_all(launches)
        assert (out == first).all() and (x == first + 1).all()


def test_configurations_share_inputs_and_no_outputs() -> None:
    one, inputs = problem("doubled", "three_launches", n=50), HostInputs(0)
    first = captured(one, inputs, BLOCK=16)
    launch_all(first)
    second = captured(one, inputs, BLOCK=32)
    (out, x), (other_out, other_x) = first[0][3][:2], second[0][3][:2]
    assert x.data_ptr() == other_x.data_ptr() and out.data_ptr() != other_out.data_ptr()
    assert other_out.data_ptr() == second[1][3][0].data_ptr() == second[2][3][0].data_ptr()
    other_seed = captured(one, replace(inputs, seed=1), BLOCK=32)[0][3][1]
    assert other_seed.data_ptr() != x.data_ptr() and not (other_seed == x).all()


def test_what_is_restored_is_not_shared() -> None:
    """Each configuration's call finds its own as it was; x of the first is changed by then only if it ran."""
    one, inputs = problem("added", "add", n=50), HostInputs(0)
    x, other = (captured(one, inputs, BLOCK=16)[0][3][1] for _ in range(2))
    assert (x == other).all() and x.data_ptr() != other.data_ptr()


def test_tensors_of_which_a_kernel_has_addresses_stay() -> None:
    launches = captured(problem("shifted", "by_address", n=50), num_warps=1)
    assert launches[0][3][0].tolist() == [one.data_ptr() for one in launches.kept]


@pytest.mark.parametrize(("relation", "right"), [("==", True), ("!=", False)])
def test_a_check_has_the_inputs_as_they_were_before_the_launch(relation: str, right: bool) -> None:
    """x is changed in place by the launch; the user's check gets it as it was, case values by name, and the outputs."""
    one = problem("added", "add", n=50)
    right_n = 'torch.full((), 50, device="cuda") == n'
    source = f"import torch\ndef check(outputs, x, n):\n    return {right_n} and (outputs[0] {relation} x).all()\n"
    judged = replace(one.spec_there, manual_check=Function("check", source, ("outputs", "x", "n")))
    one = replace(one, spec=judged)
    assert WORKLOAD.check(script_of(one, BLOCK=16), one, "it", 3, "cpu").ok is right


def test_what_the_kernel_leaves_out_shows() -> None:
    """Outputs are NaN before the call: half of them stay so."""
    one = problem("doubled", "three_launches", n=50)
    source = "def reference(x, dtype):\n    return 2 * x.to(dtype) + 2\n"
    one = replace(one, spec=replace(one.spec_there, reference=Function("reference", source, ("x", "dtype"))))
    assert WORKLOAD.check(script_of(one, BLOCK=16), one, "it", 3, "cpu").ok
    halved = dict(one.spec_there.host.modules)
    halved["host_sample"] = halved["host_sample"].replace('(triton.cdiv(n, meta["BLOCK"]),)', "(2,)")
    one = replace(one, spec=replace(one.spec_there, host=replace(one.spec_there.host, modules=tuple(halved.items()))))
    verdict = WORKLOAD.check(script_of(one, BLOCK=16), one, "it", 3, "cpu")
    assert not verdict.ok and "output[32] is nan" in verdict.message
