"""Which kernels a run compiles, and how their results reach the configurations that share them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from samples import TEMPLATES, config, device

from gemm_tuner.compile.compile_tasks import (
    interleaved,
    record_compiles,
    task_for,
    tasks_for,
    write_scripts,
)
from gemm_tuner.compile.task_queue import TaskKey, key_of
from gemm_tuner.core.records import CompileResult, Status
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.finish_size import why_nothing_timed
from gemm_tuner.space.size_state import SizeState

DEVICE = device("sm_90")
PROBLEM = GemmProblem(4096, 4096, 4096)
GROUPS = tuple(config(GROUP_SIZE_M=group) for group in (1, 4, 8))
LOOPS = tuple(config(family="gemm_persistent", PROGRAMS_PER_SM=count, GROUP_SIZE_M=8) for count in (0, 1, 2))
STAGES = config(num_stages=4)
EVERY = (*GROUPS, *LOOPS, STAGES)


def state_of(problem: GemmProblem, configs: Iterable[KernelConfig]) -> SizeState:
    """A state that keeps exactly these."""
    configs = list(configs)
    state = prepare.given_state(problem, configs[0], DEVICE)
    state.kept.update({one.name: one for one in configs})
    return state


def test_a_kernel_is_compiled_once_for_all_that_share_it(tmp_path: Path) -> None:
    sizes = (PROBLEM, replace(PROBLEM, m=512))
    wanted = [(problem, one) for problem in sizes for one in EVERY]
    scripts = write_scripts(TEMPLATES, tmp_path, wanted, DEVICE.target)
    tasks = tasks_for(wanted, scripts, DEVICE.target)
    assert sorted(task.name for task in tasks) == sorted({one.kernel_symbol for one in EVERY})
    assert len(tasks) == 4  # GROUPS, two of LOOPS, STAGES
    assert {key_of(task_for(scripts, *one, DEVICE.target)) for one in wanted} == {key_of(task) for task in tasks}


def test_a_script_holds_each_configuration_once_however_the_sizes_take_turns(tmp_path: Path) -> None:
    sizes = (PROBLEM, replace(PROBLEM, dtype_c="fp32"), replace(PROBLEM, m=512))
    turns = [(problem, one) for one in EVERY for problem in sizes]
    scripts = write_scripts(TEMPLATES, tmp_path, turns, DEVICE.target)
    alone = write_scripts(TEMPLATES, tmp_path, [(PROBLEM, one) for one in EVERY], DEVICE.target)
    assert len(scripts) == 4 and scripts.items() >= alone.items()  # two families of two types


@pytest.fixture
def booked(tmp_path: Path) -> tuple[SizeState, SizeState]:
    """Two sizes whose GROUPS compiled, and whose kernel of more stages did not."""
    states = tuple(state_of(replace(PROBLEM, m=m), (*GROUPS, STAGES)) for m in (4096, 512))
    wanted = [(state.problem, one) for state in states for one in state.kept.values()]
    scripts = write_scripts(TEMPLATES, tmp_path, wanted, DEVICE.target)
    results = {}
    for task in tasks_for(wanted, scripts, DEVICE.target):
        fine = task.name == GROUPS[0].kernel_symbol
        status, message = (Status.OK, "") if fine else (Status.COMPILE_ERROR, "no such thing")
        results[key_of(task)] = CompileResult(
            task.name, task.specialization, status, 2.5, 90, 0, 1024, "ab" * 32 if fine else "", message=message
        )
    entered: set[TaskKey] = set()
    for state in states:
        record_compiles(state, state.kept, results, scripts, DEVICE, entered)
    return states[0], states[1]


def test_every_configuration_gets_the_result_of_its_kernel(booked: tuple[SizeState, SizeState]) -> None:
    for state in booked:
        assert {state.rows[one.name]["registers"] for one in GROUPS} == {90}
        assert {state.rows[one.name]["binary_hash"] for one in GROUPS} == {"ab" * 32}
        assert state.named(Status.COMPILE_ERROR) == [STAGES.name]
        assert [name for name in state.kept if state.is_compiled(name)] == [one.name for one in GROUPS]


def test_the_seconds_of_a_kernel_are_booked_once(booked: tuple[SizeState, SizeState]) -> None:
    seconds = [state.rows[name]["compile_s"] for state in booked for name in state.kept]
    assert sorted(seconds) == [0.0] * 6 + [2.5] * 2


def test_a_failure_costs_all_that_share_the_kernel(tmp_path: Path) -> None:
    state = state_of(PROBLEM, GROUPS)
    wanted = [(PROBLEM, one) for one in GROUPS]
    scripts = write_scripts(TEMPLATES, tmp_path, wanted, DEVICE.target)
    key = key_of(task_for(scripts, PROBLEM, GROUPS[0], DEVICE.target))
    failed = CompileResult(key[1], key[2], Status.COMPILE_TIMEOUT, 60.0, message="not compiled within 60 s")
    record_compiles(state, state.kept, {key: failed}, scripts, DEVICE, set())
    assert state.named(Status.COMPILE_TIMEOUT) == [one.name for one in GROUPS]


def test_where_time_may_run_out_the_first_of_each_size_come_first(tmp_path: Path) -> None:
    small, large = config(BLOCK_SIZE_M=64, BLOCK_SIZE_N=64), config(num_stages=5)
    fp16 = replace(PROBLEM, dtype_a="fp16", dtype_b="fp16", dtype_c="fp16")
    states = [state_of(size, (small, large)) for size in (PROBLEM, fp16)]
    wanted = interleaved((state, list(state.kept)) for state in states)
    assert wanted == [(size, one) for one in (small, large) for size in (PROBLEM, fp16)]
    scripts = write_scripts(TEMPLATES, tmp_path, wanted, DEVICE.target)
    in_order, longest_first = (
        [task.name for task in tasks_for(wanted, scripts, DEVICE.target, longest_first=longest)]
        for longest in (False, True)
    )
    assert in_order == [small.kernel_symbol] * 2 + [large.kernel_symbol] * 2 == longest_first[::-1]


def test_spills_drop_what_the_search_made_and_never_what_the_user_gave(tmp_path: Path) -> None:
    given = prepare.given_state(PROBLEM, GROUPS[0], DEVICE)
    searched, admitted = (replace(state_of(PROBLEM, GROUPS), given=set()) for _ in range(2))
    admitted.add(GROUPS[0], 1.0)
    scripts = write_scripts(TEMPLATES, tmp_path, [(PROBLEM, one) for one in GROUPS], DEVICE.target)
    key = key_of(task_for(scripts, PROBLEM, GROUPS[0], DEVICE.target))
    for state in (searched, given, admitted):
        record_compiles(
            state, state.kept, {key: CompileResult(key[1], key[2], Status.OK, spills=999)}, scripts, DEVICE, set()
        )
    assert len(searched.named(Status.SPILLED)) == len(GROUPS)
    assert given.may_run(GROUPS[0].name) and admitted.may_run(GROUPS[0].name)
    assert admitted.named(Status.SPILLED) == [one.name for one in GROUPS[1:]]
    # What cannot run at all does not: shared memory is a limit and no heuristic.
    large = CompileResult(key[1], key[2], Status.OK, shared_bytes=DEVICE.shared_memory_bytes + 1)
    record_compiles(given, given.kept, {key: large}, scripts, DEVICE, set())
    assert given.why_not(GROUPS[0].name).startswith("out_of_resources: ")
    assert why_nothing_timed(given).startswith("the given configuration could not run: out_of_resources: ")


def test_a_result_is_found_from_another_folder_and_beside_other_configurations(tmp_path: Path) -> None:
    """Its key names no path, and the script of a later start may hold more; other kernels have other keys."""
    fp16 = replace(PROBLEM, dtype_a="fp16", dtype_b="fp16", dtype_c="fp16")
    pairs = [(PROBLEM, STAGES), (fp16, STAGES), (PROBLEM, LOOPS[0])]
    keys = []
    for folder, more in ((tmp_path / "one", []), (tmp_path / "other", [(PROBLEM, GROUPS[0]), (fp16, GROUPS[0])])):
        folder.mkdir()
        scripts = write_scripts(TEMPLATES, folder, [*pairs, *more], DEVICE.target)
        keys.append([key_of(task_for(scripts, *pair, DEVICE.target)) for pair in pairs])
    assert keys[0] == keys[1] and len(set(keys[0])) == 3
