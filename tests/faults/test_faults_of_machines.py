"""Full disks, folders that may not be written, two runs at once, Ctrl-C and SIGTERM; and a run that has ended.

A run is disturbed, some runs several times, before it may end. ``make test`` fills a disk once and asks a run of two
sizes that has ended what it does; ``make test-all`` fills it twice, and asks a run of twenty sizes too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_runs import (
    LOOK_S,
    MEASURED,
    PREDICTED,
    ROOT,
    SMALL_SIZES,
    Machine,
    Undisturbed,
    hangs_at,
    require_complete_states,
    rows_of,
    unusable,
)
from test_faults_of_profilers import SAMPLE as BAD_PROFILERS
from test_faults_of_profilers import require_told
from test_kills import progress, stored

from gemm_tuner.core.records import Verified
from gemm_tuner.store import results
from gemm_tuner.system import gpu_lock

HANGS = "BM16_BN32"
BRIEF = ("--templates", "templates", "--profiler", "nsys", "--screen_with", "nsys")


def require_one_line(text: str, *words: str) -> None:
    last = text.strip().splitlines()[-1]
    assert last.startswith("tune_gemm.py: ") and all(word in last for word in words), text
    assert "Traceback" not in text


def require_whole(machine: Machine, undisturbed: Undisturbed) -> None:
    """The same command goes on and ends with the rows of a run that nothing disturbed."""
    again = machine.run(*MEASURED)
    assert again.status == 0, again.err
    assert len(machine.run_folders()) == 1
    require_complete_states(machine)
    assert rows_of(machine) == undisturbed.rows


ONCE_OR_TWICE = pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.grid)])


@contextlib.contextmanager
def small_disk(at: Path, kib: int) -> Iterator[bool]:
    """Whether it is there: only root may mount one."""
    at.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "none", str(at)], capture_output=True)
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "--lazy", str(at)], check=True)


@ONCE_OR_TWICE
def test_a_full_disk_and_files_that_cannot_grow(times: int, machine: Machine, undisturbed: Undisturbed) -> None:
    """One run, that ends at each of them, and at bad profilers, and goes on."""
    with small_disk(machine.folder / "results", 60) as is_small:
        for larger in ("200k", "64m")[-times:] if is_small else ():
            require_full(machine)
            for path in machine.run_folders():
                for table in path.glob("configs/*"):
                    assert table.name.endswith(".csv.gz")
            subprocess.run(["mount", "-o", f"remount,size={larger}", str(machine.folder / "results")], check=True)
        for most_bytes in (16 * 1024, 150 * 1024)[-times:]:  # first files, the store, a journal or a trace
            machine.prefix = ("sh", "-c", f'ulimit -f {most_bytes // 512}; exec "$@"', "sh")
            require_full(machine)
        machine.prefix = ()
        for bad in BAD_PROFILERS:
            require_told(machine, bad)
        require_whole(machine, undisturbed)
    if not is_small:
        pytest.skip("all but the full disk was tried: only root may mount a small one")


def require_full(machine: Machine) -> None:
    """A run ends where it cannot write, and says what to do."""
    done = machine.run(*MEASURED)
    assert done.status == 3, done.err
    require_one_line(done.err, "free")
    assert machine.orphans() == []


def test_a_folder_that_may_not_be_written(machine: Machine) -> None:
    if os.geteuid() == 0:
        closed = Path("/proc/results")
    else:
        closed = machine.folder / "closed"
        closed.mkdir(mode=0o555)
    done = machine.run(*MEASURED, "--output_dir", str(closed))
    assert done.status == 3, done.err
    require_one_line(done.err, str(closed), "cannot make a folder", "choose another --output_dir")


def wait_for(machine: Machine, process: subprocess.Popen[str], point: int, before: int = 0) -> None:
    """Until a run has come to a point, and somewhere: before is the progress that it started from."""
    while ((now := progress(machine.folder)) < point or now == before) and not machine.is_held:
        assert process.poll() is None, machine.end(process).err
        time.sleep(LOOK_S)


@pytest.mark.parametrize(
    "task",
    [
        pytest.param((*MEASURED, "--fresh"), marks=pytest.mark.grid, id="tune"),
        pytest.param(("--benchmark", *BRIEF), id="benchmark"),
        pytest.param(("--compare_wo_tuning", *BRIEF), marks=pytest.mark.grid, id="check"),
    ],
)
def test_a_gpu_in_use_is_refused_where_nothing_shall_wait(task: tuple[str, ...], undisturbed: Undisturbed) -> None:
    machine = undisturbed.machine.another()
    if "--fresh" not in task:
        task = (*task, "--gemm_size_file", str(machine.run_folder() / "tuned.yaml"))
    with gpu_lock.held(["number-0"]):
        refused = machine.run(*task, "--no_wait", "--output_dir", "others")
    assert refused.status == 3, refused.err
    require_one_line(refused.err, f"process {os.getpid()} (", "--wait")


@pytest.mark.parametrize("between", [False, pytest.param(True, marks=pytest.mark.grid)], ids=["three", "four"])
def test_once_finishes_what_runs_and_saves_it_and_twice_ends_at_once(
    between: bool, machine: Machine, undisturbed: Undisturbed
) -> None:
    """One run, that waits for a GPU in use, is ended three or four times and goes on."""
    with gpu_lock.held(["number-0"]):
        once(machine, signal.SIGTERM, 2)
        process = machine.start(*MEASURED, STAND_IN_FAULTS=f"{HANGS}=hang")
        require_waiting(machine, process)
    twice(machine, process)
    if between:
        once(machine, signal.SIGTERM, 12)
    once(machine, signal.SIGINT, 80)
    require_whole(machine, undisturbed)


def once(machine: Machine, number: signal.Signals, point: int) -> None:
    before = progress(machine.folder)
    machine.hold.touch()  # it does not end before it is asked to
    process = machine.start(*MEASURED)
    wait_for(machine, process, point, before)
    os.killpg(process.pid, number)  # as a terminal does
    machine.release()
    done = machine.end(process)
    assert done.status == 130, done.err
    assert number.name in done.err and "the same command goes on from here" in done.last_line()
    assert machine.orphans() == []


def twice(machine: Machine, process: subprocess.Popen[str]) -> None:
    """While a kernel hangs."""
    while not hangs_at(machine, HANGS):
        assert process.poll() is None, machine.end(process).err
        time.sleep(LOOK_S)
    os.killpg(process.pid, signal.SIGINT)
    while "once more" not in machine.err_path.read_text():
        assert process.poll() is None
        time.sleep(LOOK_S)
    os.killpg(process.pid, signal.SIGINT)
    done = machine.end(process)
    assert done.status == 130, done.err
    assert machine.orphans() == []


def require_waiting(machine: Machine, process: subprocess.Popen[str]) -> None:
    """Another process measures: nothing is timed, all is compiled, the holder is named. A second run in the same folder
    says who is at it."""
    while "waiting for GPU" not in machine.err_path.read_text():
        assert process.poll() is None
        time.sleep(LOOK_S)
    assert stored(machine.folder)["compiles"] > 0 and stored(machine.folder)["timings"] == 0
    second = subprocess.run(
        process.args, cwd=machine.folder, env={**os.environ, **machine.env}, capture_output=True, text=True
    )
    assert second.returncode == 3, second.stderr
    words = ("this run is under way already", f"process {process.pid} on ", " since 20", "--fresh")
    require_one_line(second.stderr, *words)


@pytest.mark.grid
def test_a_run_of_twenty_sizes_that_has_ended_does_nothing(machine: Machine) -> None:
    sizes = "".join(f"- {{M: {64 * n}, N: 256, K: 512}}\n" for n in range(1, 21))
    (machine.folder / "sizes.yaml").write_text(sizes)
    assert machine.run(*MEASURED).status == 0
    before = written(machine)
    done = machine.run(*MEASURED)
    assert done.status == 0 and "this run is finished: 20 of 20 sizes" in done.err
    assert written(machine) == before
    print(f"a finished run of 20 sizes was found to be finished in {done.seconds:.1f} s")


def written(machine: Machine) -> dict[Path, int]:
    """When each file of a run was last written, less its lock and its store."""
    files = (path for path in machine.run_folder().rglob("*") if path.is_file())
    return {path: path.stat().st_mtime_ns for path in files if not path.name.startswith(("run.lock", "run.sqlite"))}


def test_a_budget_below_the_floor_is_said_and_still_gives_right_rows(machine: Machine) -> None:
    done = machine.run(*MEASURED, "--budget", "1s")
    assert done.status == 0, done.err
    assert "--budget: 1 s is too short" in done.err
    rows = results.read(machine.run_folder() / "tuned.yaml").rows
    assert [row.verified for row in rows] == [Verified.TRUE] * 2  # how much more than the floor fits, the machine says


def test_a_finished_run_answers_without_looking_for_gpus_or_starting_anything(undisturbed: Undisturbed) -> None:
    """Neither torch nor Triton can be imported, and the profiler notes its starts: only its version is asked for."""
    machine = undisturbed.machine.another()
    before = written(machine)
    broken = unusable(machine.folder / "broken", "torch", "triton")
    notes, noting = machine.folder / "starts.txt", machine.folder / "noting"
    noting.mkdir()
    nsys = (machine.folder / "bin" / "nsys").read_text()
    (noting / "nsys").write_text(nsys.replace("sh\n", f'sh\necho "$1" >> {notes}\n', 1))
    (noting / "nsys").chmod(0o755)
    machine.env["PATH"] = f"{noting}{os.pathsep}{machine.env['PATH']}"
    machine.env["PYTHONPATH"] = str(broken)
    done = machine.run(*MEASURED)
    assert done.status == 0 and "this run is finished: 2 of 2 sizes" in done.err, done.err
    assert set(notes.read_text().split()) <= {"--version"}
    assert written(machine) == before

    refused = machine.run(*MEASURED, "--fresh")
    assert refused.status == 3 and "torch was imported" in refused.err

    machine.env["CUDA_VISIBLE_DEVICES"] = "0"
    changed = machine.run(*MEASURED)
    assert changed.status == 3 and "torch was imported" in changed.err
    assert machine.orphans() == []


def test_without_a_gpu_a_run_goes_on_too(tmp_path: Path, cache: Path, predicted: Undisturbed) -> None:
    machine = Machine(tmp_path / "run", cache, script=ROOT / "tune_gemm.py", sizes=SMALL_SIZES)
    process = machine.start(*PREDICTED)
    wait_for(machine, process, 3)
    process.kill()
    assert machine.end(process).status == -signal.SIGKILL
    assert machine.orphans() == []
    again = machine.run(*PREDICTED)
    assert again.status == 0, again.err
    assert len(machine.run_folders()) == 1
    assert rows_of(machine) == predicted.rows
