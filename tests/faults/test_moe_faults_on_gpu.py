"""A server's fused MoE kernel of which single configurations do not compile, hang or fault on a real GPU: a row each,
and the run goes on; one that is killed in the middle goes on when it is started again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import moe_kernel_source
import pytest
from fault_runs import LOOK_S, ROOT, Machine, require_complete_states, statuses_of

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Verified
from gemm_tuner.measure import device
from gemm_tuner.moe.servers import entry
from gemm_tuner.store import results, run_record

pytestmark = pytest.mark.gpu

LAYER = ("--E", "8", "--N", "64", "--K", "64", "--topk", "2", "--m", "16")
# With the server served, our own kernel does not stand beside it.
TASK = ("moe", *LAYER, "--kernel_from", "fused_moe.py", "--serve", "vllm", "--no_whole_calls", "-o", "moe.yaml")
FLAGS = ("--search", "full", "--iters", "10", "--launch_limit", "5", "--keep")
# Of a tile each: BLOCK_SIZE_M, N, K, GROUP_SIZE_M, num_warps, num_stages; the statement, and how it ends.
FAULTS = {
    (16, 32, 64, 1, 8, 5): ("tl.static_assert(NAME == '')", "compile_error"),
    (16, 64, 64, 1, 8, 4): (
        "while tl.load(a_ptr, volatile=True) == tl.load(a_ptr, volatile=True):\n            pid += 0",
        "timeout",
    ),
    (16, 128, 64, 1, 4, 5): ("tl.store(c_ptr + (pid.to(tl.int64) + 1) * 1099511627776, 1.0)", "crashed"),
}
NAMES = {tile: PlainConfig("vllm_moe", tuple(entry(*tile).items())).name for tile in FAULTS}


def with_faults() -> str:
    """The kernel of the tests, which does wrong where its symbol, in the place of NAME, is that of a tile."""
    source, first = moe_kernel_source.VLLM, "    pid = tl.program_id(0)\n"
    assert source.count(first) == 1
    bad = ""
    for (m, n, k, group, warps, stages), (statement, _) in FAULTS.items():
        bad += f'    if NAME == "vllm_moe_up_{m}x{n}x{k}_g{group}_w{warps}_s{stages}":\n        {statement}\n'
    return source.replace(first, first + bad).replace("FAR = ", 'NAME = tl.constexpr("")\nFAR = ')


@pytest.fixture
def gpu_machine(tmp_path: Path) -> Machine:
    if not any(row["arch"].startswith("sm_") for row in device.look().gpus):
        pytest.skip("torch sees no NVIDIA GPU on this machine")
    cache = tmp_path / "triton_cache"
    cache.mkdir()
    machine = Machine(tmp_path / "run", cache, script=ROOT / "tune_gemm.py", task=TASK)
    (machine.folder / "fused_moe.py").write_text(with_faults())
    return machine


def require_rows(machine: Machine) -> None:
    """Each bad configuration has a row of its own, and the others are right."""
    require_complete_states(machine)
    ((key, statuses),) = statuses_of(machine).items()
    assert {NAMES[tile]: statuses[NAMES[tile]] for tile in FAULTS} == {
        NAMES[tile]: end for tile, (_, end) in FAULTS.items()
    }
    others = {name: status for name, status in statuses.items() if name not in NAMES.values()}
    assert len(others) > 15 and set(others.values()) <= {"ok", "early_stopped", "pruned"}
    table = run_record.read_table(machine.run_folder(), key).set_index("name")
    assert all(str(table.loc[name, "message"]) not in ("", "nan") for name in NAMES.values())
    (row,) = results.read(machine.folder / "moe.yaml").rows
    assert row.verified is Verified.TRUE and row.config is not None and row.config.name not in NAMES.values()


def test_bad_configurations_cost_a_row_each(gpu_machine: Machine) -> None:
    done = gpu_machine.run(*FLAGS)
    assert done.status == 0, done.err
    assert gpu_machine.orphans() == []
    require_rows(gpu_machine)


def test_a_run_that_is_killed_in_the_middle_goes_on(gpu_machine: Machine) -> None:
    process = gpu_machine.start(*FLAGS)
    while process.poll() is None and not ended_in(gpu_machine.folder, 4):
        time.sleep(LOOK_S)
    assert process.poll() is None, "it ended before it was killed"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert gpu_machine.orphans() == []
    before = ended_in(gpu_machine.folder, 4)
    done = gpu_machine.run(*FLAGS)
    assert done.status == 0, done.err
    assert before and "going on with" in done.err and len(gpu_machine.run_folders()) == 1
    require_rows(gpu_machine)


def ended_in(folder: Path, least: int) -> bool:
    """Whether at least so many configurations were timed, as the journals of launchers say."""
    journals = folder.glob("results/*/raw/*/start*/journal.jsonl")
    return sum(path.read_bytes().count(b'"end"') for path in journals) >= least
