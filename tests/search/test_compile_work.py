"""What compiling costs weighs in what the guided search asks for, and in what is compiled ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from samples import RULES, device, problem

from gemm_tuner.gemm import model
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.workload import WORKLOAD
from gemm_tuner.search import SizeView
from gemm_tuner.search.compile_work import CompileWork, work_of, worth_ahead
from gemm_tuner.search.guided import Guided
from gemm_tuner.search.nearness import neighbours
from gemm_tuner.space import prune, space

H200 = device("sm_90")
PROBLEMS = (problem(512, 3072, 4096), problem(1024, 4096, 4096), problem(2048, 2048, 4096))


@cache
def views(families: tuple[str, ...] = ("gemm_cute",)) -> tuple[SizeView, ...]:
    """The kept configurations of some families, whether or not what compiles them is installed."""
    configs = space.frame(space.load(RULES / "space_sm_90.yaml", "sm_90"))
    columns, rules, found = prune.columns_of(configs), prune.load_rules(RULES), []
    for of in PROBLEMS:
        rows = configs.iloc[prune.apply(columns, of, H200, rules).kept]
        rows = rows[rows["family"].isin(families)]
        table = rows.assign(predicted_us=model.predict_us(prune.columns_of(rows), of, H200))
        table.index = pd.Index(WORKLOAD.names(rows))
        found.append(SizeView(of, table, {}, frozenset()))
    return tuple(found)


def kernels(of: GemmProblem, table: pd.DataFrame) -> list[tuple[str, str]]:
    """What identifies the binary of each row."""
    configs = WORKLOAD.configs_of(table)
    return [(one.kernel_symbol, WORKLOAD.specialization(of, one, H200.target)) for one in configs]


def test_kernels_are_equal_where_one_binary_serves_both() -> None:
    numbers: dict[tuple[str, str], set[int]] = {}
    symbol_of: dict[int, set[str]] = {}
    for view in views(("gemm_cute", "gemm_persistent")):
        found, _ = work_of(view, H200.target)
        for kernel, number in zip(kernels(view.problem, view.candidates), found.tolist(), strict=True):
            name = kernel[0]
            if kernel[1] == "d" and "gemm_cute" in name:  # equal slices of any number share a kernel
                parts = ["SK" if part.startswith("SK") and part != "SK1" else part for part in name.split("_")]
                name = "_".join(parts)
            numbers.setdefault((name, kernel[1]), set()).add(number)
            symbol_of.setdefault(number, set()).add(name)
    assert all(len(of) == 1 for of in (*numbers.values(), *symbol_of.values()))
    assert len(numbers) > 500


def test_slices_that_are_not_equal_are_another_kernel() -> None:
    """4104 elements of 16 bits are no two slices of whole 16 bytes."""
    table = views()[0].candidates
    table = table[table["SPLIT_K"] == 2]
    assert len(table)
    sizes = [SizeView(problem(512, 3072, k), table, {}, frozenset()) for k in (4096, 4112, 4104)]
    equal, also_equal, other = (work_of(one, H200.target)[0] for one in sizes)
    assert np.array_equal(equal, also_equal) and not set(equal.tolist()) & set(other.tolist())


def test_kernels_of_cute_take_longer_the_larger_their_tiles() -> None:
    table = views(("gemm_cute", "gemm_persistent"))[0].candidates
    _, seconds = work_of(views(("gemm_cute", "gemm_persistent"))[0], H200.target)
    of_cute = (table["family"] == "gemm_cute").to_numpy()
    tile = (table["BLOCK_SIZE_M"] * table["BLOCK_SIZE_N"]).to_numpy()
    assert seconds[of_cute].min() > seconds[~of_cute].max()
    assert np.all(np.diff(seconds[of_cute][np.argsort(tile[of_cute])]) >= 0)


def asked(search: Guided, sizes: Sequence[SizeView]) -> int:
    """Kernels that the first round of these sizes has compiled."""
    found = search.propose(sizes, H200)
    return len({one for view in sizes for one in kernels(view.problem, view.candidates.loc[found[view.problem]])})


def test_sizes_of_a_run_ask_for_kernels_of_one_another() -> None:
    dear, free = Guided(first_price=1.0), Guided(first_price=0.0)
    assert asked(dear, views()) < 0.8 * asked(free, views())
    apart = sum(asked(dear, [view]) for view in views())
    assert asked(dear, views()) < 0.8 * apart


def test_a_kernel_that_is_asked_for_costs_nothing_more() -> None:
    view = views()[0]
    work = CompileWork(H200.target, 0.1)
    of, before = work.prices(view)
    assert before.min() > 0
    name = str(view.candidates.index[7])
    work.ask(view, [name])
    _, after = work.prices(view)
    assert np.array_equal(after == 0, of == of[7])
    assert np.array_equal(after[after > 0], before[after > 0])


@pytest.mark.parametrize("families", [("gemm_persistent",), ("gemm_cute", "gemm_persistent")])
def test_dear_kernels_are_compiled_ahead_only_where_they_are_likely(families: tuple[str, ...]) -> None:
    view = views(families)[0]
    likely = view.by_prediction()
    ahead = worth_ahead(view, likely, 100, H200.target)
    of_cute = [place for place, name in enumerate(likely[:100]) if name.startswith("gemm_cute") and name in ahead]
    assert [name for name in likely[:100] if name.startswith("gemm_persistent")] == [
        name for name in ahead if name.startswith("gemm_persistent")
    ]
    assert all(place <= 100 * 0.28 / 0.35 for place in of_cute)
    assert bool(of_cute) == ("gemm_cute" in families)


def test_neighbours_of_the_fastest_are_compiled_ahead_while_the_learned_round_is_timed() -> None:
    search, sizes = Guided(), list(views())
    first = search.propose(sizes, H200)
    timed = []
    for view in sizes:
        names = first[view.problem]
        tiles = view.candidates.loc[names, ["BLOCK_SIZE_M", "BLOCK_SIZE_N"]].to_numpy()
        us = 10 + abs(tiles - [192, 144]).sum(axis=1)
        timed.append(replace(view, timed_us=dict(zip(names, us.tolist(), strict=True))))
    # The learned round, of which most had been timed when the run was killed.
    learned = {of: names[-2:] for of, names in search.propose(timed, H200).items()}
    offered = search.likely_next(timed, H200, learned, 1000)
    assert offered
    for view in timed:
        leaders, names = [*view.timed_us, *learned[view.problem]], offered.get(view.problem, [])
        near = neighbours(view.candidates, leaders, WORKLOAD.search_axes)
        assert set(names) <= set(view.candidates.index[near])
        assert len(names) <= search.polish_share * len(view.candidates)
