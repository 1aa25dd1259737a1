"""What a run that goes on compiles again, with real workers."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from samples import TEMPLATES, config, problem
from tuning import session, state_of
from waits import wait_until

from gemm_tuner.compile import compile_tasks
from gemm_tuner.compile.same_code import duplicates
from gemm_tuner.compile.task_queue import key_of
from gemm_tuner.core.records import CompileResult, Status, Timing
from gemm_tuner.languages import kernel_cache
from gemm_tuner.languages.kernel_cache import evict, in_use
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.languages.triton.symbol_naming import naming
from gemm_tuner.pipeline.compile_stage import common_reason
from gemm_tuner.pipeline.run_log import RunLog
from gemm_tuner.pipeline.session import Session
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.store import run_folder
from gemm_tuner.store.store import Store

SIZE = problem(64, 64, 64)
SMALL = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "BLOCK_SIZE_K": 16, "num_warps": 1}
CONFIGS = tuple(config(num_stages=stages, **SMALL) for stages in (1, 2))


def compiled(of: Session, count: int) -> tuple[SizeState, dict[str, int]]:
    """The state of a run that goes on, the first ``count`` wanted, and what it had to compile."""
    state, here = state_of(SIZE, CONFIGS), replace(of, log=RunLog(of.log.console, of.log.out))
    state.record_timing(Timing(SIZE, CONFIGS[1].name, Status.OK, (1.0,)), "screen")
    with here.compile_stage(here.write_scripts((SIZE, one) for one in CONFIGS)) as compiling:
        compiling.restore([state])
        compiling.compile_sizes([(state, [one.name for one in CONFIGS[:count]])], "compile")
    return state, here.log.facts


def test_a_run_whose_cache_is_gone_compiles_again_what_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "cache"))
    run = session(tmp_path, SIZE, compile_workers=1)
    assert compiled(run, 2)[1]["kernels compiled"] == 3  # one of them for the measurement itself
    assert compiled(run, 2)[1] == {"kernels compiled": 0, "kernels found in the cache": 0}
    shutil.rmtree(run.folder.cache)
    run.folder.make()
    state, facts = compiled(run, 1)
    assert facts["kernels compiled"] == 2
    assert state.rows[CONFIGS[1].name]["registers"] > 0  # it was timed: what is known of it counts on
    assert compiled(run, 2)[1]["kernels compiled"] > 0  # the second is not in the new cache


def test_the_time_that_is_left_falls_with_what_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "cache"))
    run, state = session(tmp_path, SIZE, compile_workers=9), state_of(SIZE, CONFIGS)
    both, first = ([(SIZE, one) for one in some] for some in (CONFIGS, CONFIGS[:1]))
    with run.compile_stage(run.write_scripts(both)) as compiling:
        assert compiling.left_s(both) == 2 * compiling.left_s(first) > 0
        compiling.compile_sizes([(state, [CONFIGS[0].name])], "compile")
        assert compiling.left_s(first) == 0 < compiling.left_s(both)
        # Nine workers do not compile one kernel in a ninth of the time.
        assert compiling.wait_s(first) == 0 and compiling.wait_s(both) > 3 * compiling.left_s(both)
        compiling.compile_sizes([(state, [CONFIGS[1].name])], "compile")
        assert compiling.left_s(both) == 0


def test_what_comes_next_is_compiled_though_nothing_is_left_of_what_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run, state = session(tmp_path, SIZE, compile_workers=1), state_of(SIZE, CONFIGS)
    first, second = ([(SIZE, one)] for one in CONFIGS)
    with run.compile_stage(run.write_scripts([*first, *second])) as compiling:
        compiling.compile_sizes([(state, [CONFIGS[0].name])], "compile")
        compiling.compile_sizes([(state, [CONFIGS[0].name])], "compile", then=second)
        wait_until(lambda: compiling.has(second))


def test_what_the_measurement_launches_is_compiled_though_all_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "cache"))
    run, state = session(tmp_path, SIZE, compile_workers=1), state_of(SIZE, CONFIGS)
    first = [(SIZE, CONFIGS[0])]
    with run.compile_stage(run.write_scripts(first)) as compiling:
        compiling.prefetch(first)
        wait_until(lambda: compiling.has(first))
        for _ in range(2):
            compiling.compile_sizes([(state, [CONFIGS[0].name])], "compile")
    assert run.log.facts == {"kernels compiled": 2, "kernels found in the cache": 0}


def test_what_crashed_before_a_kill_still_stands_for_equal_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the run that goes on launches the same code under another name, which crashes again."""
    monkeypatch.chdir(tmp_path)
    run, state, (other, crashed) = session(tmp_path, SIZE), state_of(SIZE, CONFIGS), CONFIGS
    scripts, target = run.write_scripts((SIZE, one) for one in CONFIGS), run.device.target
    of = {key_of(compile_tasks.task_for(scripts, SIZE, one, target)): one.kernel_symbol for one in CONFIGS}
    equal = {key: CompileResult(name, key[2], Status.OK, registers=9, binary_hash="same") for key, name in of.items()}
    run.store.add_compiles(equal, kernel_cache.identity(run.folder.cache))
    state.record_timing(Timing(SIZE, crashed.name, Status.CRASHED, message="signal SIGSEGV"), "screen")
    with run.compile_stage(scripts) as compiling:
        compiling.restore([state])
        compiling.compile_sizes([(state, [other.name])], "compile")
    assert duplicates(state, run.device.num_sms) == {other.name: crashed.name}
    assert state.why_not(crashed.name) == "crashed: signal SIGSEGV"


def test_a_run_compiles_again_what_another_runs_limit_has_cost_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had ended, killed or not, when the cache was cut; while it runs nothing of its is removed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "cache"))
    run = session(tmp_path, SIZE, compile_workers=1)
    with in_use(run.folder.cache, LANGUAGE, time.time(), 2**40):
        assert compiled(run, 2)[1]["kernels compiled"] == 3
        assert evict(run.folder.cache.parent, 0) == 0
        assert compiled(run, 2)[1] == {"kernels compiled": 0, "kernels found in the cache": 0}
    assert evict(run.folder.cache.parent, 0) >= 3
    assert compiled(run, 2)[1]["kernels compiled"] == 3


def test_a_run_that_goes_on_in_a_moved_folder_finds_its_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "cache"))
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    monkeypatch.chdir(before)
    run = session(before, SIZE, compile_workers=1)
    assert compiled(run, 2)[1]["kernels compiled"] == 3
    run.store.close()
    before.rename(after)
    monkeypatch.chdir(after)
    moved = run_folder.find(after / "results", "abcd1234", naming(TEMPLATES))
    assert moved is not None and moved.scripts.is_relative_to(after)
    goes_on = replace(run, folder=moved, store=Store(moved.store))
    assert compiled(goes_on, 2)[1] == {"kernels compiled": 0, "kernels found in the cache": 0}


@pytest.mark.parametrize(
    ("dead", "late", "line"),
    [
        (1, 0, "1 say: the compiler died (exit -11)"),
        (0, 2, "2 say: not compiled within 5 s; --compile_limit gives longer"),
        (2, 1, "2 say: the compiler died (exit -11); 1 took too long: --compile_limit gives longer"),
        (1, 1, "1 say: the compiler died (exit -11); 1 took too long: --compile_limit gives longer"),
    ],
)
def test_a_longer_limit_is_advised_to_what_reached_it_and_to_nothing_else(dead: int, late: int, line: str) -> None:
    failed = [CompileResult("a", "", Status.COMPILE_ERROR, message="the compiler died (exit -11)")] * dead
    failed += [CompileResult("b", "", Status.COMPILE_TIMEOUT, message="not compiled within 5 s")] * late
    assert common_reason(failed) == line
