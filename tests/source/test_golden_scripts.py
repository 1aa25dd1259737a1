"""What may not change in a generated script unasked, and what running it on a CPU does not show. No torch, no GPU.

That a script computes the right values is what tests/interpreter and tests/compile run and compile it for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from samples import ROOT, device

from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.source import codegen

GOLDEN = ROOT / "tests" / "golden" / "scripts"
BF16_NN = GemmProblem(4096, 4096, 4096)
FP16_TN_BIAS = GemmProblem(512, 512, 512, "fp16", "fp16", "fp16", Layout.COL, Layout.ROW, bias=True)
SM_90, GFX942 = (device(arch).target for arch in ("sm_90", "gfx942"))
TILE = KernelConfig("gemm_tile", 128, 256, 64, 8, 1, 8, 3)
SCRIPTS = {
    "gemm_tile": (BF16_NN, (TILE, replace(TILE, SPLIT_K=4)), SM_90),
    "gemm_persistent": (BF16_NN, (replace(TILE, PROGRAMS_PER_SM=1, WARP_SPECIALIZE=1),), SM_90),
    "gemm_split_k": (BF16_NN, (replace(TILE, SPLIT_K=4),), SM_90),
    "gemm_stream_k": (BF16_NN, (replace(TILE, PROGRAMS_PER_SM=1, EPILOGUE_SUBTILE=2),), SM_90),
    "gemm_packed": (BF16_NN, (replace(TILE, PACK_BLOCK=64),), SM_90),
    "gemv": (BF16_NN, (replace(TILE, BLOCK_SIZE_M=4, GROUP_SIZE_M=1),), SM_90),
    "gemm_tile_bias": (
        FP16_TN_BIAS,
        (replace(TILE, num_stages=2, waves_per_eu=2, matrix_instr_nonkdim=16, kpack=2),),
        GFX942,
    ),
}
# Triton's interpreter ignores these: memory order, caches, pipelining, launches that overlap, and precision.
UNSEEN_CALLS = {"debug_barrier", "gdc_wait", "gdc_launch_dependents", "max_contiguous", "multiple_of"}
UNSEEN_KEYWORDS = {
    "cache_modifier", "eviction_policy", "flatten", "input_precision", "num_stages", "scope", "sem", "volatile",
    "warp_specialize",
}  # fmt: skip


def interface(tree: ast.Module) -> Iterator[str]:
    """What launchers and exported modules use: functions with their decorators and parameters, and tables."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield from (f"@{ast.unparse(decorator)}" for decorator in node.decorator_list)
            yield f"def {node.name}({ast.unparse(node.args)})"
        elif isinstance(node, ast.Assign):
            yield ast.unparse(node)


def unseen(function: ast.FunctionDef) -> Iterator[str]:
    """What only a GPU tells from its absence, in the order of the function's text."""
    nodes = [node for node in ast.walk(function) if isinstance(node, (ast.Call, ast.Name))]
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(node, ast.Name):
            if node.id == "FOLLOWING":
                yield f"{function.name}: {node.id}"
            continue
        name = ast.unparse(node.func).rsplit(".", 1)[-1]
        hints = sorted(ast.unparse(one) for one in node.keywords if one.arg in UNSEEN_KEYWORDS)
        if name in UNSEEN_CALLS:
            yield f"{function.name}: {ast.unparse(node)}"
        elif hints:
            yield f"{function.name}: {name}({', '.join(hints)})"


def kept(text: str) -> str:
    tree = ast.parse(text)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    lines = [*interface(tree), "", *(line for function in functions for line in unseen(function))]
    return "\n".join(lines).rstrip() + "\n"


@pytest.mark.parametrize("name", SCRIPTS)
def test_golden_scripts(name: str, templates: Path, update_golden: bool) -> None:
    """After a wanted change: ``make golden``, and read the diff."""
    problem, configs, target = SCRIPTS[name]
    family = name.removesuffix("_bias")
    configs = tuple(replace(config, family=family) for config in configs)
    text = kept(codegen.render(templates, family, problem.as_class(), configs, target))
    golden = GOLDEN / f"{name}.txt"
    if update_golden:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
