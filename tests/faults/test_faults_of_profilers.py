"""Profilers that fail, hang and lie: no time is taken for another, and the same command goes on when they are well.

``make test`` has two of the faults in a run that has others, ``make test-all`` each alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from fault_runs import MEASURED, Machine, Undisturbed, require_complete_states, rows_of, statuses_of


@dataclass(frozen=True)
class BadProfiler:
    """What nsys does, and what the tuner says of it at the end."""

    fault: str
    words: tuple[str, ...]


BAD_PROFILERS = (
    BadProfiler("exits 1", ("nsys ended with exit status 1", "No GPU for nsys")),
    BadProfiler("hangs", ("nsys did not come to an end and was killed",)),
    BadProfiler("writes nothing", ("trace_cuda_gpu_trace.csv", "the profiler wrote no such file")),
    BadProfiler("half a file", ("trace_cuda_gpu_trace.csv, line ",)),
    BadProfiler("rows twice", ("trace_cuda_gpu_trace.csv, line 3", "each launch once")),
    BadProfiler("another locale", ("trace_cuda_gpu_trace.csv, line 2",)),
)


WAY_OUT = ("--profiler ", "proton", "--fresh")
# Of these one run with other faults has one after another: test_faults_of_machines.py.
SAMPLE = tuple(bad for bad in BAD_PROFILERS if bad.fault in ("hangs", "half a file"))


@pytest.mark.grid
@pytest.mark.parametrize("bad", BAD_PROFILERS, ids=lambda bad: bad.fault)
def test_a_bad_profiler_ends_the_run_with_one_line(
    bad: BadProfiler, machine: Machine, undisturbed: Undisturbed
) -> None:
    require_told(machine, bad)

    again = machine.run(*MEASURED)

    assert again.status == 0, again.err
    assert len(machine.run_folders()) == 1
    assert rows_of(machine) == undisturbed.rows


def require_told(machine: Machine, bad: BadProfiler) -> None:
    """A run ends and says in one line what the profiler did."""
    done = machine.run(*MEASURED, NSYS_FAULT=bad.fault, HANG_NOTES=str(machine.folder / "hangs"))
    assert done.status == 3, done.err
    assert all(word in done.last_line() for word in (*bad.words, *WAY_OUT)), done.err
    assert "Traceback" not in done.err
    assert machine.orphans() == []


def test_a_trace_that_lost_kernels_costs_the_configurations_that_ran_them(
    machine: Machine, undisturbed: Undisturbed
) -> None:
    done = machine.run(*MEASURED, NSYS_FAULT="three kernels short")
    assert done.status == 0, done.err
    require_complete_states(machine)
    rows, lost = rows_of(machine), 0
    for size, statuses in statuses_of(machine).items():
        assert set(statuses.values()) <= {"ok", "missing_in_trace"}
        for name, status in statuses.items():
            mine, before = rows[f"{size} table"][name], undisturbed.rows[f"{size} table"][name]
            lost += status != "ok"
            if status == "ok":
                assert mine["screen_us"] == before["screen_us"]
                # What was no finalist may be one in the place of what the screening lost.
                assert "nan" in (mine["finals_us"], before["finals_us"]) or mine["finals_us"] == before["finals_us"]
            else:
                assert "trace" in mine["message"]  # of screening, or of the processes that publish
    assert lost > 0


@pytest.mark.grid  # tests/measure/test_launch.py has it in small
def test_an_import_that_fails_on_long_traces_is_had_in_shorter_ones(machine: Machine, undisturbed: Undisturbed) -> None:
    """Half of what screening or finals take goes in."""
    done = machine.run(*MEASURED, NSYS_FAULT="wrong event order", NSYS_MOST="170")
    assert done.status == 0, done.err
    assert len(list(machine.run_folder().glob("configs/*.csv.gz"))) == 2
    assert machine.record().facts["profiler starts"] > 2
    assert rows_of(machine) == undisturbed.rows
