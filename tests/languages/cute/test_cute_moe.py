"""The family cute_moe: how operands reach its kernels, what rows mean, and, with the extra, what is compiled.

Without pip install '.[cute]' the kernels themselves are not compiled here.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from samples import TEMPLATES, device
from sorted_gemm import with_products

from gemm_tuner.cli import main
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.compile.compile_tasks import tasks_for, write_scripts
from gemm_tuner.compile.task_queue import key_of
from gemm_tuner.core.choice import Choice, Substitute
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.language import language_of
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import CompileResult, Status, Verified
from gemm_tuner.core.workload import launch_all
from gemm_tuner.gemm.reference import SLOPES
from gemm_tuner.languages.cute import extra, library
from gemm_tuner.languages.cute.source import Source
from gemm_tuner.languages.scripts import load_script
from gemm_tuner.languages.together import Together
from gemm_tuner.moe import activation as bounds
from gemm_tuner.moe import check, launchers, operands, sorted_rows
from gemm_tuner.moe.cute import FUSABLE
from gemm_tuner.moe.launch import DOWN, PARTS, UP
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.store import results
from gemm_tuner.store.size_rows import parse_row

NEEDS_DSL = pytest.mark.skipif(importlib.util.find_spec("quack") is None, reason="CuTe DSL is not installed")
TARGET = device("sm_90").target
LAYER = MoeProblem("own", 9, 4, 64, 96, 2, seeds=1)
BIASED = replace(LAYER, dtype="fp16", out="fp16", bias=True)
PLAIN = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "CLUSTER_M": 1, "PINGPONG": 0}


def config(**changes: int) -> PlainConfig:
    return PlainConfig("cute_moe", tuple({**PLAIN, **changes}.items()))


FUSED = config(FUSED_ACTIVATION=1)


def script_of(folder: Path, problem: MoeProblem, *configs: PlainConfig) -> ModuleType:
    (script,) = write_scripts(TEMPLATES, folder, [(problem, one) for one in configs], TARGET).values()
    return load_script(str(folder / script.file))


def launches(folder: Path, problem: MoeProblem, one: PlainConfig, num_sms: int = 132) -> list[Any]:
    """Of a call with torch's tensors, on the CPU."""
    script = script_of(folder, problem, one)
    (given,) = operands.make(problem, 0, "cpu")
    return WORKLOAD.launches(script, script.CONFIGS[one.name], problem, given, None, num_sms)


@pytest.mark.parametrize(
    "problem",
    [
        LAYER,
        BIASED,
        replace(LAYER, M=1, E=26),
        replace(LAYER, M=30, E=7, routing=("zipf:3.0",)),
        replace(LAYER, M=40, E=5, topk=1, activation="relu2_no_mul"),
        replace(LAYER, M=21, global_E=12),
    ],
    ids=["plain", "bias", "one token", "experts without rows", "no gate", "experts of other ranks"],
)
def test_the_arguments_make_the_results_that_the_check_expects(problem: MoeProblem, tmp_path: Path) -> None:
    """Rows sorted by expert, the second GEMM's A among them, weighted by their routers."""
    script = script_of(tmp_path, problem, config())
    (given,) = operands.make(problem, 0, "cpu")
    rows = sorted_rows.of(given)
    assert rows is sorted_rows.of(given)
    launches = WORKLOAD.launches(script, script.CONFIGS[config().name], problem, given, None, 8)
    launch_all(with_products(launches))
    by_row = sorted_rows.in_row_order(given)
    for part in PARTS:
        found = given.gemms[part].c[rows.places]
        verdict = check.compared(problem, by_row, part, "it", found, wide=False, writes_zeros=False)
        assert verdict.ok, verdict.message
    wrong = given.gemms[DOWN].c[rows.places.flip(0)]
    assert problem.rows < 3 or not check.compared(problem, by_row, DOWN, "it", wrong, wide=False).ok


def test_a_kernel_that_damages_the_copy_of_its_operand_makes_no_other_one_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second GEMM's A in the order of rows is a copy that no seal guards."""
    copies: list[Any] = []
    original = sorted_rows.in_row_order

    def copied(given: Any) -> Any:
        copies.append(original(given))
        return copies[-1]

    monkeypatch.setattr(sorted_rows, "in_row_order", copied)
    damaging, right = config(), config(GROUP_SIZE_M=8)

    class Multiplies:
        """Launches that are computed on the CPU; those of ``damaging`` write to the copy as well."""

        def launches(self, script: ModuleType, one: dict[str, Any], *rest: Any) -> list[Any]:
            made = [*with_products(WORKLOAD.launches(script, one, *rest))]
            if one["GROUP_SIZE_M"] == 1:
                made.append(("damage", {(1,): lambda: copies[-1].gemms[DOWN].a.fill_(3.0)}, (1,), (), {}))
            return made

    script = script_of(tmp_path, LAYER, damaging, right)
    together = check.examiner(Multiplies(), LAYER, 0, "cpu")  # type: ignore[arg-type]
    together.verdict(script, damaging.name)
    verdict = together.verdict(script, right.name)
    assert verdict.ok and verdict == check.check(Multiplies(), script, LAYER, right.name, 0, "cpu")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "problem",
    [
        LAYER,
        replace(LAYER, activation="gelu", K=2048),
        replace(LAYER, activation="gelu_tanh", dtype="fp16", out="fp16"),
        replace(BIASED, activation="swigluoai"),
        replace(LAYER, M=21, global_E=12),
    ],
    ids=["silu", "gelu", "gelu_tanh", "pairs, bias", "experts of other ranks"],
)
def test_a_fused_activation_is_checked_as_one_of_sums_that_are_not_rounded(problem: MoeProblem, tmp_path: Path) -> None:
    """What is activated after C was rounded is wrong, and so are gates and values in another order."""
    script = script_of(tmp_path, problem, config(), FUSED)
    (given,) = operands.make(problem, 0, "cpu")
    rows, by_row = sorted_rows.of(given), sorted_rows.in_row_order(given)
    found = {}
    for one in (config(), FUSED):
        chosen = script.CONFIGS[one.name]
        products = with_products(WORKLOAD.launches(script, chosen, problem, given, None, 8))
        launch_all(products)
        found[one] = [sorted_rows.result(given, chosen, part)[rows.places].clone() for part in PARTS]
    (sums, _), (activated, down) = found.values()
    assert activated.shape == (problem.rows, problem.N) and down.shape == (problem.rows, problem.K)

    def is_right(part: str, values: Any) -> bool:
        how = {"wide": False, "writes_zeros": False, "activated": part == UP}
        return check.compared(problem, by_row, part, "it", values, **how).ok

    assert is_right(UP, activated) and is_right(DOWN, down)
    kernel = products[0][1]
    assert not is_right(UP, kernel.activated(sums.float()).to(sums.dtype))
    kernel.halves = not kernel.halves
    assert not is_right(UP, kernel.activated(sums.float()).to(sums.dtype))


@pytest.mark.parametrize("activation", FUSABLE)
def test_the_slope_of_an_activation_bounds_what_an_error_of_its_gate_makes(activation: str) -> None:
    import torch

    x = torch.linspace(-12, 7 if activation == "swigluoai" else 12, 200001, dtype=torch.float64)
    slopes = bounds.curve_of(activation, x).diff() / x.diff()
    assert 0.98 < slopes.abs().max() / SLOPES[bounds.CURVES[activation]] <= 1


def test_what_is_an_argument_of_the_launch_and_what_is_compiled(tmp_path: Path) -> None:
    for one, clusters in ((config(), 132), (config(CLUSTER_M=2, GROUP_SIZE_M=8), 66)):
        for _, _, _, arguments, _ in launches(tmp_path, LAYER, one):
            assert arguments[-2:] == (clusters, dict(one.values)["GROUP_SIZE_M"])
    wanted = config(), config(GROUP_SIZE_M=8), config(PINGPONG=1), config(down_BLOCK_SIZE_M=128)
    entries = [[Source.of(kernel).entry for _, kernel, *_ in launches(tmp_path, LAYER, one)] for one in wanted]
    plain, group, pingpong, pair = entries
    assert plain == group and not set(plain) & set(pingpong)
    assert pair[0] == plain[0] and pair[1] not in plain
    assert [symbol for symbol, *_ in launches(tmp_path, LAYER, wanted[3])] == [
        "cute_moe_up_64x128x64_c1_p0_0", "cute_moe_down_128x128x64_c1_p0_0"
    ]  # fmt: skip
    other = [Source.of(kernel).entry for _, kernel, *_ in launches(tmp_path, BIASED, config())]
    assert not set(other) & set(plain)
    assert [Source.of(k).entry for _, k, *_ in launches(tmp_path, replace(LAYER, M=64, N=32), config())] == plain
    assert WORKLOAD.specialization(LAYER, config(), TARGET) == WORKLOAD.specialization(LAYER.at(64), config(), TARGET)
    assert WORKLOAD.specialization(LAYER, config(), TARGET) != WORKLOAD.specialization(BIASED, config(), TARGET)


def test_the_activation_is_of_the_first_kernel_alone(tmp_path: Path) -> None:
    gelu = replace(LAYER, activation="gelu")

    def compiled_of(problem: MoeProblem, one: PlainConfig) -> tuple[str, str, str]:
        up, down = (Source.of(kernel).entry for _, kernel, *_ in launches(tmp_path, problem, one))
        return up, down, WORKLOAD.specialization(problem, one, TARGET)

    plain, fused, of_gelu = compiled_of(LAYER, config()), compiled_of(LAYER, FUSED), compiled_of(gelu, FUSED)
    assert compiled_of(gelu, config()) == plain == compiled_of(LAYER, config(FUSED_ACTIVATION=0))
    assert plain[1] == fused[1] == of_gelu[1]
    assert len({plain[0], fused[0], of_gelu[0]}) == len({plain[2], fused[2], of_gelu[2]}) == 3


def test_a_machine_without_the_extra_has_no_such_family(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told where the family would be, and nowhere else."""
    monkeypatch.delenv(library.RUNTIME_VARIABLE, raising=False)
    monkeypatch.setattr(extra, "installed", dict)
    assert list(WORKLOAD.absent(["own_moe", "cute_moe"])) == ["cute_moe"]
    assert WORKLOAD.absent(["own_moe", "vllm_moe"]) == {}
    words = ["moe", "--E", "8", "--N", "64", "--K", "128", "--topk", "2", "--m", "5", "--dry_run", "--arch"]
    for arch, more, is_missed in (("sm_90", [], True), ("gfx942", [], False), ("sm_90", ["--serve", "vllm"], False)):
        assert main.main([*words, arch, *more]) == 0
        said = capsys.readouterr()
        assert ("without cute_moe" in said.out + said.err) == is_missed


def test_a_row_says_the_language_and_what_ours_in_triton_takes(tmp_path: Path) -> None:
    """And is no row of a server's kernel."""
    triton = PlainConfig("own_moe", (("BLOCK_SIZE_M", 64), ("num_warps", 4)))
    pair = config(down_BLOCK_SIZE_M=128)
    times = {"median_us": 9.0, "p20_us": 9.0, "p80_us": 9.0, "num_samples": 3, "vendor_us": None}
    errors = {"max_abs_error": 0.0, "error_over_bound": 0.0, "roofline_pct": 50.0}
    rest = {"runner_up": "", "gap_pct": None, "tie": False, "substitute": Substitute(triton, 10.0, Verified.TRUE)}
    choice = Choice(LAYER, pair, "measured", Verified.TRUE, **times, **errors, **rest)  # type: ignore[arg-type]
    path = tmp_path / "tuned.yaml"
    results.write_rows(path, {"source": "measured"}, [results.choice_row(choice)], [])
    (row,) = results.read(path).rows
    assert (row.problem, row.config, row.facts["language"]) == (LAYER, pair, "cute")
    assert row.substitute is not None and row.substitute.config == triton
    assert row.substitute.time_us == 10.0 and row.substitute.verified is Verified.TRUE
    assert "cute_moe" in launchers.family_fault(pair, "vllm")
    for wrong in ("own_moe", {"median_us": 10.0}, {"family": "own_moe", "median_us": -1.0}):
        entry = {**results.choice_row(choice), "substitute": wrong}
        with pytest.raises(UserError, match="substitute"):
            parse_row(entry, "a row")


def compiled(wanted: list[tuple[MoeProblem, PlainConfig]], folder: Path) -> tuple[list[CompileResult], Path]:
    scripts = write_scripts(TEMPLATES, folder, wanted, TARGET)
    cache = folder / "cache"
    cache.mkdir()
    language = Together(language_of("triton"), (language_of("cute"),))
    tasks = tasks_for(wanted, scripts, TARGET, longest_first=False)
    with CompilePool(language, TARGET, 1, cache, folder / "log.txt", folder, limit_s=300, kind="moe") as pool:
        results = {key_of(task): result for task, result in pool.run(tasks)}
    return [results[key_of(task)] for task in tasks], cache


COMPILED = (
    (LAYER, config(PINGPONG=1, BLOCK_SIZE_M=128)),
    (LAYER, config(BLOCK_SIZE_M=256, BLOCK_SIZE_N=192, CLUSTER_M=2)),
    (BIASED, config()),
    (LAYER, config(BLOCK_SIZE_M=256, FUSED_ACTIVATION=1)),
    (replace(LAYER, activation="gelu"), config(BLOCK_SIZE_N=224, BLOCK_SIZE_M=128, CLUSTER_M=2, FUSED_ACTIVATION=1)),
    (replace(BIASED, activation="swigluoai"), config(PINGPONG=1, FUSED_ACTIVATION=1)),
)


@NEEDS_DSL
def test_both_gemms_are_compiled_and_launched_without_the_dsl(tmp_path: Path) -> None:
    """Up to the check of arguments: a tensor on the CPU is refused by its place, not by its shape or type."""
    results, cache = compiled([*COMPILED], tmp_path)
    for one in results:
        assert one.status is Status.OK, one.message
        assert one.spills == 0 and 0 < one.shared_bytes <= 232448 and len(one.entries) == 2
    code = (
        "import sys; from pathlib import Path; import test_cute_moe as of\n"
        "for layer, one in of.COMPILED:\n"
        "    for symbol, kernel, grid, positional, _ in of.launches(Path(sys.argv[1]), layer, one):\n"
        "        try: kernel[grid](*positional)\n"
        "        except ValueError as error: print(error)\n"
        "assert 'cutlass' not in sys.modules\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    env = {**os.environ, library.CACHE_VARIABLE: str(cache), "PYTHONPATH": path}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout.count("expected device_type=cuda") == 2 * len(COMPILED), done.stdout + done.stderr
