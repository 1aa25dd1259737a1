"""Which configurations are one kernel: by the code they compiled to and by the work that their programs do."""

from __future__ import annotations

import inspect
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import TEMPLATES, config, device

from gemm_tuner.compile.same_code import duplicates
from gemm_tuner.core.records import CompileResult, Status
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.specialization import launch_of
from gemm_tuner.pipeline import prepare
from gemm_tuner.source import codegen
from gemm_tuner.space.size_state import SizeState

DEVICE = device("sm_90")
PROBLEM = GemmProblem(1024, 1024, 128)  # 8 x 8 tiles
SMS = 132
LOOP = config(family="gemm_persistent", PROGRAMS_PER_SM=1)
STREAM = config(family="gemm_stream_k", PROGRAMS_PER_SM=1)


def state_of(compiled: dict[KernelConfig, str], problem: GemmProblem = PROBLEM) -> SizeState:
    """Configurations and the hash of what they compiled to; those without one failed."""
    state = prepare.given_state(problem, next(iter(compiled)), DEVICE)
    for one, code in compiled.items():
        state.kept[one.name] = one
        status = Status.OK if code else Status.COMPILE_ERROR
        state.record_compile(one.name, CompileResult(one.kernel_symbol, "d", status, binary_hash=code))
    return state


def found(compiled: dict[KernelConfig, str], problem: GemmProblem = PROBLEM) -> dict[str, str]:
    return duplicates(state_of(compiled, problem), SMS)


def test_the_one_of_fewest_stages_and_warps_stands_for_the_same_code() -> None:
    two, three, four = (config(num_stages=stages) for stages in (2, 3, 4))
    assert found({four: "a", two: "a", three: "a"}) == {four.name: two.name, three.name: two.name}
    narrow, wide = config(waves_per_eu=1, kpack=1, num_warps=4), config(waves_per_eu=2, kpack=1, num_warps=4)
    assert found({wide: "a", narrow: "a"}) == {wide.name: narrow.name}


def test_other_code_is_another_kernel() -> None:
    assert found({config(num_stages=2): "a", config(num_stages=3): "b"}) == {}


def test_what_did_not_compile_is_nobody_s_duplicate() -> None:
    assert found({config(num_stages=2): "", config(num_stages=3): "", config(): ""}) == {}


def test_one_that_has_ended_stands_for_those_that_come_later() -> None:
    two, four = config(num_stages=2), config(num_stages=4)
    state = state_of({two: "a", four: "a"})
    state.record(four.name, Status.OK, screen_us=12.0)
    assert duplicates(state, SMS) == {two.name: four.name}


@pytest.mark.parametrize(
    ("one", "other", "problem", "same"),
    [
        (config(GROUP_SIZE_M=4), config(GROUP_SIZE_M=8), PROBLEM, False),
        (config(GROUP_SIZE_M=8), config(GROUP_SIZE_M=16), PROBLEM, True),  # all 8 rows of tiles
        (config(GROUP_SIZE_M=8), config(GROUP_SIZE_M=16), replace(PROBLEM, m=1025), False),
        (config(GROUP_SIZE_M=1), config(GROUP_SIZE_M=8), replace(PROBLEM, n=128), True),  # one column of tiles
        (config(GROUP_SIZE_M=1), config(GROUP_SIZE_M=8), replace(PROBLEM, m=7), True),
        (LOOP, replace(LOOP, PROGRAMS_PER_SM=2), PROBLEM, True),  # 64 tiles: a program each
        (LOOP, replace(LOOP, PROGRAMS_PER_SM=2), replace(PROBLEM, m=4096), False),
        (STREAM, replace(STREAM, PROGRAMS_PER_SM=2), PROBLEM, True),  # 128 blocks of K in all
        (STREAM, replace(STREAM, PROGRAMS_PER_SM=2), replace(PROBLEM, k=192), False),
        (config(SPLIT_K=2), config(SPLIT_K=4), PROBLEM, False),
        (LOOP, replace(LOOP, EPILOGUE_SUBTILE=2), PROBLEM, False),
        *((config(), config(**{f"BLOCK_SIZE_{side}": 32}), PROBLEM, False) for side in "MNK"),
    ],
)
def test_the_same_code_launched_in_another_way_is_another_kernel(
    one: KernelConfig, other: KernelConfig, problem: GemmProblem, same: bool
) -> None:
    names = sorted((one.name, other.name))
    assert found({one: "a", other: "a"}, problem) == ({names[1]: names[0]} if same else {})


def order_of_tiles(rows: int, columns: int, group: int) -> list[tuple[int, int]]:
    """As grouped_tile_order of the templates computes it."""
    order = []
    for tile in range(rows * columns):
        first = tile // (group * columns) * group
        height = min(rows - first, group)
        inside = tile % (group * columns)
        order.append((first + inside % height, inside // height))
    return order


def test_groups_are_the_same_launch_exactly_where_the_order_of_tiles_is() -> None:
    for rows, columns in itertools.product((1, 2, 3, 5, 8), (1, 2, 5)):
        problem = replace(PROBLEM, m=128 * rows, n=128 * columns)
        for one, other in itertools.combinations((1, 2, 3, 4, 8, 16), 2):
            launches = {launch_of(problem, config(GROUP_SIZE_M=group), SMS) for group in (one, other)}
            orders = order_of_tiles(rows, columns, one), order_of_tiles(rows, columns, other)
            assert (len(launches) == 1) == (orders[0] == orders[1]), (rows, columns, one, other)


@pytest.mark.parametrize("family", ["gemm_persistent", "gemm_stream_k"])
def test_equal_launches_have_equal_grids_and_arguments(tmp_path: Path, family: str) -> None:
    """What the script's ``calls`` makes of two configurations differs where ``launch_of`` does."""
    from gemm_tuner.gemm.kernels import blank_operands, call_size
    from gemm_tuner.languages.scratch import Scratch
    from gemm_tuner.languages.scripts import load_script
    from gemm_tuner.languages.triton.blank import Blank

    counts = [config(family=family, PROGRAMS_PER_SM=count) for count in (1, 2, 3)]
    written = codegen.write_script(TEMPLATES, tmp_path, family, PROBLEM, counts, DEVICE.target)
    script = load_script(str(tmp_path / written.file))

    def launched(one: KernelConfig, problem: GemmProblem) -> tuple[Any, ...]:
        row, size = script.CONFIGS[one.name], call_size(problem)
        ((_, kernel, grid, positional, _),) = script.calls(row, size, blank_operands(problem, Blank), Scratch(), SMS)
        arguments = dict(zip(inspect.signature(kernel.fn).parameters, positional, strict=True))
        return grid, script.scratch(row, size, SMS), *(v for v in arguments.values() if isinstance(v, int | str))

    for problem in (PROBLEM, replace(PROBLEM, m=4096), replace(PROBLEM, k=192), replace(PROBLEM, k=64, n=2048)):
        for one, other in itertools.combinations(counts, 2):
            same = launched(one, problem) == launched(other, problem)
            assert same == (launch_of(problem, one, SMS) == launch_of(problem, other, SMS))
