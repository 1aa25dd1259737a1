"""What is compiled while the rules still cut sizes."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import pytest
from samples import config, problem
from tuning import StandInGpu, restarted, session, state_of
from waits import wait_until

from gemm_tuner.core.records import Config, Problem
from gemm_tuner.pipeline.first_kernels import FIRST_SIZES, FirstKernels
from gemm_tuner.pipeline.round_parts import view_of
from gemm_tuner.pipeline.run import cut_sizes, first_kernels
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.tune import Tuning
from gemm_tuner.search import make_search
from gemm_tuner.space.size_state import SizeState

pytestmark = pytest.mark.usefixtures("in_a_folder")

SIZES = [problem(1024 * count, 512, 1024) for count in range(1, 4 * FIRST_SIZES + 1)]
SMALL = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "BLOCK_SIZE_K": 16, "num_warps": 1}
MORE = tuple(config(num_stages=stages, **SMALL) for stages in (1, 2, 3))
CONFIGS = MORE[:2]


class Pool:
    """Stands for a compile stage, and compiles nothing."""

    def __init__(self) -> None:
        self.asked: list[dict[Problem, set[str]]] = []

    def prefetch(self, wanted: Iterable[tuple[Problem, Config]]) -> None:
        found: dict[Problem, set[str]] = {}
        for size, one in wanted:
            found.setdefault(size, set()).add(one.name)
        self.asked.append(found)


def asked_while_cut(
    of: Session, monkeypatch: pytest.MonkeyPatch, kernels: FirstKernels
) -> list[dict[Problem, set[str]]]:
    """What is to be compiled ahead, each time it is chosen; the search of all sizes asks for the same, for the same."""
    pool = Pool()
    monkeypatch.setattr(Session, "compile_stage", lambda self, scripts: nullcontext(pool))
    with kernels:
        _, sizes = cut_sizes(of.options, of, (), kernels)
    states = [size.left for size in sizes if isinstance(size.left, SizeState)]
    assert len(states) == len(of.options.entries)
    proposed = make_search(of.options.search).propose([view_of(state) for state in states], of.device)
    for asked in pool.asked:
        assert asked == {state.problem: set(proposed[state.problem]) for state in states[: len(asked)]}
    return pool.asked


def test_the_kernels_of_the_first_sizes_are_those_that_the_search_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = session(tmp_path, *SIZES, families=("gemm_tile", "gemm_split_k"))
    asked = asked_while_cut(of, monkeypatch, first_kernels(of, ahead=True))
    assert [len(sizes) for sizes in asked] == [FIRST_SIZES, 2 * FIRST_SIZES]  # not when more than half are cut


@pytest.mark.parametrize(("count", "ahead", "compiles"), [(7, True, True), (8, False, True), (8, True, False)])
def test_nothing_is_chosen_ahead_of_few_sizes_or_where_a_run_does_not_compile(
    count: int, ahead: bool, compiles: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = session(tmp_path, *SIZES[:count], families=("gemm_tile",), compile_stage=compiles)
    assert asked_while_cut(of, monkeypatch, first_kernels(of, ahead=ahead)) == []


def test_workers_compile_before_the_last_size_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "cache"))
    sizes = SIZES[: 2 * FIRST_SIZES]
    of = session(tmp_path, *sizes, compile_workers=2, search="full")
    # The scripts of all have another text than those of the first sizes.
    states = [state_of(one, CONFIGS if at < FIRST_SIZES else MORE) for at, one in enumerate(sizes)]
    with first_kernels(of, ahead=True) as kernels:
        for state in states[:FIRST_SIZES]:
            kernels.add(state)
        wait_until(lambda: of.store.num_compiles() == len(CONFIGS))  # the sizes share them
        for state in states[FIRST_SIZES:]:
            kernels.add(state)
        Tuning(of, states, (StandInGpu(),), begun=kernels).run()
    for state in states:
        state.assert_complete()
    # Each once, also those of checks; one more for the measurement itself.
    assert of.log.facts["kernels compiled"] == of.store.num_compiles() + 1
    assert {size.m for size in of.results.choices} == {size.m for size in sizes}


def test_workers_end_with_a_run_that_ends_before_its_search(tmp_path: Path) -> None:
    of, sizes = session(tmp_path, *SIZES, compile_workers=1, search="full"), SIZES[:FIRST_SIZES]
    with pytest.raises(KeyboardInterrupt), first_kernels(of, ahead=True) as kernels:
        for size in sizes:
            kernels.add(state_of(size, CONFIGS))
        assert "compiler" in {thread.name for thread in threading.enumerate()}
        raise KeyboardInterrupt
    assert "compiler" not in {thread.name for thread in threading.enumerate()}


def test_a_run_that_was_killed_while_sizes_were_cut_has_what_the_measurement_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would find all that it asks for compiled, and its launchers would compile the rest while they time."""
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "cache"))
    sizes = SIZES[: 2 * FIRST_SIZES]
    of = session(tmp_path, *sizes, compile_workers=1, search="full")
    with first_kernels(of, ahead=True) as kernels:
        for size in sizes:
            kernels.add(state_of(size, CONFIGS))
        wait_until(lambda: of.store.num_compiles() == len(CONFIGS))
    assert of.log.facts["kernels compiled"] == len(CONFIGS) + 1
    again = restarted(of)
    assert first_kernels(again, ahead=True).expected == 0
