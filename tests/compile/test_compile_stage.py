"""Which kernels a run compiles, and how their results reach the configurations that share them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from samples import TEMPLATES, config, device

from gemm_tuner.compile.compile_stage import Binary, binary_of, book, tasks_for, write_scripts
from gemm_tuner.core.records import CompileResult, KernelConfig, Status
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.compiling import pairs
from gemm_tuner.pipeline.tune import why_nothing_timed
from gemm_tuner.space.ledger import Ledger

DEVICE = device("sm_90")
PROBLEM = GemmProblem(4096, 4096, 4096)
GROUPS = tuple(config(GROUP_SIZE_M=group) for group in (1, 4, 8))
LOOPS = tuple(config(family="gemm_persistent", PROGRAMS_PER_SM=count, GROUP_SIZE_M=8) for count in (0, 1, 2))
STAGES = config(num_stages=4)
EVERY = (*GROUPS, *LOOPS, STAGES)


def ledger_of(problem: GemmProblem, configs: Iterable[KernelConfig]) -> Ledger:
    """A ledger that keeps exactly these."""
    configs = list(configs)
    ledger = prepare.given_ledger(problem, configs[0], DEVICE)
    ledger.kept.update({one.name: one for one in configs})
    return ledger


def test_a_kernel_is_compiled_once_for_all_that_share_it(tmp_path: Path) -> None:
    sizes = (PROBLEM, replace(PROBLEM, m=512))
    wanted = [(problem, one) for problem in sizes for one in EVERY]
    scripts = write_scripts(TEMPLATES, tmp_path, wanted, DEVICE.target)
    tasks = tasks_for(wanted, scripts, DEVICE.target)
    assert sorted(task.name for task in tasks) == sorted({one.binary_name for one in EVERY})
    assert len(tasks) == 4  # GROUPS, two of LOOPS, STAGES
    assert {binary_of(scripts, *one, DEVICE.target) for one in wanted} == {
        (t.script, t.name, t.specialisation) for t in tasks
    }


@pytest.fixture
def booked(tmp_path: Path) -> tuple[Ledger, Ledger]:
    """Two sizes whose GROUPS compiled, and whose kernel of more stages did not."""
    ledgers = tuple(ledger_of(replace(PROBLEM, m=m), (*GROUPS, STAGES)) for m in (4096, 512))
    wanted = [(ledger.problem, one) for ledger in ledgers for one in ledger.kept.values()]
    scripts = write_scripts(TEMPLATES, tmp_path, wanted, DEVICE.target)
    results = {}
    for task in tasks_for(wanted, scripts, DEVICE.target):
        fine = task.name == GROUPS[0].binary_name
        status, message = (Status.OK, "") if fine else (Status.COMPILE_ERROR, "no such thing")
        results[task.script, task.name, task.specialisation] = CompileResult(
            task.name, task.specialisation, status, 2.5, 90, 0, 1024, "ab" * 32 if fine else "", message=message
        )
    entered: set[Binary] = set()
    for ledger in ledgers:
        book(ledger, ledger.kept, results, scripts, DEVICE, entered)
    return ledgers[0], ledgers[1]


def test_every_configuration_gets_the_result_of_its_kernel(booked: tuple[Ledger, Ledger]) -> None:
    for ledger in booked:
        assert {ledger.rows[one.name]["registers"] for one in GROUPS} == {90}
        assert {ledger.rows[one.name]["binary_hash"] for one in GROUPS} == {"ab" * 32}
        assert ledger.named(Status.COMPILE_ERROR) == [STAGES.name]
        assert [name for name in ledger.kept if ledger.is_compiled(name)] == [one.name for one in GROUPS]


def test_the_seconds_of_a_kernel_are_booked_once(booked: tuple[Ledger, Ledger]) -> None:
    seconds = [ledger.rows[name]["compile_s"] for ledger in booked for name in ledger.kept]
    assert sorted(seconds) == [0.0] * 6 + [2.5] * 2


def test_a_failure_costs_all_that_share_the_kernel(tmp_path: Path) -> None:
    ledger = ledger_of(PROBLEM, GROUPS)
    wanted = [(PROBLEM, one) for one in GROUPS]
    scripts = write_scripts(TEMPLATES, tmp_path, wanted, DEVICE.target)
    key = binary_of(scripts, PROBLEM, GROUPS[0], DEVICE.target)
    failed = CompileResult(key[1], key[2], Status.COMPILE_TIMEOUT, 60.0, message="not compiled within 60 s")
    book(ledger, ledger.kept, {key: failed}, scripts, DEVICE, set())
    assert ledger.named(Status.COMPILE_TIMEOUT) == [one.name for one in GROUPS]


def test_where_time_may_run_out_the_first_of_each_size_come_first(tmp_path: Path) -> None:
    small, large = config(BLOCK_SIZE_M=64, BLOCK_SIZE_N=64), config(num_stages=5)
    fp16 = replace(PROBLEM, dtype_a="fp16", dtype_b="fp16", dtype_c="fp16")
    ledgers = [ledger_of(size, (small, large)) for size in (PROBLEM, fp16)]
    wanted = pairs((ledger, list(ledger.kept)) for ledger in ledgers)
    assert wanted == [(size, one) for one in (small, large) for size in (PROBLEM, fp16)]
    scripts = write_scripts(TEMPLATES, tmp_path, wanted, DEVICE.target)
    in_order, longest_first = (
        [task.name for task in tasks_for(wanted, scripts, DEVICE.target, longest_first=longest)]
        for longest in (False, True)
    )
    assert in_order == [small.binary_name] * 2 + [large.binary_name] * 2 == longest_first[::-1]


def test_spills_drop_what_the_search_made_and_never_what_the_user_gave(tmp_path: Path) -> None:
    given = prepare.given_ledger(PROBLEM, GROUPS[0], DEVICE)
    searched, admitted = (replace(ledger_of(PROBLEM, GROUPS), given=set()) for _ in range(2))
    admitted.admit(GROUPS[0], 1.0)
    scripts = write_scripts(TEMPLATES, tmp_path, [(PROBLEM, one) for one in GROUPS], DEVICE.target)
    key = binary_of(scripts, PROBLEM, GROUPS[0], DEVICE.target)
    for ledger in (searched, given, admitted):
        book(ledger, ledger.kept, {key: CompileResult(key[1], key[2], Status.OK, spills=999)}, scripts, DEVICE, set())
    assert len(searched.named(Status.SPILLED)) == len(GROUPS)
    assert given.may_run(GROUPS[0].name) and admitted.may_run(GROUPS[0].name)
    assert admitted.named(Status.SPILLED) == [one.name for one in GROUPS[1:]]
    # What cannot run at all does not: shared memory is a limit and no heuristic.
    large = CompileResult(key[1], key[2], Status.OK, shared_bytes=DEVICE.shared_memory_bytes + 1)
    book(given, given.kept, {key: large}, scripts, DEVICE, set())
    assert given.why_not(GROUPS[0].name).startswith("out_of_resources: ")
    assert why_nothing_timed(given).startswith("the given configuration could not run: out_of_resources: ")
