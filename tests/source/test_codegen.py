"""Generated scripts: their text, what depends on what, and what names one binary. No torch, no GPU."""

from __future__ import annotations

import ast
import inspect
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import device

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Target
from gemm_tuner.core.script import text_sha
from gemm_tuner.gemm import descriptors
from gemm_tuner.gemm.config import CONFIG_FIELDS, KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.gemm.specialization import specialization
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.source import codegen

ROOT = Path(__file__).resolve().parents[2]
ROW, COL = Layout.ROW, Layout.COL
BF16_NN = GemmProblem(4096, 4096, 4096)
FP16_TN_BIAS = GemmProblem(512, 512, 512, "fp16", "fp16", "fp16", COL, ROW, bias=True)
SM_90, SM_80, GFX942 = (device(arch).target for arch in ("sm_90", "sm_80", "gfx942"))
TARGETS = (SM_90, SM_80, GFX942)
FAMILIES = ("gemm_tile", "gemm_persistent", "gemm_split_k", "gemm_stream_k", "gemm_packed", "gemv")
CONFIG = KernelConfig("gemm_tile", 128, 256, 64, 8, 1, 8, 3)
SPLIT = replace(CONFIG, SPLIT_K=4)
AMD = replace(CONFIG, num_stages=2, waves_per_eu=2, matrix_instr_nonkdim=16, kpack=2)


def many_configs(count: int) -> list[KernelConfig]:
    return [replace(CONFIG, GROUP_SIZE_M=1 + number) for number in range(count)]


def kernel_line(text: str, kernel: str = "gemm_tile") -> int:
    """The line that Triton counts: that of the kernel's first decorator."""
    (found,) = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == kernel]
    return found.decorator_list[0].lineno


PLAIN = GemmProblem(1, 2, 3, "fp16", "fp16", "fp32")
FP8 = replace(PLAIN, dtype_a="fp8_e4m3", dtype_b="fp8_e5m2")
CLASSES = (
    *(replace(PLAIN, layout_a=a, layout_b=b) for a in Layout for b in Layout),
    replace(PLAIN, bias=True),
    replace(PLAIN, alpha=2.0, beta=3.0, activation="silu"),
    *(replace(FP8, scaling=scaling, bias=True) for scaling in ("tensor", "row_col", "block")),
    replace(PLAIN, batch=3, beta=3.0),
    replace(PLAIN, dtype_a="fp32", dtype_b="fp32", precision="tf32"),
    replace(PLAIN, dtype_a="int8", dtype_b="int8", dtype_c="int32", bias=True),
)


@pytest.mark.parametrize("part", [True, pytest.param(False, marks=pytest.mark.grid)], ids=["part", "all"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.arch)
def test_every_class_renders_to_python(family: str, target: Target, part: bool, templates: Path) -> None:
    """A kernel has the parameters that its class needs and no others. By default each class of each family for one of
    the targets in turns."""
    first = FAMILIES.index(family) + TARGETS.index(target)
    for number, problem in enumerate(CLASSES):
        is_left_out = part and (number + first) % len(TARGETS) != 0
        if is_left_out or (problem.batch > 1 and family != "gemm_tile"):
            continue
        text = codegen.render(templates, family, problem.as_class(), (AMD,), target)
        tree = ast.parse(text)
        kernels = {n.name: [a.arg for a in n.args.args] for n in tree.body if isinstance(n, ast.FunctionDef)}
        for kernel in (family, *(["split_k_reduce"] if family == "gemm_tile" else [])):
            names = set(kernels[kernel])
            assert ("bias_ptr" in names) == problem.bias and ("alpha" in names) == problem.has_alpha
            assert bool({"c_in_ptr", "c_in_desc"} & names) == ("beta" in names) == problem.reads_c
            assert ("a_scale_ptr" in names) == ("b_scale_ptr" in names) == (problem.scaling != "none")
        by_descriptor = descriptors.loads_by_descriptor(family, target)
        packed = family == "gemm_packed" and target == SM_90  # by descriptor too, from where it packs
        assert ("a_desc" in kernels[family]) == (by_descriptor or packed) and f"DESCRIPTORS = {by_descriptor}\n" in text
        assert by_descriptor == (target == SM_90 and family not in ("gemm_tile", "gemm_packed", "gemv"))
        assert ("EVEN_K" in kernels[family]) != (by_descriptor or packed)
        assert ('input_precision="tf32"' in text) == (problem.precision == "tf32" and family != "gemv")
        assert f"options = {LANGUAGE.launch_options(target)!r}" in text


def copied_templates(tmp_path: Path, name: str, old: str, new: str) -> Path:
    folder = tmp_path / "templates"
    shutil.copytree(ROOT / "templates", folder)
    text = (folder / name).read_text(encoding="utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("p.batch", "p.bacth", "bacth"),
        ("p.layout_a", "problem.layout_a", "problem"),
        ("{% endif %}", "", "gemm_tile"),
        ("launch_options | python", "launch_options | pyhton", "pyhton"),
    ],
)
def test_a_misspelt_template_is_one_clear_error(tmp_path: Path, old: str, new: str, message: str) -> None:
    folder = copied_templates(tmp_path, "gemm_tile.py.j2", old, new)
    with pytest.raises(UserError) as error:
        codegen.render(folder, "gemm_tile", FP16_TN_BIAS, (CONFIG,), SM_90)
    assert message in str(error.value) and str(folder) in str(error.value)


def test_a_folder_without_templates_is_one_clear_error(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UserError, match=r"script\.py\.j2") as error:
            codegen.write_script(folder, tmp_path, "gemm_tile", BF16_NN, (CONFIG,), SM_90)
        assert str(folder) in str(error.value)


def test_an_unknown_family_is_one_clear_error(tmp_path: Path, templates: Path) -> None:
    with pytest.raises(UserError, match="gemm_tiel"):
        codegen.write_script(templates, tmp_path, "gemm_tiel", BF16_NN, (CONFIG,), SM_90)


def test_the_kernels_stay_at_their_lines_whatever_the_configs(templates: Path) -> None:
    """The start line is in Triton's cache key."""
    texts = [codegen.render(templates, "gemm_tile", BF16_NN, many_configs(n), SM_90) for n in (0, 1, 3000)]
    for kernel in ("gemm_tile", "split_k_reduce"):
        assert len({kernel_line(text, kernel) for text in texts}) == 1


def test_sizes_are_no_part_of_a_script(tmp_path: Path, templates: Path) -> None:
    texts = []
    for problem in (BF16_NN, replace(BF16_NN, m=17, n=5120, k=33)):
        script = codegen.write_script(templates, tmp_path, "gemm_tile", problem, (CONFIG,), SM_90)
        assert script.file.startswith("gemm_tile_bf16_nn_")
        texts.append((tmp_path / script.file).read_text(encoding="utf-8"))
    assert texts[0] == texts[1]


IMPORT_AND_REPORT = """
import json, sys
sys.path.insert(0, sys.argv[2])
from gemm_tuner.languages.scripts import load_script
script = load_script(sys.argv[1])
import triton
print(json.dumps({
    "configs": len(script.CONFIGS), "torch": "torch" in sys.modules,
    "driver": getattr(triton.runtime.driver, "_active", None) is not None,
    "last": list(script.CONFIGS.values())[-1],
}))
"""


def test_a_script_of_15000_configs_imports_without_torch_and_gpu(tmp_path: Path, templates: Path) -> None:
    configs = many_configs(15000)
    script = codegen.write_script(templates, tmp_path, "gemm_tile", BF16_NN, configs, SM_90)
    command = [sys.executable, "-c", IMPORT_AND_REPORT, str(tmp_path / script.file), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert '"configs": 15000, "torch": false, "driver": false' in done.stdout
    assert f'"name": "{configs[-1].name}"' in done.stdout


def checkout(folder: Path) -> Path:
    """A second checkout, of copies, with the byte code that is whole."""
    for name in ("gemm_tuner", "templates"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    return folder


def by_hand(script: Path, where: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(script), "--help"]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=where, env={**env, **variables})


WRITE = """
import sys
from pathlib import Path
from samples import device
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.source import codegen
templates, out = map(Path, sys.argv[1:])
config = KernelConfig("gemm_tile", 128, 256, 64, 8, 1, 8, 3)
problem = GemmProblem(4096, 4096, 4096)
codegen.write_script(templates, out, "gemm_tile", problem, [config], device("sm_90").target)
"""


def test_a_script_is_the_same_in_every_checkout_and_runs_there_by_hand(tmp_path: Path, templates: Path) -> None:
    """Without PYTHONPATH below its checkout, in the folder that runs have there; elsewhere it says what is missing."""
    script = tmp_path / codegen.write_script(templates, tmp_path, "gemm_tile", BF16_NN, (CONFIG,), SM_90).file
    other = checkout(tmp_path / "other")
    run = other / "generated" / "run"
    run.mkdir(parents=True)
    command = [sys.executable, "-c", WRITE, str(other / "templates"), str(run)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(other), str(ROOT / "tests" / "helpers")])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert (run / script.name).read_bytes() == script.read_bytes()

    done = by_hand(run / script.name, where=run)
    assert done.returncode == 0 and "--plan" in done.stdout
    lost = by_hand(script, where=tmp_path)
    assert lost.returncode == 3 and "gemm_tuner" in lost.stderr and "Traceback" not in lost.stderr
    assert by_hand(script, where=tmp_path, PYTHONPATH=str(ROOT)).stdout == done.stdout


def test_kernel_sha_follows_the_kernels_and_nothing_else(tmp_path: Path, templates: Path) -> None:
    def sha(folder: Path, problem: GemmProblem, configs: list[KernelConfig]) -> str:
        return codegen.write_script(folder, tmp_path, "gemm_tile", problem, configs, SM_90).kernel_sha

    first = sha(templates, BF16_NN, [CONFIG])
    assert len(first) == 12
    assert sha(templates, replace(BF16_NN, m=1), many_configs(7)) == first
    assert sha(templates, replace(BF16_NN, layout_a=COL), [CONFIG]) != first
    changed = copied_templates(
        tmp_path, "_macros.j2", "accumulator.to(tl.float32)\n", "accumulator.to(tl.float32) + 0\n"
    )
    assert sha(changed, BF16_NN, [CONFIG]) != first
    assert codegen.kernel_sha(templates, "gemm_tile", BF16_NN, GFX942) != first


def test_another_text_has_another_file(tmp_path: Path, templates: Path) -> None:
    """A task that names one of them is done with that text, though the run has written another since."""
    few, many = (
        codegen.write_script(templates, tmp_path, "gemm_tile", BF16_NN, many_configs(n), SM_90) for n in (1, 2)
    )
    assert few.file != many.file and few.kernel_sha == many.kernel_sha
    for script in (few, many):
        assert script.text_sha == text_sha((tmp_path / script.file).read_text(encoding="utf-8"))


def test_the_arguments_match_the_kernels(tmp_path: Path, templates: Path) -> None:
    """``calls`` passes as many arguments, in the order of the kernels' parameters."""
    from gemm_tuner.gemm.kernels import blank_calls
    from gemm_tuner.languages.scripts import load_script
    from gemm_tuner.languages.triton.blank import Blank

    for problem in (BF16_NN, FP16_TN_BIAS):
        path = tmp_path / codegen.write_script(templates, tmp_path, "gemm_tile", problem, (SPLIT,), SM_90).file
        script = load_script(str(path))
        main, reduce = blank_calls(script, script.CONFIGS[SPLIT.name], problem, Blank)
        for symbol, kernel, _, positional, _ in (main, reduce):
            arguments = dict(zip(inspect.signature(kernel.fn).parameters, positional, strict=True))
            assert arguments["NAME"] == symbol and arguments["SPLIT_K"] == 4
        assert main[2] == ((problem.m // 128) * (problem.n // 256), 4, 1) and main[4] == {
            "num_warps": 8,
            "num_stages": 3,
        }


ODD = GemmProblem(257, 259, 261)
CUTE = KernelConfig("gemm_cute", 128, 64, 64, 8, 4, 0, 0)
PACKED = replace(CONFIG, family="gemm_packed", BLOCK_SIZE_N=128, PACK_BLOCK=2048)
CUTE_PACKED = replace(CUTE, family="gemm_cute_packed", PACK_BLOCK=2048, SPLIT_K=1)
CALLS_OF_SEVERAL = {
    "gemm_tile": (BF16_NN, SPLIT, 2),
    "gemm_persistent": (BF16_NN, replace(SPLIT, family="gemm_persistent"), 2),
    "gemm_cute": (BF16_NN, CUTE, 2),
    "gemm_cute, slices that are not equal": (replace(BF16_NN, k=4104), CUTE, 2),
    "gemm_packed": (ODD, PACKED, 2),
    "gemm_packed, slices": (ODD, replace(PACKED, SPLIT_K=4), 3),
    "gemm_packed, nothing packed": (BF16_NN, replace(PACKED, SPLIT_K=4), 2),
    "gemm_cute_packed": (ODD, CUTE_PACKED, 2),
    "gemm_cute_packed, sums": (replace(ODD, beta=0.5), CUTE_PACKED, 3),
    "gemm_cute_packed, nothing packed": (replace(BF16_NN, n=4096), replace(CUTE_PACKED, SPLIT_K=4), 2),
}


@pytest.mark.parametrize("case", CALLS_OF_SEVERAL)
def test_the_first_kernel_of_a_call_never_starts_early_and_others_do(
    tmp_path: Path, templates: Path, case: str
) -> None:
    """Early: before the kernel ahead of it has ended, which for the first one belongs to another call."""
    from gemm_tuner.gemm.kernels import blank_calls
    from gemm_tuner.languages.scripts import load_script
    from gemm_tuner.languages.triton.blank import Blank

    def starts_early(launch: tuple[Any, ...]) -> bool:
        _, kernel, _, _, options = launch
        if not hasattr(kernel, "builder"):
            return bool(options.get("launch_pdl", False))
        said = '"use_pdl": follows' in kernel.text, '"use_pdl": False' in kernel.text
        assert sum(said) == 1
        return said[0] and bool(kernel.values["follows"])

    problem, config, count = CALLS_OF_SEVERAL[case]
    path = tmp_path / codegen.write_script(templates, tmp_path, config.family, problem, (config,), SM_90).file
    script = load_script(str(path))
    launches = blank_calls(script, script.CONFIGS[config.name], problem, Blank)
    assert [starts_early(one) for one in launches] == [False] + [True] * (count - 1)


LAUNCH_ONLY = {
    "gemm_tile": {},
    "gemm_persistent": {"PROGRAMS_PER_SM": 3},
    "gemm_split_k": {"SPLIT_K": 2},
    "gemm_stream_k": {"PROGRAMS_PER_SM": 3},
}


@pytest.mark.parametrize("family", LAUNCH_ONLY)
@pytest.mark.parametrize("target", [SM_90, GFX942], ids=lambda target: target.arch)
def test_configurations_that_differ_in_their_launch_alone_share_a_kernel(
    tmp_path: Path, templates: Path, family: str, target: Target
) -> None:
    """Its symbol and every constant is the same; GROUP_SIZE_M is an argument, PROGRAMS_PER_SM the grid."""
    from gemm_tuner.gemm.kernels import blank_calls
    from gemm_tuner.languages.scripts import load_script
    from gemm_tuner.languages.triton.blank import Blank

    one = replace(CONFIG, family=family, GROUP_SIZE_M=1, **LAUNCH_ONLY[family])
    others = [replace(one, GROUP_SIZE_M=8)]
    others += [replace(one, PROGRAMS_PER_SM=1)] if one.PROGRAMS_PER_SM else []
    path = tmp_path / codegen.write_script(templates, tmp_path, family, BF16_NN, (one, *others), target).file
    script = load_script(str(path))
    assert {row["binary"] for row in script.CONFIGS.values()} == {one.kernel_symbol}

    def launched(config: KernelConfig) -> tuple[str, tuple[int, ...], dict[str, Any], dict[str, Any]]:
        ((symbol, kernel, grid, positional, options),) = blank_calls(
            script, script.CONFIGS[config.name], BF16_NN, Blank
        )
        names = inspect.signature(kernel.fn).parameters
        arguments = dict(zip(names, positional, strict=True))
        assert arguments["NAME"] == symbol == one.kernel_symbol
        assert arguments.pop("GROUP_SIZE_M") == config.GROUP_SIZE_M
        assert "GROUP_SIZE_M" in {p.name for p in kernel.params if p.do_not_specialize and not p.is_constexpr}
        return (
            symbol,
            grid,
            {n: v for n, v in arguments.items() if kernel.params[list(names).index(n)].is_constexpr},
            options,
        )

    first = launched(one)
    for other in others:
        symbol, grid, constants, options = launched(other)
        assert (symbol, constants, options) == (first[0], *first[2:])
        assert (grid == first[1]) == (other.PROGRAMS_PER_SM == one.PROGRAMS_PER_SM)


@pytest.mark.parametrize("field", [f for f in CONFIG_FIELDS if f not in ("family", "GROUP_SIZE_M")])
def test_configurations_that_differ_in_their_code_have_kernels_of_their_own(field: str) -> None:
    other = replace(AMD, **{field: 3 * getattr(AMD, field) + 1})
    assert other.kernel_symbol != AMD.kernel_symbol and other.name != AMD.name
    assert replace(AMD, GROUP_SIZE_M=4).kernel_symbol == AMD.kernel_symbol


def test_a_grid_of_one_program_a_tile_is_another_kernel_than_a_persistent_one() -> None:
    names = [replace(CONFIG, family="gemm_persistent", PROGRAMS_PER_SM=count).kernel_symbol for count in (0, 1, 2)]
    assert names[0] != names[1] == names[2]


def special(m: int, n: int, k: int, config: KernelConfig = CONFIG, **more: Any) -> str:
    return specialization(replace(BF16_NN, m=m, n=n, k=k, **more), config, SM_90)


def test_sizes_of_one_class_share_a_name() -> None:
    assert special(4096, 4096, 4096) == special(17, 512, 128)  # M is not specialised when A is row-major
    assert special(100, 17, 33) == special(3, 4095, 1001)
    assert special(8, 24, 72) == special(9, 40, 8)
    assert special(64, 64, 1024, SPLIT) == special(128, 48, 256, SPLIT)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((64, 64, 64), (64, 65, 64)),  # N divisible by 16 or not
        ((64, 64, 64), (64, 64, 80)),  # BLOCK_SIZE_K divides K or not
        ((64, 64, 80), (64, 64, 65)),
        ((64, 1, 64), (64, 3, 64)),  # Triton makes a 1 a constant
        ((64, 64, 1), (64, 64, 3)),
        ((64, 40, 64), (64, 36, 64)),  # the powers of two that divide N and K
        ((64, 36, 64), (64, 34, 64)),
        ((64, 34, 72), (64, 34, 66)),
        ((2**16, 64, 2**15), (2**14, 64, 2**14)),  # 2**31 elements: 64-bit offsets
    ],
)
def test_sizes_of_other_classes_have_other_names(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    assert special(*one) != special(*other)


def test_m_counts_where_it_is_a_stride_or_in_the_reduction() -> None:
    assert special(64, 64, 64) == special(65, 64, 64)
    assert special(64, 64, 64, layout_a=COL) != special(65, 64, 64, layout_a=COL)
    assert special(36, 64, 64, layout_a=COL) != special(34, 64, 64, layout_a=COL)
    assert special(64, 17, 64, SPLIT) != special(65, 17, 64, SPLIT)  # M * N is an argument of the reduction


def test_tensors_beyond_2_gib_have_names_of_their_own() -> None:
    """Triton addresses AMD buffers up to 2 GiB with 32-bit offsets: another kernel."""
    names = {
        special(16384, 16384, 16384),
        special(2**15 + 16, 16384, 2**15),  # A
        special(16384, 2**15, 2**15 + 64),  # B
        special(2**15 + 16, 2**15, 16384),  # C
    }
    assert len(names) == 4
    assert special(8192, 8192, 8192, SPLIT) != special(16384, 16384, 8192, SPLIT)  # the partial sums


def test_the_length_of_c_counts_in_a_wide_split_k() -> None:
    """Past 2**31 the reduction takes M * N as a 64-bit integer; the class of offsets is the same."""
    assert special(2**16, 2**15, 2**16, SPLIT) != special(2**16, 2**14, 2**16, SPLIT)


def test_kernels_that_load_by_descriptor_have_one_name_for_all_sizes() -> None:
    """Elsewhere the same family has a name for each class."""
    for family in ("gemm_persistent", "gemm_split_k", "gemm_stream_k"):
        config = replace(SPLIT, family=family)
        assert special(64, 64, 64, config) == special(1, 8, 2**16, config)
        for target in (SM_80, GFX942):
            names = {specialization(replace(BF16_NN, n=n), config, target) for n in (64, 65, 72)}
            assert len(names) == 3


def test_the_small_side_of_a_gemv_counts() -> None:
    config = replace(CONFIG, family="gemv", BLOCK_SIZE_M=4, GROUP_SIZE_M=1)
    assert special(3, 4096, 512, config) != special(4096, 3, 512, config)
    assert special(3, 4096, 512, config) == special(5, 4096, 512, config)


def test_a_batch_counts_where_it_makes_tensors_large() -> None:
    assert special(4096, 4096, 4096, batch=2) == special(4096, 4096, 4096, batch=3)
    assert special(4096, 4096, 4096, batch=2) != special(4096, 4096, 4096, batch=64)  # 2 GiB of A


@pytest.mark.parametrize("others", [(), ((16, 64), frozenset({1}))], ids=["as text", "beside others"])
def test_values_of_a_configuration_come_back_from_a_script(others: tuple[object, ...], tmp_path: Path) -> None:
    values = ("it's", 'a "word"', '"""', "\\", "é", True, 3, 1.5, None, -0.0)
    rows = [(f"{number}", *values) for number in range(2)] + [("other", *values, *others)] * bool(others)
    table = (
        (ROOT / "templates" / codegen.SCRIPT_TEMPLATE).read_text().partition("import json")[2].partition("CLASS =")[0]
    )
    text = (
        codegen.environment(ROOT / "templates")
        .from_string(f"import json{table}")
        .render(fields=tuple("abcdefghijklm"), configs=rows)
    )
    found: dict[str, Any] = {}
    exec(text, found)
    assert [tuple(config.values()) for config in found["CONFIGS"].values()] == rows
    assert ('["0", ' in text) and ('["other", ' not in text)
