"""Kernels that hang, fault and miscompute on a real GPU, under a real profiler: what each costs. Prints a table."""

from __future__ import annotations

import itertools
import subprocess
import time
from pathlib import Path

import bad_kernels
import pytest
from bad_kernels import FAULTS, GOOD
from fault_runs import (
    LOOK_S,
    ROOT,
    Machine,
    Outcome,
    require_complete_states,
    rows_of,
    small_space,
    statuses_of,
    templates_into,
)

from gemm_tuner.measure import device
from gemm_tuner.store import run_record

pytestmark = pytest.mark.gpu

LAUNCH_LIMIT_S = 5
# What a hung kernel may cost beside its limit: the kill, the driver's clearing up, a profiler and torch that start.
MOST_MORE_S = 20.0
FLAGS = ("--templates", "templates", "--search", "full", "--no_heuristics", "--compare", "all", "--iters", "10",
         "--launch_limit", str(LAUNCH_LIMIT_S), "--keep")  # fmt: skip


@pytest.fixture
def gpu_machine(tmp_path: Path) -> Machine:
    if not device.look().gpus:
        pytest.skip("torch sees no GPU on this machine")
    cache = tmp_path / "triton_cache"
    cache.mkdir()
    machine = Machine(tmp_path / "run", cache, script=ROOT / "tune_gemm.py")
    (machine.folder / "sizes.yaml").write_text(bad_kernels.SIZES)
    (machine.folder / "space.yaml").write_text(small_space(bad_kernels.AXES))
    templates_into(machine.folder / "templates", bad_kernels.TEMPLATES)
    return machine


class Starts:
    """The starts of a launcher: when each journal had its first line, and its last one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sizes = folder, dict[Path, int]()
        self.first, self.last = dict[Path, float](), dict[Path, float]()

    def look(self) -> None:
        for path in sorted(self.folder.glob("results/*/raw/*/start*/journal.jsonl")):
            size = path.stat().st_size
            if size != self.sizes.get(path, 0):
                self.sizes[path] = size
                self.last[path] = time.monotonic()
                self.first.setdefault(path, self.last[path])

    def lost_s(self, name: str) -> float | None:
        """Seconds from the last word of the start that died at a configuration to the first of the next; None when it
        cost no start."""
        journals = sorted(self.first, key=lambda path: self.first[path])
        for dead, following in itertools.pairwise(journals):
            text = dead.read_text(encoding="utf-8")
            begun = [line for line in text.splitlines() if '"begin"' in line]
            if '"finished"' not in text and begun and name in begun[-1]:
                return self.first[following] - self.last[dead]
        return None


def run_watched(machine: Machine) -> tuple[Outcome, Starts]:
    starts, began = Starts(machine.folder), time.monotonic()
    process = machine.start(*FLAGS)
    while process.poll() is None:
        starts.look()
        time.sleep(LOOK_S)
    return machine.end(process, began), starts


def test_bad_kernels_cost_themselves(gpu_machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine = gpu_machine
    done, starts = run_watched(machine)
    assert done.status == 0, done.err
    assert machine.orphans() == []
    require_complete_states(machine)
    ((key, statuses),) = statuses_of(machine).items()
    table = run_record.read_table(machine.run_folder(), key).set_index("name")
    before = files_of(machine)
    again = machine.run(*FLAGS)
    assert again.status == 0 and "this run is finished" in again.err, again.err
    assert len(machine.run_folders()) == 1 and rows_of(machine)[key]
    lines = [title(machine, done, again)]
    lines += [
        "| fault | what happened | configs lost | seconds from the last word to the next start's first |",
        "|---|---|---|---|",
    ]
    for fault in FAULTS:
        mine = {name: status for name, status in statuses.items() if fault.tile in name}
        (name,) = mine
        lost_s = starts.lost_s(name)
        message = str(table.loc[name, "message"]).replace("|", "/")[:110]
        seconds = "" if lost_s is None else f"{lost_s:.1f}"
        lines.append(f"| {fault.title} | `{mine[name]}`: {message} | {len(mine)} | {seconds} |")
    with capsys.disabled():
        print("\n" + "\n".join(lines))

    for fault in FAULTS:
        assert {status for name, status in statuses.items() if fault.tile in name} <= set(fault.ends), fault
    assert {status for name, status in statuses.items() if GOOD in name} == {"ok"}
    (size,) = machine.record().sizes
    assert GOOD in size.chosen
    hung_s = starts.lost_s(next(name for name in statuses if FAULTS[0].tile in name))
    assert hung_s is not None and hung_s < LAUNCH_LIMIT_S + MOST_MORE_S
    assert files_of(machine) == before, "a finished run started something"


def files_of(machine: Machine) -> dict[str, int]:
    """When what a run leaves was last written, plans, journals and traces among it; less its lock and its store."""
    paths = (path for path in machine.run_folder().rglob("*") if path.is_file())
    return {
        str(path): path.stat().st_mtime_ns for path in paths if not path.name.startswith(("run.lock", "run.sqlite"))
    }


def title(machine: Machine, done: Outcome, again: Outcome) -> str:
    """The machine, the versions and the date, as docs/faults.md has them."""
    header = run_record.read(machine.run_folder()).header
    driver = subprocess.run(["uname", "-r"], capture_output=True, text=True).stdout.strip()
    return (
        f"{header['device']}, {str(header['date'])[:10]}, Triton {header['triton']}, torch {header['torch']}, "
        f"{header['profiler']} {header['profiler_version']}, driver {header['driver']}, Linux {driver}: "
        f"{done.seconds:.0f} s in all, the finished run again {again.seconds:.1f} s.\n"
    )
