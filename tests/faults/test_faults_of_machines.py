"""Full disks, folders that may not be written, two runs at once, Ctrl-C and SIGTERM; and a run that has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Undisturbed
from fault_runs import LOOK_S, MEASURED, PREDICTED, Machine, require_accounts, rows_of
from test_kills import progress, stored

from gemm_tuner.core.records import Verified
from gemm_tuner.store import results
from gemm_tuner.system import gpu_lock


def require_one_line(text: str, *words: str) -> None:
    last = text.strip().splitlines()[-1]
    assert last.startswith("tune_gemm.py: ") and all(word in last for word in words), text
    assert "Traceback" not in text


def require_whole(machine: Machine, undisturbed: Undisturbed) -> None:
    """The same command goes on and ends with the rows of a run that nothing disturbed."""
    again = machine.run(*MEASURED)
    assert again.status == 0, again.err
    assert len(machine.run_folders()) == 1
    require_accounts(machine)
    assert rows_of(machine) == undisturbed.rows


@pytest.mark.parametrize("most_bytes", [16 * 1024, 150 * 1024])
def test_files_that_cannot_grow(most_bytes: int, machine: Machine, undisturbed: Undisturbed) -> None:
    """Writing stops at other files: the first ones, the store, a journal or a trace."""
    machine.prefix = ("sh", "-c", f'ulimit -f {most_bytes // 512}; exec "$@"', "sh")
    done = machine.run(*MEASURED)
    assert done.status == 3, done.err
    require_one_line(done.err, "free")
    assert machine.orphans() == []
    machine.prefix = ()
    require_whole(machine, undisturbed)


@contextlib.contextmanager
def small_disk(at: Path, kib: int) -> Iterator[None]:
    at.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "none", str(at)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


@pytest.mark.parametrize("kib", [60, 200])
def test_a_full_disk(kib: int, machine: Machine, undisturbed: Undisturbed) -> None:
    with small_disk(machine.folder / "results", kib):
        done = machine.run(*MEASURED)
        assert done.status == 3, done.err
        require_one_line(done.err, "free")
        assert machine.orphans() == []
        for path in machine.run_folders():
            for table in path.glob("configs/*"):
                assert table.name.endswith(".csv.gz")
        subprocess.run(["mount", "-o", "remount,size=64m", str(machine.folder / "results")], check=True)
        require_whole(machine, undisturbed)


def test_a_folder_that_may_not_be_written(machine: Machine) -> None:
    if os.geteuid() == 0:
        closed = Path("/proc/results")
    else:
        closed = machine.folder / "closed"
        closed.mkdir(mode=0o555)
    done = machine.run(*MEASURED, "--output_dir", str(closed))
    assert done.status == 3, done.err
    require_one_line(done.err, str(closed), "cannot make a folder", "choose another --output_dir")


def wait_for(machine: Machine, process: subprocess.Popen[str], point: int) -> None:
    while progress(machine.folder) < point:
        assert process.poll() is None, machine.end(process).err
        time.sleep(LOOK_S)


def test_a_second_run_says_who_is_at_it(machine: Machine, undisturbed: Undisturbed) -> None:
    first = machine.start(*MEASURED)
    wait_for(machine, first, 5)
    os.kill(first.pid, signal.SIGSTOP)
    try:
        second = subprocess.run(
            first.args, cwd=machine.folder, env={**os.environ, **machine.env}, capture_output=True, text=True
        )
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert second.returncode == 3, second.stderr
    require_one_line(second.stderr, "this run is under way already", f"process {first.pid} on ", " since 20", "--fresh")
    assert machine.end(first).status == 0
    assert rows_of(machine) == undisturbed.rows


def test_a_gpu_in_use_is_waited_for_while_kernels_compile(machine: Machine, undisturbed: Undisturbed) -> None:
    """Another process measures: nothing is timed, all is compiled, the holder is named; --no_wait ends with 3."""
    with gpu_lock.held(["number-0"]):
        refused = machine.run(*MEASURED, "--no_wait")
        assert refused.status == 3
        require_one_line(refused.err, f"process {os.getpid()} (", "--wait")
        process = machine.start(*MEASURED)
        while "waiting for GPU" not in (machine.folder / "err.txt").read_text():
            assert process.poll() is None
            time.sleep(LOOK_S)
        assert stored(machine.folder)["compiles"] > 0 and stored(machine.folder)["timings"] == 0
    done = machine.end(process)
    assert done.status == 0, done.err
    assert rows_of(machine) == undisturbed.rows

    with gpu_lock.held(["number-0"]):
        flags = ("--templates", "templates", "--profiler", "nsys", "--no_wait")
        tuned = str(machine.run_folder() / "tuned.yaml")
        for task in ("--benchmark", "--compare_wo_tuning"):
            refused = machine.run(*flags, task, "--gemm_size_file", tuned)
            assert refused.status == 3, refused.err
            require_one_line(refused.err, f"process {os.getpid()} (")


@pytest.mark.parametrize(("number", "point"), [(signal.SIGINT, 2), (signal.SIGTERM, 12), (signal.SIGINT, 40)], ids=str)
def test_once_finishes_what_runs_and_saves_it(
    number: signal.Signals, point: int, machine: Machine, undisturbed: Undisturbed
) -> None:
    process = machine.start(*MEASURED)
    wait_for(machine, process, point)
    os.killpg(process.pid, number)  # as a terminal does
    done = machine.end(process)
    assert done.status == 130, done.err
    assert number.name in done.err and "the same command goes on from here" in done.last_line()
    assert machine.orphans() == []
    require_whole(machine, undisturbed)


def test_twice_ends_at_once(machine: Machine, undisturbed: Undisturbed) -> None:
    machine.env["STAND_IN_FAULTS"] = "BM64_BN128=hang"
    process = machine.start(*MEASURED)
    wait_for(machine, process, 6)
    os.killpg(process.pid, signal.SIGINT)
    while "once more" not in (machine.folder / "err.txt").read_text():
        assert process.poll() is None
        time.sleep(LOOK_S)
    os.killpg(process.pid, signal.SIGINT)
    done = machine.end(process)
    assert done.status == 130, done.err
    assert machine.orphans() == []
    del machine.env["STAND_IN_FAULTS"]
    require_whole(machine, undisturbed)


def test_a_run_of_twenty_sizes_that_has_ended_does_nothing(machine: Machine) -> None:
    sizes = "".join(f"- {{M: {64 * n}, N: 256, K: 512}}\n" for n in range(1, 21))
    (machine.folder / "sizes.yaml").write_text(sizes)
    assert machine.run(*MEASURED).status == 0
    before = {path: path.stat().st_mtime_ns for path in machine.run_folder().rglob("*") if path.is_file()}
    done = machine.run(*MEASURED)
    assert done.status == 0 and "this run is finished: 20 of 20 sizes" in done.err
    after = {path: path.stat().st_mtime_ns for path in machine.run_folder().rglob("*") if path.is_file()}
    changed = {path.name for path in {*before, *after} if before.get(path) != after.get(path)}
    assert changed <= {"run.lock", "run.sqlite", "run.sqlite-wal", "run.sqlite-shm"}
    print(f"a finished run of 20 sizes was found to be finished in {done.seconds:.1f} s")


def test_a_budget_below_the_floor_is_said_and_still_gives_right_rows(machine: Machine) -> None:
    done = machine.run(*MEASURED, "--budget", "1s")
    assert done.status == 0, done.err
    assert "--budget: 1 s is too short" in done.err
    rows = results.read(machine.run_folder() / "tuned.yaml").rows
    assert [row.verified for row in rows] == [Verified.TRUE] * 2  # how much more than the floor fits, the machine says


def test_a_finished_run_answers_without_looking_for_gpus_or_starting_anything(machine: Machine) -> None:
    """torch cannot be imported any more, and the profiler notes its starts: only its version is asked for."""
    assert machine.run(*MEASURED).status == 0
    broken = machine.folder / "broken"
    (broken / "torch").mkdir(parents=True)
    (broken / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    nsys, notes = machine.folder / "bin" / "nsys", machine.folder / "starts.txt"
    nsys.write_text(nsys.read_text().replace("exec ", f'echo "$1" >> {notes}\nexec ', 1))
    stages = sorted(machine.raw.iterdir()) if machine.raw.exists() else []

    machine.env["PYTHONPATH"] = str(broken)
    done = machine.run(*MEASURED)
    assert done.status == 0 and "this run is finished: 2 of 2 sizes" in done.err, done.err
    assert set(notes.read_text().split()) <= {"--version"}
    assert (sorted(machine.raw.iterdir()) if machine.raw.exists() else []) == stages

    refused = machine.run(*MEASURED, "--fresh")
    assert refused.status == 3 and "torch was imported" in refused.err

    machine.env["CUDA_VISIBLE_DEVICES"] = "0"
    changed = machine.run(*MEASURED)
    assert changed.status == 3 and "torch was imported" in changed.err


def test_without_a_gpu_a_run_goes_on_too(tmp_path: Path, cache: Path, predicted: Undisturbed) -> None:
    machine = Machine(tmp_path / "run", cache)
    process = machine.start(*PREDICTED)
    wait_for(machine, process, 3)
    process.kill()
    assert machine.end(process).status == -signal.SIGKILL
    assert machine.orphans() == []
    again = machine.run(*PREDICTED)
    assert again.status == 0, again.err
    assert len(machine.run_folders()) == 1
    assert rows_of(machine) == predicted.rows
