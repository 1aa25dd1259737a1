"""Configurations of a host function that are the same call: one of them is timed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from samples import TEMPLATES, device

from gemm_tuner.compile import compile_tasks
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.compile.same_code import duplicates
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Status
from gemm_tuner.hosts import host_spec_file
from gemm_tuner.hosts.host_spec import HostProblem
from gemm_tuner.kernels.workload import family_of
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.pipeline import prepare

# Stages change nothing without a loop. PARTS is an argument at run time, SHIFT moves where the input begins, PAD is how
# much more the output holds, and SPLIT is in the grid: each is another call of the same code.
SOURCE = """
import torch
import triton
import triton.language as tl

@triton.jit
def doubled(out, x, n, parts, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2 + parts, mask=at < n)

def run(n, PARTS=3, SHIFT=0, PAD=0, SPLIT=5, INPLACE=False):
    x = torch.randn(2 * n, device="cuda")[SHIFT : SHIFT + n]
    out = x if INPLACE else torch.empty(2 * n + PAD, device="cuda")[:n]
    doubled[(SPLIT,)](out, x, n, PARTS, BLOCK=16)
    return out
"""


BASE = {"num_stages": 1, "PARTS": 3, "SHIFT": 0, "PAD": 0, "SPLIT": 5, "INPLACE": False}
OTHERS = {"num_stages": 3, "PARTS": 5, "SHIFT": 16, "PAD": 64, "SPLIT": 6, "INPLACE": True}


def test_the_same_code_is_the_same_call_where_what_it_is_launched_with_is(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SOURCE)
    sm_90 = device("sm_90")
    spec, _ = host_spec_file.read(f"{tmp_path}/mine.py:doubled", f"{tmp_path}/mine.py:run", None)
    spec = replace(spec, params=tuple((axis, (value, OTHERS[axis])) for axis, value in BASE.items()))
    problem = replace(HostProblem.of(spec, (("n", 80),)), device=sm_90)
    rows = {"": BASE, **{axis: {**BASE, axis: value} for axis, value in OTHERS.items()}}
    configs = {axis: PlainConfig(family_of(spec), tuple(row.items())) for axis, row in rows.items()}
    wanted = [(problem, one) for one in configs.values()]
    scripts = compile_tasks.write_scripts(TEMPLATES, tmp_path, wanted, sm_90.target)
    tasks = compile_tasks.tasks_for(wanted, scripts, sm_90.target)
    state = prepare.state_of_given(problem, list(configs.values()))
    paths = tmp_path / "cache", tmp_path / "log", tmp_path
    with CompilePool(LANGUAGE, sm_90.target, 1, *paths, 120.0, kind="hosts") as pool:
        found = {task.name: result for task, result in pool.run(tasks)}
    assert {one.status for one in found.values()} == {Status.OK}, found
    for one in configs.values():
        state.record_compile(one.name, found[one.kernel_symbol])
    assert duplicates(state, sm_90.num_sms) == {configs["num_stages"].name: configs[""].name}
