"""Kernels that do not compile, do not end, crash or compute something else: what each costs, and what the rest gets.

``make test`` runs with several faults at once, each in a tile or configuration of its own; ``make test-all`` with each
fault alone too.
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import bad_kernels
import pytest
from fault_runs import (
    AXES,
    LOOK_S,
    MEASURED,
    ROOT,
    Machine,
    Undisturbed,
    hangs_at,
    require_complete_states,
    rows_of,
    statuses_of,
    templates_into,
    with_stand_in_gpu,
)

# The faulty tile, which is three configurations of one kernel; one of them; and the two of all that are fastest.
TILE = "BM16_BN32"
ONE_OF_IT = f"{TILE}_BK32_GM1"
FASTEST = "BM32_BN16_BK32_GM4"
CALLS = "    M, N, K, batch = size\n    split_k = config"


# (status, message) of a configuration that is wrong, and of one that computes something else each time.
WRONG_AND_RACY = (("wrong", "C[3, 5] is 7, the reference 8"), ("unstable", "C[3, 5] is 7, then 8"))


@dataclass(frozen=True)
class BadTemplate:
    """What the template does for TILE when it is compiled, and how that ends."""

    title: str
    code: str
    status: str
    words: str


# Its time is over then, and no other's, however busy the machine is: short_tune_gemm.py.
SAYS_IT = "import os; open(f'{os.environ[\"HANG_NOTES\"]}/compile-{os.getpid()}', 'w').close()"
BAD_TEMPLATES = (
    BadTemplate(
        "an infinite loop",
        f"{SAYS_IT}; import time; [time.sleep(1) for _ in iter(int, 1)]",
        "compile_timeout",
        "not compiled within 1000 s",
    ),
    BadTemplate(
        "a compile that never ends, in a process of its own",
        f"import subprocess; child = subprocess.Popen(['sleep', '600']); {SAYS_IT}; child.wait()",
        "compile_timeout",
        "not compiled within 1000 s",
    ),
    BadTemplate("one that aborts the process", "import os; os.abort()", "compile_error", "the compiler died (exit -6)"),
    BadTemplate("one that exits", "import os; os._exit(0)", "compile_error", "the compiler died (exit 0)"),
    BadTemplate(
        "one that eats memory",
        "import mmap; hoard = [mmap.mmap(-1, 2**30) for _ in range(64)]",
        "compile_error",
        "Cannot allocate memory",
    ),
    BadTemplate("one that raises", "raise ValueError('no')", "compile_error", "ValueError: no"),
)  # fmt: skip


# The tile of each where all come together. Those that no other test has are no part of the undisturbed run.
TILES = ((16, 64), (16, 128), (16, 16), (32, 64), (32, 128), (16, 32))
MORE_TILES = {**AXES, "BLOCK_SIZE_N": "[16, 32, 64, 128]"}


@dataclass(frozen=True)
class TileFault:
    block_m: int
    block_n: int
    bad: BadTemplate

    @property
    def code(self) -> str:
        is_tile = f'config["BLOCK_SIZE_M"] == {self.block_m} and config["BLOCK_SIZE_N"] == {self.block_n}'
        return f"    if {is_tile}:\n        {self.bad.code}\n"

    def is_of(self, name: str) -> bool:
        return f"BM{self.block_m}_BN{self.block_n}_" in name


def template_cases() -> list[Any]:
    together = [TileFault(*tile, bad) for tile, bad in zip(TILES, BAD_TEMPLATES, strict=True)]
    alone = [
        pytest.param([TileFault(16, 32, bad)], AXES, False, marks=pytest.mark.grid, id=bad.title)
        for bad in BAD_TEMPLATES
    ]
    return [pytest.param(together, MORE_TILES, True, id="all"), *alone]


@pytest.mark.parametrize(("faults", "axes", "fastest_are_wrong"), template_cases())
def test_a_bad_template_costs_its_configurations(
    faults: list[TileFault],
    axes: dict[str, str],
    fastest_are_wrong: bool,
    tmp_path: Path,
    cache: Path,
    undisturbed: Undisturbed,
) -> None:
    """fastest_are_wrong: the fastest two of those that compile fail their check too, and the next is chosen."""
    code = CALLS.replace("    split_k", "".join(fault.code for fault in faults) + "    split_k")
    machine = with_stand_in_gpu(tmp_path / "run", cache, templates={"gemm_tile.py.j2": {CALLS: code}}, axes=axes)
    flags = (*MEASURED, "--num_threads", "2", "--compile_limit", "1000")
    sizes = [key for key in undisturbed.rows if f"{key} table" in undisturbed.rows]
    wrong = by_time(undisturbed, sizes[0], faults)[:2] if fastest_are_wrong else []
    machine.env["STAND_IN_FAULTS"] = ",".join(
        f"{name}={how}" for name, how in zip(wrong, ("wrong", "racy"), strict=False)
    )

    done = machine.run(*flags, HANG_NOTES=str(tmp_path / "hangs"))

    assert done.status == 0, done.err
    assert machine.orphans() == []
    require_complete_states(machine)
    found, rows = statuses_of(machine), rows_of(machine)
    for size, names in found.items():
        table, before = rows[f"{size} table"], undisturbed.rows[f"{size} table"]
        for fault in faults:
            mine = {name: row for name, row in table.items() if fault.is_of(name)}
            assert {row["status"] for row in mine.values()} == {fault.bad.status}, (fault.bad.title, mine)
            assert all(fault.bad.words in row["message"] for row in mine.values())
        compiled = by_time(undisturbed, size, faults)
        assert len(compiled) == len(names) - sum(fault.is_of(name) for fault in faults for name in names)
        good = [name for name in compiled if name not in wrong]
        assert {names[name] for name in good} == {"ok"}
        assert {name: screened(table[name]) for name in good} == {name: screened(before[name]) for name in good}
        for name, (status, words) in zip(wrong, WRONG_AND_RACY, strict=False):
            assert names[name] == status and words in table[name]["message"], table[name]
        assert rows[size][0] == good[0] if wrong else rows[size] == undisturbed.rows[size]


def by_time(undisturbed: Undisturbed, size: str, faults: list[TileFault]) -> list[str]:
    """The configurations that compile, fastest first: a stand-in's time depends on the name alone."""
    rows = undisturbed.rows[f"{size} table"]
    names = [name for name in rows if not any(fault.is_of(name) for fault in faults)]
    return sorted(names, key=lambda name: float(rows[name]["screen_us"]))


def screened(row: dict[str, str]) -> dict[str, str]:
    """A row less its finals: where some fail, others come in."""
    return {column: value for column, value in row.items() if column != "finals_us"}


@dataclass(frozen=True)
class BadKernel:
    """How configurations with ``name`` in theirs behave on the GPU, and how that ends."""

    name: str
    fault: str
    status: str
    words: str


HANGS = BadKernel(ONE_OF_IT, "hang", "timeout", "nothing moved for 1000 s")
GIVEN_UP = replace(HANGS, status="crashed", words="was running 2 times when the run died")
DIES = BadKernel(ONE_OF_IT, "segv", "crashed", "exit status 139")
LOST = BadKernel(ONE_OF_IT, "sticky", "crashed", "an illegal memory access")
FAILS = BadKernel(TILE, "fails", "launch_error", "RuntimeError: no launch")
WRONG = BadKernel(FASTEST, "wrong", *WRONG_AND_RACY[0])
RACY = BadKernel(FASTEST, "racy", *WRONG_AND_RACY[1])
LIMIT, ALL = ("--launch_limit", "1000"), ("--compare", "all")


def kernel_cases() -> list[Any]:
    at_launch = [
        HANGS,
        replace(DIES, name=f"{TILE}_BK32_GM2"),
        replace(LOST, name=f"{TILE}_BK32_GM4"),
        replace(FAILS, name="BM16_BN16"),
    ]
    at_check = [replace(WRONG, name="BM32_BN32"), replace(RACY, name="BM32_BN16_BK32_GM2")]
    alone = [
        *([([HANGS], LIMIT), ([DIES], ()), ([LOST], ()), ([FAILS], ()), ([WRONG], ()), ([RACY], ())]),
        *([([replace(bad, name=TILE)], ALL) for bad in (WRONG, RACY)]),
    ]
    return [
        pytest.param([*at_launch, *at_check], (*LIMIT, *ALL), 2, id="all"),
        *(
            pytest.param(bad, flags, 0, marks=pytest.mark.grid, id=f"{bad[0].fault}-{bad[0].name}-{len(flags)}")
            for bad, flags in alone
        ),
    ]


@pytest.mark.parametrize(("bads", "flags", "kills"), kernel_cases())
def test_a_bad_kernel_costs_itself(
    bads: list[BadKernel], flags: tuple[str, ...], kills: int, machine: Machine, undisturbed: Undisturbed
) -> None:
    """kills: how often the whole run is killed while a kernel hangs. After two the next start gives that kernel up for
    the size at which it hung."""
    machine.env["STAND_IN_FAULTS"] = ",".join(f"{bad.name}={bad.fault}" for bad in bads)
    for _ in range(kills):
        kill_while_hanging(machine, machine.start(*MEASURED, *flags))

    done = machine.run(*MEASURED, *flags, HANG_NOTES=str(machine.folder / "hangs"))

    assert done.status == 0, done.err
    require_complete_states(machine)
    rows = rows_of(machine)
    for place, size in enumerate(machine.record().sizes):
        table = rows[f"{size.key} table"]
        for bad in (GIVEN_UP if bad is HANGS and kills and place == 0 else bad for bad in bads):
            mine = {name: row for name, row in table.items() if bad.name in name}
            assert mine and {row["status"] for row in mine.values()} == {bad.status}
            assert all(bad.words in row["message"] for row in mine.values()), mine
        others = {name: row for name, row in table.items() if not any(bad.name in name for bad in bads)}
        assert {row["status"] for row in others.values()} == {"ok"}
        assert size.chosen in others
        if all(bad.name != FASTEST for bad in bads):
            assert size.chosen == undisturbed.rows[size.key][0]
    assert "this run is finished" in machine.run(*MEASURED, *flags).err and rows_of(machine) == rows


def kill_while_hanging(machine: Machine, process: subprocess.Popen[str]) -> None:
    while not hangs_at(machine, ONE_OF_IT):
        assert process.poll() is None, machine.end(process).err
        time.sleep(5 * LOOK_S)
    process.kill()
    machine.end(process)
    assert machine.orphans() == []


def test_the_faults_for_a_gpu_have_their_places_in_the_templates(tmp_path: Path) -> None:
    made = templates_into(tmp_path / "templates", bad_kernels.TEMPLATES)
    for name in bad_kernels.TEMPLATES:
        assert (made / name).read_text() != (ROOT / "templates" / name).read_text()
