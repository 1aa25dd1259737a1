"""Which candidates a run without a GPU compiles; a stand-in for the compile pool says what fits."""

from __future__ import annotations

import io
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from samples import config, problem
from tuning import session, state_of

from gemm_tuner.core.records import CompileResult, Status
from gemm_tuner.pipeline import predict, preview, serving
from gemm_tuner.pipeline.session import Session
from gemm_tuner.space.size_state import Named, SizeState

SIZE = problem(512, 512, 512)
CONFIGS = tuple(
    config(num_stages=stages, num_warps=warps, BLOCK_SIZE_N=n)
    for n in (64, 128)
    for warps in (4, 8)
    for stages in (2, 3, 4, 5)
)


class Pool:
    """Compiles at once; of these names none fits."""

    def __init__(self, spilling: set[str]) -> None:
        self.spilling, self.asked = spilling, list[list[str]]()

    def compile_sizes(self, wanted: Named, title: str) -> None:
        for state, names in wanted:
            self.asked.append(list(names))
            for name in names:
                status = Status.SPILLED if name in self.spilling else Status.OK
                state.record_compile(name, CompileResult(name, "d", status, message="spills 99"))


@pytest.mark.parametrize(
    ("spilling", "compiled", "right"),
    [((), 4, (0, 1, 2)), ((0,), 4, (1, 2, 3)), ((0, 1), 12, (2, 3, 4)), (range(4), 12, (4, 5, 6))],
)
def test_more_is_compiled_of_a_size_of_which_few_fit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spilling: tuple[int, ...],
    compiled: int,
    right: tuple[int, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    names, pool, checked = [one.name for one in CONFIGS], Pool({CONFIGS[at].name for at in spilling}), list[str]()
    monkeypatch.setattr(Session, "compile_stage", lambda self, scripts: nullcontext(pool))

    def check(one: Session, checks: Any, checker: Any, order: list[tuple[SizeState, list[str]]], servers: Any) -> None:
        checked.extend(order[0][1])

    monkeypatch.setattr(predict, "check", check)
    one, state = session(tmp_path, SIZE, gpus=0, predicted_candidates=4), state_of(SIZE, CONFIGS)
    predict.run(one, [state])
    assert [name for asked in pool.asked for name in asked] == names[:compiled]
    assert checked == [names[at] for at in right]
    state.assert_complete()
    pruned = [name for name in names if state.rows[name]["status"] == Status.PRUNED.value]
    assert pruned == names[compiled:]


@pytest.mark.parametrize(
    ("others", "serve", "names"), [(0, (), 4), (6, (), 8), (2, (), 6), (0, ("triton",), 16), (6, ("triton",), 20)]
)
def test_a_dry_run_forecasts_what_the_run_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int, serve: tuple[str, ...], names: int
) -> None:
    """Also of families that nothing checks without a GPU, and of servers."""
    monkeypatch.chdir(tmp_path)
    pool = Pool(set())
    monkeypatch.setattr(Session, "compile_stage", lambda self, scripts: nullcontext(pool))
    monkeypatch.setattr(predict, "check", lambda *_: None)
    monkeypatch.setattr(predict, "check_served", lambda *_: None)
    unchecked = tuple(
        config(family="gemm_cute", num_warps=0, num_stages=0, BLOCK_SIZE_N=16 * n) for n in range(1, 1 + others)
    )
    one = session(tmp_path, SIZE, gpus=0, predicted_candidates=4, serve=serve)
    state, servers = state_of(SIZE, (*CONFIGS, *unchecked)), serving.servers(serve, one.device)
    printed = io.StringIO()
    preview.say_predicted(one.options, servers, [state], one.device, Console(file=printed, width=200))
    forecast = re.search(r"(\d+) kernels to compile", printed.getvalue())
    predict.run(one, [state])
    assert forecast is not None and int(forecast[1]) == len(pool.asked[0]) + 1 == names + 1  # and the measurement's own
