"""Configurations that are checked in sequence, with Triton's interpreter: a kernel that damages its operands or writes
nothing makes no other one wrong or right."""

from __future__ import annotations

from pathlib import Path

import examiner_runner
from damaging_kernels import DAMAGES, IDLES, ONE_TILE, ORDERS, RIGHT, faulty_templates
from interpreter_child import interpreter
from samples import config, device

from gemm_tuner.compile import compile_tasks


def test_faulty_kernels_make_no_other_one_wrong(tmp_path: Path) -> None:
    configs = {
        columns: config(BLOCK_SIZE_M=64, BLOCK_SIZE_N=columns, BLOCK_SIZE_K=32) for columns in (RIGHT, DAMAGES, IDLES)
    }
    pairs = [(ONE_TILE, one) for one in configs.values()]
    templates, target = faulty_templates(tmp_path), device("sm_90").target
    (script,) = compile_tasks.write_scripts(templates, tmp_path, pairs, target).values()
    orders = [[configs[columns].name for columns in order] for order in ORDERS]
    given = {"script": str(tmp_path / script.file), "problem": ONE_TILE.to_dict(), "orders": orders}
    found = interpreter().ask(examiner_runner.run, **given)
    assert found == [[[columns == RIGHT, True] for columns in order] for order in ORDERS]
