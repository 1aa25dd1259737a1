"""The exact operands show one product that a real kernel leaves out, at a K of up to 32768."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dropping import dropping_templates, terms_to_drop
from gpu_work import FAMILIES, Gpu

from gemm_tuner.gemm.combinations import first_fault
from gemm_tuner.gemm.problem import ACTIVATIONS, SCALINGS, GemmProblem, Layout

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.*TF32.*:UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

# dtype_a, dtype_b, dtype_c, precision
TYPES = {
    "bf16": ("bf16", "bf16", "bf16", "ieee"),
    "bf16 to fp32": ("bf16", "bf16", "fp32", "ieee"),
    "fp16": ("fp16", "fp16", "fp16", "ieee"),
    "fp32": ("fp32", "fp32", "fp32", "ieee"),
    "tf32": ("fp32", "fp32", "fp32", "tf32"),
    "e4m3": ("fp8_e4m3", "fp8_e4m3", "bf16", "ieee"),
    "e5m2 by e4m3": ("fp8_e5m2", "fp8_e4m3", "fp16", "ieee"),
    "e4m3 fnuz": ("fp8_e4m3_fnuz", "fp8_e4m3_fnuz", "bf16", "ieee"),
    "int8": ("int8", "int8", "int32", "ieee"),
    "int8 to bf16": ("int8", "int8", "bf16", "ieee"),
}
# Tile, and what else the configuration has; M and N.
KERNELS = {
    "gemm_tile": ((64, 64, 64), {"split_k": 4}, (96, 160)),
    "gemm_persistent": ((64, 64, 64), {"PROGRAMS_PER_SM": 1}, (96, 160)),
    "gemm_split_k": ((64, 64, 64), {"split_k": 4}, (96, 160)),
    "gemm_stream_k": ((64, 64, 64), {"PROGRAMS_PER_SM": 1}, (96, 160)),
    "gemm_packed": ((64, 64, 64), {"split_k": 4, "PACK_BLOCK": 1024}, (96, 160)),
    "gemv": ((1, 64, 64), {"split_k": 4, "group": 1}, (1, 320)),
}
LENGTHS = (1008, 32768)


def problem_for(family: str, kind: str, k: int) -> GemmProblem:
    """Scalings and activations in turns over families, types and lengths."""
    dtype_a, dtype_b, dtype_c, precision = TYPES[kind]
    turn = FAMILIES.index(family) + list(TYPES).index(kind) + LENGTHS.index(k)
    plain = GemmProblem(*KERNELS[family][2], k, dtype_a, dtype_b, dtype_c, layout_b=Layout.COL, precision=precision)
    scaling = SCALINGS[turn % 4] if (family, SCALINGS[turn % 4]) != ("gemv", "block") else "row_col"
    full = replace(plain, scaling=scaling, activation=ACTIVATIONS[turn % 4], bias=True)
    return next(one for one in (full, replace(full, scaling="none"), plain) if first_fault(one) is None)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_term_that_is_left_out_shows(gpu: Gpu, tmp_path: Path, family: str, kind: str) -> None:
    """k = 0, one in the middle, the first of every block and slice of K, and the last. And with none left out, the
    whole check is content."""
    from gemm_tuner.gemm.check import Caller, check, exact_difference
    from gemm_tuner.gemm.exact_operands import count_sets, make_exact_operands, with_exact_factors

    dtype_a, _, _, precision = TYPES[kind]
    if not gpu.has_type("tf32" if precision == "tf32" else dtype_a):
        pytest.skip(f"{gpu.device.target.arch} has no {kind}")
    tile, more, _ = KERNELS[family]
    config = gpu.config(*tile, family=family, **more)
    pairs = [(problem_for(family, kind, k), config) for k in LENGTHS]
    assert all(gpu.takes(problem, config) for problem, _ in pairs)
    scripts = gpu.scripts(pairs, dropping_templates(tmp_path / "templates"))
    for given, _ in pairs:
        script = scripts[family, given.signature]
        script.DROPPED[0] = -1.0
        verdict = check(script, given, config.name, 1, "cuda")
        assert verdict.ok, f"{given.key}: {verdict.message}"
        problem = with_exact_factors(given)
        caller = Caller.of(script, problem, config.name, "cuda")
        unseen = terms_to_drop(given.k, config.BLOCK_SIZE_K, config.SPLIT_K)
        for number in range(count_sets(problem)):
            operands = make_exact_operands(problem, number, 1, "cuda")
            dropped, unseen = unseen, []
            for term in dropped:
                script.DROPPED[0] = float(term)
                if exact_difference(caller.result(problem, operands), problem, operands) is None:
                    unseen.append(term)
        assert unseen == [], given.key
    assert gpu.counter.compiled == 0, "kernels were compiled in the process that runs them"
