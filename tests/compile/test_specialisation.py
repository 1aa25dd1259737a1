"""The name of a specialization is never coarser than Triton: sizes of one name share their binary.

``make test`` takes a sample of families, architectures and layouts, and of each the sizes that share a name with
another; ``make test-all`` all that are named here.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from work import compile_work, config_for, space_of

from gemm_tuner.core.records import Status
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.gemm.specialization import specialization

ROW, COL = Layout.ROW, Layout.COL
BF16 = GemmProblem(4096, 4096, 4096)
Size = tuple[int, int, int]

# Classes meet at 1, odd, divisible by 8 and by 16, BLOCK_SIZE_K dividing K or not, 2**31 elements, 2 GiB.
SIZES: tuple[Size, ...] = (
    (64, 64, 64), (128, 48, 96), (17, 64, 64), (65, 32, 128), (64, 64, 80), (17, 16, 16), (1, 64, 64), (3, 5, 7),
    (100, 33, 9), (64, 1, 64), (63, 1, 32), (1, 1, 1), (7, 1, 1), (40, 40, 40), (8, 24, 104), (64, 40, 64),
    (63, 24, 96), (64, 64, 1), (16384, 16384, 16384), (2**15 + 16, 16384, 2**15), (2**15 + 32, 16384, 2**15),
    (2**16, 64, 2**15), (64, 2**16, 2**15), (2**16, 2**15, 64), (2**16, 2**16, 64), (8192, 32768, 64),
    (64, 64, 65), (64, 64, 72),
)  # fmt: skip
# Few rows and few columns, each side small in turn.
FLAT_SIZES: tuple[Size, ...] = (
    (1, 64, 64), (64, 1, 64), (1, 48, 96), (48, 1, 96), (2, 64, 64), (3, 80, 128), (64, 2, 64), (80, 3, 128),
    (1, 1, 1), (1, 1, 3), (1, 17, 7), (17, 1, 7), (1, 33, 9), (33, 1, 9), (4, 4, 64), (2, 2, 64), (1, 2**16, 2**15),
    (2**16, 1, 2**15), (3, 2**16, 2**15), (2, 2**16, 2**15), (1, 8, 40), (2, 40, 8), (40, 2, 8), (3, 24, 8), (1, 5, 1),
    (3, 16, 1), (2**15, 2, 2**15 + 16), (2**15, 1, 2**15 + 32), (4, 100, 31), (3, 200, 33),
    (3, 17, 7), (17, 3, 7), (3, 33, 48), (33, 3, 48), (2, 192, 64), (192, 2, 64), (3, 48, 192), (48, 3, 192),
)  # fmt: skip
# Rows of whole 16 bytes, as descriptors take them, in every layout.
WHOLE_SIZES: tuple[Size, ...] = tuple(size for size in SIZES if all(extent % 8 == 0 for extent in size))

# arch, family, layouts, SPLIT_K, more of the configuration
KERNELS = {
    "tile, sm_90, tn": ("sm_90", "gemm_tile", (COL, ROW), 1, {}),
    "tile, sm_90, slices": ("sm_90", "gemm_tile", (ROW, ROW), 4, {}),
    "tile, gfx942": ("gfx942", "gemm_tile", (ROW, ROW), 1, {}),
    "tile, gfx942, tt, slices": ("gfx942", "gemm_tile", (COL, COL), 4, {}),
    "persistent, sm_90": ("sm_90", "gemm_persistent", (ROW, ROW), 1, {"PROGRAMS_PER_SM": 1}),
    "persistent, gfx942, tn": ("gfx942", "gemm_persistent", (COL, ROW), 1, {}),
    "split-K, sm_90": ("sm_90", "gemm_split_k", (ROW, COL), 4, {}),
    "split-K, gfx942": ("gfx942", "gemm_split_k", (ROW, ROW), 4, {"NUM_XCDS": 8}),
    "stream-K, gfx942, tt": ("gfx942", "gemm_stream_k", (COL, COL), 1, {"PROGRAMS_PER_SM": 1}),
    "packed, sm_90": ("sm_90", "gemm_packed", (ROW, COL), 2, {"PACK_BLOCK": 512}),
    "packed, gfx942": ("gfx942", "gemm_packed", (ROW, ROW), 1, {"PACK_BLOCK": 512}),
    "vectors, sm_90": ("sm_90", "gemv", (ROW, ROW), 1, {}),
    "vectors, gfx942, nt, slices": ("gfx942", "gemv", (ROW, COL), 4, {}),
}


LAUNCH_ONLY = {
    "tile, sm_90": ("sm_90", "gemm_tile", {}),
    "persistent, sm_90": ("sm_90", "gemm_persistent", {"PROGRAMS_PER_SM": 1}),
    "split-K, sm_90": ("sm_90", "gemm_split_k", {"split_k": 4}),
    "stream-K, sm_90": ("sm_90", "gemm_stream_k", {"PROGRAMS_PER_SM": 1}),
    "tile, gfx942": ("gfx942", "gemm_tile", {}),
    "persistent, gfx942": ("gfx942", "gemm_persistent", {"PROGRAMS_PER_SM": 1}),
    "stream-K, gfx942": ("gfx942", "gemm_stream_k", {"PROGRAMS_PER_SM": 1}),
}


def sampled(names: Iterable[str], sample: set[str]) -> list[Any]:
    """Those of the sample by default, all with ``-m grid``: each costs 5 to 15 CPU seconds."""
    assert sample < set(names)
    return [pytest.param(name, marks=[] if name in sample else [pytest.mark.grid]) for name in names]


@pytest.mark.parametrize("what", sampled(LAUNCH_ONLY, {"stream-K, sm_90"}))
def test_launch_arguments_make_no_other_binary(tmp_path: Path, what: str) -> None:
    """Each in a script of its own: Triton itself finds the first one's kernel in its cache."""
    arch, family, more = LAUNCH_ONLY[what]
    device = space_of(arch).device
    first = config_for(device, 32, 32, 32, family=family, group=1, **more)
    others = [replace(first, GROUP_SIZE_M=group) for group in (4, 16, 7)]
    others += [replace(first, PROGRAMS_PER_SM=3)] if first.PROGRAMS_PER_SM else []
    (fresh,), *again = (compile_work(device, [(BF16, one)], tmp_path) for one in (first, *others))
    assert fresh.status == Status.OK and not fresh.cached
    assert [(r.cached, r.binary_hash) for (r,) in again] == [(True, fresh.binary_hash)] * len(others)


def test_the_same_code_under_two_names_is_told(tmp_path: Path) -> None:
    """Rows of an odd length cannot be pipelined: stages change nothing but the name."""
    device = space_of("sm_90").device
    config = config_for(device, 32, 32, 32, stages=2)
    odd = GemmProblem(77, 77, 77)
    two, four, wider, slices, of_four = compile_work(
        device,
        [
            *((odd, replace(config, num_stages=stages)) for stages in (2, 4)),
            (odd, replace(config, num_warps=8)),
            *((odd, replace(config, SPLIT_K=2, num_stages=stages)) for stages in (2, 4)),
        ],
        tmp_path,
    )
    assert not any(r.cached for r in (two, four, wider, slices)) and two.name != four.name
    assert two.binary_hash == four.binary_hash and slices.binary_hash == of_four.binary_hash
    assert len({r.binary_hash for r in (two, wider, slices)}) == 3


SAMPLE = {"tile, gfx942, tt, slices", "split-K, sm_90", "vectors, sm_90"}


@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=pytest.mark.grid)], ids=["shared", "all"])
@pytest.mark.parametrize("what", sampled(KERNELS, SAMPLE))
def test_sizes_of_one_specialisation_share_their_binary(tmp_path: Path, what: str, alone: bool) -> None:
    """The name may split finer than Triton, never coarser: whatever bears a known name is in the cache."""
    arch, family, layouts, split_k, more = KERNELS[what]
    device = space_of(arch).device
    tile = (4, 16, 16) if family == "gemv" else (16, 16, 16)
    config = config_for(device, *tile, family=family, split_k=split_k, warps=1, group=1, **more)
    by_descriptor = arch == "sm_90" and family not in ("gemm_tile", "gemm_packed", "gemv")
    sizes = list(FLAT_SIZES if family == "gemv" else WHOLE_SIZES if by_descriptor else SIZES)
    random.Random(0).shuffle(sizes)
    problems = [replace(BF16, m=m, n=n, k=k, layout_a=layouts[0], layout_b=layouts[1]) for m, n, k in sizes]

    def name(problem: GemmProblem) -> str:
        return specialization(problem, config, device.target)

    counts = Counter(map(name, problems))
    problems = [problem for problem in problems if alone or counts[name(problem)] > 1]
    first: dict[str, GemmProblem] = {}
    for problem in problems:
        first.setdefault(name(problem), problem)
    fresh = compile_work(device, [(p, config) for p in first.values()], tmp_path)
    assert all(r.status == Status.OK for r in fresh), [r.message for r in fresh]
    hashes = {r.specialization: r.binary_hash for r in fresh}
    rest = [p for p in problems if p not in first.values()]
    again = compile_work(device, [(p, config) for p in rest], tmp_path)
    assert len(rest) >= 3
    assert [(p.key, name(p)) for p, r in zip(rest, again, strict=True) if not r.cached] == []
    assert all(r.binary_hash == hashes[r.specialization] for r in again)
    # Different names are mostly different kernels: 8 and odd differ by name alone in many places.
    assert sum(not r.cached for r in fresh) >= len(fresh) / 2
    assert (len(first) == 1) == by_descriptor
