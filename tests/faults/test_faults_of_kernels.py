"""Kernels that do not compile, do not end, crash or compute something else: what each costs, and what the rest gets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Undisturbed
from fault_runs import MEASURED, Machine, require_accounts, rows_of, statuses_of, with_stand_in_gpu

# The faulty tile, which is three configurations of one kernel; one of them; and the one of all that is fastest.
TILE = "BM64_BN128"
ONE_OF_IT = f"{TILE}_BK64_GM1"
FASTEST = "BM128_BN64_BK64_GM1"
IF_TILE = 'if config["BLOCK_SIZE_M"] == 64 and config["BLOCK_SIZE_N"] == 128:'
CALLS = "    M, N, K, batch = size\n    split_k = config"


@dataclass(frozen=True)
class BadTemplate:
    """What the template does for TILE when it is compiled, and how that ends."""

    title: str
    code: str
    status: str
    words: str
    flags: tuple[str, ...] = ()


BAD_TEMPLATES = (
    BadTemplate(
        "an infinite loop", "while True: pass", "compile_timeout", "not compiled within 4 s", ("--compile_limit", "4")
    ),
    BadTemplate(
        "a compile that never ends, in a process of its own",
        "import subprocess; subprocess.run(['sleep', '600'])",
        "compile_timeout",
        "not compiled within 4 s",
        ("--compile_limit", "4"),
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


@pytest.mark.parametrize("bad", BAD_TEMPLATES, ids=lambda bad: bad.title)
def test_a_bad_template_costs_its_configurations(
    bad: BadTemplate, tmp_path: Path, cache: Path, undisturbed: Undisturbed
) -> None:
    code = CALLS.replace("    split_k", f"    {IF_TILE}\n        {bad.code}\n    split_k")
    machine = with_stand_in_gpu(tmp_path / "run", cache, templates={"gemm_tile.py.j2": {CALLS: code}})

    done = machine.run(*MEASURED, *bad.flags)

    assert done.status == 0, done.err
    assert machine.orphans() == []
    require_accounts(machine)
    found, rows = statuses_of(machine), rows_of(machine)
    for size, names in found.items():
        assert {n: s for n, s in names.items() if TILE in n} == {n: bad.status for n in names if TILE in n}
        assert {s for n, s in names.items() if TILE not in n} == {"ok"}
        table, before = rows[f"{size} table"], undisturbed.rows[f"{size} table"]
        assert all(bad.words in row["message"] for name, row in table.items() if TILE in name)
        for name, row in table.items():
            if TILE not in name:
                assert screened(row) == screened(before[name])
        assert rows[size] == undisturbed.rows[size]
    assert "this run is finished" in machine.run(*MEASURED, *bad.flags).err and rows_of(machine) == rows


def screened(row: dict[str, str]) -> dict[str, str]:
    """A row less its finals: where some fail, others come in."""
    return {column: value for column, value in row.items() if column != "finals_us"}


@dataclass(frozen=True)
class BadKernel:
    """How one configuration behaves on the GPU, and how that ends."""

    name: str
    fault: str
    status: str
    words: str
    flags: tuple[str, ...] = ()


BAD_KERNELS = (
    BadKernel(ONE_OF_IT, "hang", "timeout", "nothing moved for 2 s", ("--launch_limit", "2")),
    BadKernel(ONE_OF_IT, "segv", "crashed", "exit status 139"),
    BadKernel(ONE_OF_IT, "sticky", "crashed", "an illegal memory access"),
    BadKernel(TILE, "fails", "launch_error", "RuntimeError: no launch"),
    BadKernel(FASTEST, "wrong", "wrong", "C[3, 5] is 7, the reference 8"),
    BadKernel(FASTEST, "racy", "unstable", "C[3, 5] is 7, then 8"),
    BadKernel(TILE, "wrong", "wrong", "C[3, 5] is 7, the reference 8", ("--compare", "all")),
    BadKernel(TILE, "racy", "unstable", "C[3, 5] is 7, then 8", ("--compare", "all")),
)


@pytest.mark.parametrize("bad", BAD_KERNELS, ids=lambda bad: f"{bad.fault}-{len(bad.flags)}-{bad.name}")
def test_a_bad_kernel_costs_itself(bad: BadKernel, machine: Machine, undisturbed: Undisturbed) -> None:
    machine.env["STAND_IN_FAULTS"] = f"{bad.name}={bad.fault}"

    done = machine.run(*MEASURED, *bad.flags)

    assert done.status == 0, done.err
    require_accounts(machine)
    rows = rows_of(machine)
    for size in machine.record().sizes:
        table = rows[f"{size.key} table"]
        mine = {name: row for name, row in table.items() if bad.name in name}
        assert mine and {row["status"] for row in mine.values()} == {bad.status}
        assert all(bad.words in row["message"] for row in mine.values()), mine
        assert {row["status"] for name, row in table.items() if bad.name not in name} == {"ok"}
        assert size.chosen and bad.name not in size.chosen
        if bad.name != FASTEST:
            assert size.chosen == undisturbed.rows[size.key][0]
    assert "this run is finished" in machine.run(*MEASURED, *bad.flags).err and rows_of(machine) == rows


def test_what_hung_before_a_kill_is_not_run_again(machine: Machine, undisturbed: Undisturbed) -> None:
    """The whole run is killed while a kernel hangs, twice: the third start gives that kernel up and ends."""
    machine.env["STAND_IN_FAULTS"] = f"{ONE_OF_IT}=hang"
    for _ in range(2):
        process = machine.start(*MEASURED)
        while not hangs(machine):
            assert process.poll() is None, machine.end(process).err
        process.kill()
        machine.end(process)
        assert machine.orphans() == []
    done = machine.run(*MEASURED, "--launch_limit", "2")
    assert done.status == 0, done.err
    require_accounts(machine)
    first, second = (rows_of(machine)[f"{size.key} table"] for size in machine.record().sizes)
    (gone,) = [row for row in first.values() if row["status"] != "ok"]
    assert gone["status"] == "crashed" and gone["message"] == "was running 2 times when the run died"
    (hung,) = [row for row in second.values() if row["status"] != "ok"]
    assert hung["status"] == "timeout"


def hangs(machine: Machine) -> bool:
    """Whether the launcher that runs now is at the kernel that hangs."""
    if not machine.find(lambda command: "--plan" in command):
        return False
    starts = sorted(machine.run_folder().glob("raw/*/start*/plan.json"))
    journal = starts[-1].with_name("journal.jsonl") if starts else None
    lines = journal.read_text().splitlines() if journal and journal.exists() else []
    last = json.loads(lines[-1]) if lines and lines[-1].endswith("}") else {}
    return last.get("event") == "begin" and ONE_OF_IT in last["name"]
