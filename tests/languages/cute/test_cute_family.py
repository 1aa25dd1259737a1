"""The family gemm_cute: what its scripts launch, what stands in their way; and, with the extra, what is compiled.

Without pip install '.[cute]' the kernels themselves are not compiled here.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest
from samples import ROOT, RULES, TEMPLATES, config, device, problem

from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.compile.compile_tasks import tasks_for, write_scripts
from gemm_tuner.compile.task_queue import key_of
from gemm_tuner.core.choice import Choice
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.language import language_of
from gemm_tuner.core.records import CompileResult, Status, Target, Verified
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.config_keys import config_of
from gemm_tuner.gemm.descriptors import rows_fit_descriptors
from gemm_tuner.gemm.problem import GemmProblem, Layout, as_gemm
from gemm_tuner.gemm.workload import WORKLOAD
from gemm_tuner.languages import elf
from gemm_tuner.languages.cute import extra, library
from gemm_tuner.languages.cute.source import Source
from gemm_tuner.languages.scratch import Scratch
from gemm_tuner.languages.scripts import load_script
from gemm_tuner.languages.together import Together
from gemm_tuner.languages.triton.binary import cuobjdump_path
from gemm_tuner.store import results

NEEDS_DSL = pytest.mark.skipif(importlib.util.find_spec("quack") is None, reason="CuTe DSL is not installed")
TARGET = device("sm_90").target
TUNED = ROOT / "results" / "tuned" / "nvidia_h200_bf16.yaml"


def cute(**changes: int) -> KernelConfig:
    return config(**{"family": "gemm_cute", "num_warps": 0, "num_stages": 0, **changes})  # type: ignore[arg-type]


SMALL = problem(64, 64, 64)
EVERYTHING = {"alpha": 2.0, "beta": 0.5, "bias": True, "activation": "gelu"}
FP8 = {"dtype_a": "fp8_e4m3", "dtype_b": "fp8_e5m2", "layout_b": Layout.COL}


def script_of(size: GemmProblem, folder: Path, *configs: KernelConfig) -> Any:
    scripts = write_scripts(TEMPLATES, folder, [(size, one) for one in configs], TARGET)
    (script,) = scripts.values()
    return load_script(str(folder / script.file))


def launches(size: GemmProblem, one: KernelConfig, folder: Path, num_sms: int = 132) -> list[Any]:
    """Of a call with torch's tensors, on the CPU."""
    script = script_of(size, folder, one)
    (operands,) = WORKLOAD.operands(size, 0, "randn", 0, "cpu")
    import torch

    elements, _ = script.scratch(script.CONFIGS[one.name], (size.m, size.n, size.k, size.batch), num_sms)
    sums = torch.zeros(elements) if elements else None
    found: list[Any] = WORKLOAD.launches(script, script.CONFIGS[one.name], size, operands, Scratch(sums), num_sms)
    return found


def test_operands_reach_the_kernel_as_it_takes_them(tmp_path: Path) -> None:
    """Rows and columns of each matrix, swapped or not, for every layout: their product is the reference's."""
    import torch

    for layout_a in Layout:
        for layout_b in Layout:
            for swap in (0, 1):
                size = replace(problem(64, 48, 32), layout_a=layout_a, layout_b=layout_b)
                ((symbol, _, _, (a, b, c, clusters, group), _),) = launches(size, cute(SWAP_AB=swap), tmp_path)
                (operands,) = WORKLOAD.operands(size, 0, "randn", 0, "cpu")
                left, right = operands.logical(size)
                expected = left.float() @ right.float()
                assert torch.allclose(a.float() @ b.float().t(), expected.t() if swap else expected)
                assert c.shape == ((48, 64) if swap else (64, 48)) and c.data_ptr()
                assert symbol.endswith("_0") and (clusters, group) == (132, 1)


def test_slices_of_k_are_a_batch_of_views_that_a_second_kernel_adds_up(tmp_path: Path) -> None:
    import torch

    size = problem(40, 24, 96)
    for swap in (0, 1):
        first, second = launches(size, cute(SPLIT_K=3, SWAP_AB=swap), tmp_path)
        a, b, sums, *_ = first[3]
        assert a.shape[0] == b.shape[0] == sums.shape[0] == 3 and sums.dtype == torch.float32
        sums.copy_(a.float() @ b.float().transpose(1, 2))
        (operands,) = WORKLOAD.operands(size, 0, "randn", 0, "cpu")
        added, rows = second[3][0], 128
        slices = added.as_strided((3, 40, 24), (rows * 24, 24, 1))
        assert torch.allclose(slices.sum(0), operands.a.float() @ operands.b.float(), atol=1e-4)
        assert second[0] == "add_slices_SK3"


@pytest.mark.parametrize("swap", [0, 1])
def test_slices_of_k_start_where_a_block_with_a_scale_does(swap: int, tmp_path: Path) -> None:
    """Equal slices of whole blocks are views; the kernel looks up where others start. Scales are passed whole."""
    for k, batch, more in ((512, 2, {}), (384, 1, {}), (384, 1, EVERYTHING)):
        size = replace(problem(40, 144, k), **FP8, scaling="block", **more)
        one = cute(SPLIT_K=2, SWAP_AB=swap, BLOCK_SIZE_K=128)
        first, _ = launches(size, one, tmp_path)
        a, b, sums, scale_a, scale_b, *_ = first[3]
        assert (a.shape[0], b.shape[0], sums.shape[0]) == (batch, batch, 2)
        assert (scale_a.shape, scale_b.shape) == ((40, k // 128), (2, k // 128))
        _, other = WORKLOAD.check_problems(size, one.to_dict(), descriptors=True, interpreted=False)
        assert WORKLOAD.specialization(other, one, TARGET) == WORKLOAD.specialization(size, one, TARGET)


def test_clusters_of_four_leave_sms_idle(tmp_path: Path) -> None:
    for along, clusters in (((1, 1), 132), ((2, 1), 66), ((2, 2), 30), ((1, 4), 30), ((4, 2), 13)):
        one = cute(CLUSTER_M=along[0], CLUSTER_N=along[1], PROGRAMS_PER_SM=1)
        assert launches(problem(64, 64, 64), one, tmp_path)[0][3][3] == clusters


def test_one_kernel_serves_all_that_differs_at_run_time(tmp_path: Path) -> None:
    def entries(*configs: KernelConfig, size: GemmProblem = SMALL) -> list[str]:
        script = script_of(size, tmp_path, *configs)
        extents = (size.m, size.n, size.k, size.batch)
        return [Source.of(script.kernel_of(script.CONFIGS[one.name], extents)).entry for one in configs]

    plain, group, two, four, loop, fp16 = (
        *entries(cute(), cute(GROUP_SIZE_M=8)),
        *entries(cute(SPLIT_K=2), cute(SPLIT_K=4)),
        *entries(cute(PROGRAMS_PER_SM=1)),
        *entries(cute(), size=replace(problem(64, 64, 64), dtype_a="fp16", dtype_b="fp16", dtype_c="fp16")),
    )
    assert plain == group and two == four
    assert len({plain, two, loop, fp16}) == 4
    assert plain == entries(cute(), size=problem(4096, 512, 128))[0]
    # Slices that are not equal are shared out by a kernel that knows their number.
    unequal = entries(cute(SPLIT_K=3), cute(SPLIT_K=5))
    assert len({two, *unequal}) == 3
    assert unequal == entries(cute(SPLIT_K=3), cute(SPLIT_K=5), size=problem(64, 64, 512))
    assert entries(cute(SPLIT_K=3), size=problem(64, 64, 96)) == [two]


def test_all_of_k_is_one_slice_whatever_its_length(tmp_path: Path) -> None:
    """A column-major and B row-major: K is no length of a row."""
    odd, even = (replace(problem(64, 64, k), layout_a=Layout.COL, layout_b=Layout.ROW) for k in (1001, 1024))
    kernels = []
    for size in (odd, even):
        script = script_of(size, tmp_path, cute())
        extents = (size.m, size.n, size.k, size.batch)
        kernels.append(Source.of(script.kernel_of(script.CONFIGS[cute().name], extents)).entry)
    assert kernels[0] == kernels[1]
    assert WORKLOAD.specialization(odd, cute(), TARGET) == WORKLOAD.specialization(even, cute(), TARGET)


def test_unequal_slices_of_k_are_shared_out_by_the_kernel(tmp_path: Path) -> None:
    size = problem(40, 24, 256)
    for swap in (0, 1):
        first, second = launches(size, cute(SPLIT_K=3, SWAP_AB=swap), tmp_path)
        a, b, sums, *_ = first[3]
        assert (a.shape, b.shape) == (((1, 24, 256), (1, 40, 256)) if swap else ((1, 40, 256), (1, 24, 256)))
        assert sums.shape == ((3, 24, 40) if swap else (3, 40, 24)) and second[0] == "add_slices_SK3"


@pytest.mark.parametrize("k", [4096, 4096 + 8])
@pytest.mark.parametrize("split_k", [1, 2, 3, 5, 8])
def test_a_configuration_is_checked_at_another_size_with_the_kernel_that_was_compiled(k: int, split_k: int) -> None:
    size, one = problem(200, 256, k), cute(SPLIT_K=split_k)
    _, other = WORKLOAD.check_problems(size, one.to_dict(), descriptors=True, interpreted=False)
    assert other.k % (one.BLOCK_SIZE_K * split_k)
    assert WORKLOAD.specialization(other, one, TARGET) == WORKLOAD.specialization(size, one, TARGET)
    assert (WORKLOAD.specialization(size, one, TARGET) == "d") == (k % (8 * split_k) == 0)


def test_kernels_are_those_of_the_pinned_versions() -> None:
    from configparser import ConfigParser

    setup = ConfigParser()
    setup.read(RULES.parent / "setup.cfg")
    pinned = setup["options.extras_require"]["cute"]
    assert all(f"{name.replace('nvidia-cutlass-dsl', 'nvidia-cutlass-dsl[cu13]')}=={version}" in pinned
               for name, version in extra.PINNED.items())  # fmt: skip


def test_a_machine_without_the_extra_says_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(library.RUNTIME_VARIABLE, raising=False)
    monkeypatch.setattr(extra, "installed", dict)
    absent = WORKLOAD.absent(["gemm_tile", "gemm_cute"])
    assert list(absent) == ["gemm_cute"] and "EXTRAS=cute" in absent["gemm_cute"]
    assert "\n" not in absent["gemm_cute"] and "proprietary" in absent["gemm_cute"]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_tune_installs_the_extra_only_when_it_is_asked_for(tmp_path: Path) -> None:
    plain = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}

    def make(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "-C", str(ROOT), f"VENV={tmp_path}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=plain)

    installed = make("--dry-run", "tune").stdout + (ROOT / "requirements.txt").read_text()
    assert "requirements.txt" in installed and "installed-cute" not in installed
    assert not [name for name in (*extra.PINNED, "tvm-ffi", "[cute]") if name in installed]
    assert "installed-cute" in make("--dry-run", "tune", "EXTRAS=cute").stdout

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    asked = tmp_path / "asked"
    pip = tmp_path / "bin/pip"
    pip.write_text(f'#!/bin/sh\necho "$@" >> {asked}\nfor last; do :; done\ncat "$last" >> {asked}\n')
    pip.chmod(0o755)
    for done in ("pip", "large", "installed"):
        (tmp_path / done).touch()
    assert make(f"{tmp_path}/installed-cute").returncode == 0
    names, *wanted = asked.read_text().split("\n")
    assert "-r" in names.split() and "." not in names.split()  # what the package asks for, and not the package
    assert all(any(line.startswith(name) and line.endswith(f"=={version}") for line in wanted)
               for name, version in extra.PINNED.items())  # fmt: skip
    misspelt = make(f"{tmp_path}/installed-cuet")
    assert misspelt.returncode and "cuet" in misspelt.stderr and not (tmp_path / "installed-cuet").exists()


def test_the_gain_of_the_extra_is_that_of_the_shipped_results() -> None:
    """Of torch.mm's speed, sizes with aligned rows: the winners in Triton or their substitutes, and all winners."""
    rows = [one for one in results.read(TUNED).rows if rows_fit_descriptors(as_gemm(one.problem))]
    winners = [one.facts["vendor_us"] / one.facts["median_us"] for one in rows]
    in_triton = [
        one.facts["vendor_us"] / (one.substitute.time_us if one.substitute else one.facts["median_us"]) for one in rows
    ]
    before, after = geometric_mean(in_triton), geometric_mean(winners)
    assert f"from {before:.2f} to {after:.2f} times torch.mm's (H200, bf16, {len(rows)} sizes)" in extra.BRINGS


def test_other_versions_of_the_extra_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(extra, "installed", lambda: {**extra.PINNED, "quack-kernels": "0.5.0"})
    for variable in ("", "/runtime.so"):
        monkeypatch.setenv(library.RUNTIME_VARIABLE, variable)
        assert "quack-kernels 0.5.0" in WORKLOAD.absent(["gemm_cute"])["gemm_cute"]
    monkeypatch.setattr(extra, "installed", dict)
    assert not WORKLOAD.absent(["gemm_cute"])


@pytest.mark.parametrize("folder", ["lib", "site-packages"])
def test_packages_that_lie_where_quack_does_not_look_for_libraries_are_refused(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cutlass", "quack"):
        (tmp_path / folder / name).mkdir(parents=True)
        (tmp_path / folder / name / "__init__.py").touch()
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path / folder)
    monkeypatch.delenv(library.RUNTIME_VARIABLE, raising=False)
    monkeypatch.setattr(extra, "installed", lambda: extra.PINNED)
    absent = WORKLOAD.absent(["gemm_cute"])
    assert ("site-packages" in absent["gemm_cute"]) if folder == "lib" else not absent


def test_a_row_of_the_family_is_read_back() -> None:
    for one in (cute(BLOCK_SIZE_M=320, BLOCK_SIZE_N=144, CLUSTER_M=2, PINGPONG=1, PROGRAMS_PER_SM=1), cute(SWAP_AB=1)):
        row = {"family": one.family, **one.options()}
        assert "num_warps" not in row and config_of(row, "a row") == one
    with pytest.raises(UserError, match="BLOCK_SIZE_N is 144"):
        config_of({"family": "gemm_tile", **config(BLOCK_SIZE_N=144).options()}, "a row")


def test_a_results_row_says_the_language_and_a_module_leaves_it_out(tmp_path: Path) -> None:
    from gemm_tuner.export.gemm.module.rows import select
    from gemm_tuner.export.trust import Trust
    from gemm_tuner.store import results

    def choice(n: int, one: KernelConfig) -> Choice:
        times = {"median_us": 9.0, "p20_us": 9.0, "p80_us": 9.0, "num_samples": 3, "vendor_us": 9.0}
        errors = {"max_abs_error": 0.0, "error_over_bound": 0.0, "roofline_pct": 50.0}
        rest = {"runner_up": "", "gap_pct": None, "tie": False}
        return Choice(problem(512, n, 512), one, "measured", Verified.TRUE, **times, **errors, **rest)  # type: ignore[arg-type]

    rows = [results.choice_row(choice(512, cute(BLOCK_SIZE_N=144))), results.choice_row(choice(1024, config()))]
    assert [row.get("language") for row in rows] == ["cute", None]
    path = tmp_path / "tuned.yaml"
    results.write_rows(path, {"source": "measured"}, rows, [])
    tuned, left_out = select(results.read(path), Trust())
    assert [one.config for one in tuned] == [config()]
    assert [one.size for one in left_out] == [problem(512, 512, 512).key] and "cute" in left_out[0].reason
    (named,) = re.findall(r"--families (\S+)", left_out[0].reason)
    families = named.split(",")
    assert "gemm_tile" in families and {WORKLOAD.language_for(name) for name in families} == {"triton"}


def compiled(
    wanted: list[tuple[GemmProblem, KernelConfig]], folder: Path, target: Target = TARGET
) -> tuple[list[CompileResult], Path]:
    """Each in workers of its language."""
    scripts = write_scripts(TEMPLATES, folder, wanted, target)
    cache = folder / "cache"
    cache.mkdir()
    paths = cache, folder / "log.txt", folder
    language = Together(language_of("triton"), (language_of("cute"),))
    tasks = tasks_for(wanted, scripts, target, longest_first=False)
    with CompilePool(language, target, 1, *paths, limit_s=300, kind="gemm") as pool:
        results = {key_of(task): result for task, result in pool.run(tasks)}
    return [results[key_of(task)] for task in tasks], cache


@NEEDS_DSL
def test_a_configuration_that_the_compiler_does_not_survive_costs_itself(tmp_path: Path) -> None:
    size = problem(512, 512, 512)
    bad = cute(BLOCK_SIZE_M=320, BLOCK_SIZE_N=160)  # which a rule cuts
    wanted = [(size, bad), (size, cute(BLOCK_SIZE_N=144, CLUSTER_M=2)), (size, config(num_stages=2))]
    (died, ok, triton), _ = compiled(wanted, tmp_path)
    assert died.status is Status.COMPILE_ERROR and "died" in died.message
    assert ok.status is Status.OK and ok.spills == 0 and 0 < ok.shared_bytes <= 232448, ok.message
    assert triton.status is Status.OK


@NEEDS_DSL
def test_relu_keeps_nan(tmp_path: Path) -> None:
    """As the other families' does: FMNMX without .NAN gives the other operand."""
    ((one,), cache) = compiled([(replace(problem(256, 128, 512), activation="relu"), cute())], tmp_path)
    assert one.status is Status.OK, one.message
    listing = machine_code(cache, one, tmp_path)
    assert re.search(r"F2FP\.RELU|FMNMX\.NAN", listing) and not re.search(r"FMNMX(?!\.NAN)", listing)


@NEEDS_DSL
def test_sums_of_fp8_are_held_once(tmp_path: Path) -> None:
    """In the tensor cores' accumulator, as torch._scaled_mm's with use_fast_accum; 208 sums twice would not fit."""
    sums = cute(BLOCK_SIZE_M=256, BLOCK_SIZE_N=208, BLOCK_SIZE_K=128)
    size = replace(problem(256, 416, 4096 + 16), **FP8)
    results, _ = compiled([(size, sums), (size, replace(sums, SPLIT_K=3))], tmp_path)
    assert [(one.status, one.spills) for one in results] == [(Status.OK, 0)] * 2, [one.message for one in results]


@NEEDS_DSL
def test_odd_multiples_of_eight_columns_and_clusters_of_eight_are_compiled(tmp_path: Path) -> None:
    size = replace(problem(200, 3072, 4096), **{**FP8, "scaling": "row_col", "bias": True})
    of_16_bits = [replace(problem(5000, 5000, 5000), layout_b=layout) for layout in Layout]
    eights = cute(SWAP_AB=1, BLOCK_SIZE_M=64, BLOCK_SIZE_N=104, BLOCK_SIZE_K=128, CLUSTER_M=4, CLUSTER_N=2)
    others = {"BLOCK_SIZE_N": 136, "CLUSTER_M": 1}, {"SPLIT_K": 2}, {"BLOCK_SIZE_M": 128, "SPLIT_K": 3}
    turns = replace(eights, BLOCK_SIZE_M=192, BLOCK_SIZE_N=120, PINGPONG=1, PROGRAMS_PER_SM=1)
    tall = replace(eights, BLOCK_SIZE_M=256, BLOCK_SIZE_N=152, BLOCK_SIZE_K=64, CLUSTER_M=2, CLUSTER_N=1)
    wanted = [(size, one) for one in (eights, *(replace(eights, **other) for other in others), turns)]
    wanted += [(one, tile) for one in of_16_bits for tile in (tall, eights)]
    results, _ = compiled(wanted, tmp_path)
    assert [one.status for one in results] == [Status.OK] * len(results), [one.message for one in results]
    assert all(one.spills == 0 and 0 < one.shared_bytes <= 232448 for one in results), results


@NEEDS_DSL
@pytest.mark.parametrize("keys", [{}, {**EVERYTHING, "dtype_c": "fp16"}], ids=["plain", "epilogue"])
def test_products_with_scales_are_summed_without_a_wait_for_each(keys: dict[str, Any], tmp_path: Path) -> None:
    """ptxas waits after each instruction of the tensor cores when it sees their sums moved before they are complete."""
    size = replace(problem(200, 416, 1152), **{**FP8, "scaling": "block", **keys})
    tile = cute(BLOCK_SIZE_M=128, BLOCK_SIZE_N=128, BLOCK_SIZE_K=128)
    rows, wide, three = {"BLOCK_SIZE_M": 256, "CLUSTER_N": 2}, {"BLOCK_SIZE_N": 144}, {"BLOCK_SIZE_M": 192}
    few = {"SWAP_AB": 1, "BLOCK_SIZE_N": 32, "PROGRAMS_PER_SM": 1}
    others = (rows, wide, three, few, {"SPLIT_K": 3}, {"SPLIT_K": 2}, {**few, "SPLIT_K": 2})
    results, cache = compiled([(size, one) for one in (tile, *(replace(tile, **other) for other in others))], tmp_path)
    assert [one.status for one in results] == [Status.OK] * len(results), [one.message for one in results]
    assert all(one.spills == 0 and 0 < one.shared_bytes <= 232448 for one in results), results
    for one in results:
        listing = machine_code(cache, one, tmp_path)
        assert listing.count("WARPGROUP.DEPBAR") < listing.count("QGMMA")


def machine_code(cache: Path, one: CompileResult, folder: Path) -> str:
    """Of the first kernel of a configuration in CuTe DSL, as cuobjdump lists it."""
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(elf.inner((cache / one.entries[0] / library.LIBRARY).read_bytes(), elf.MACHINE_CUDA))
    return subprocess.run([cuobjdump_path(), "-sass", str(cubin)], capture_output=True, text=True, check=True).stdout


@NEEDS_DSL
@pytest.mark.parametrize(
    "keys",
    [
        {},
        EVERYTHING,
        {"layout_a": Layout.COL, "activation": "silu"},
        {**FP8, "scaling": "tensor"},
        {**FP8, **EVERYTHING, "scaling": "row_col", "batch": 2},
    ],
    ids=["plain", "epilogue", "column", "fp8", "all"],
)
@pytest.mark.parametrize("swap", [0, 1])
def test_signatures_are_compiled_and_launched_without_the_dsl(keys: dict[str, Any], swap: int, tmp_path: Path) -> None:
    """Up to the check of arguments: a tensor on the CPU is refused by its place, not by its shape or type."""
    size = replace(problem(256, 128, 512), **keys)
    split = () if size.batch > 1 else tuple((size, cute(SPLIT_K=slices, SWAP_AB=swap)) for slices in (2, 3))
    results, cache = compiled([(size, cute(SWAP_AB=swap, BLOCK_SIZE_K=128)), *split], tmp_path)
    assert [one.status for one in results] == [Status.OK] * len(results), [one.message for one in results]
    assert [len(one.entries) for one in results] == [1, 2, 2][: len(results)]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "import test_cute_family as of\n"
        "from dataclasses import replace\n"
        f"size = replace(of.problem(256, 128, 512), **{keys!r})\n"
        "swap = int(sys.argv[3])\n"
        "splits = [of.cute(SPLIT_K=slices, SWAP_AB=swap) for slices in (2, 3)]\n"
        "for one in (of.cute(SWAP_AB=swap, BLOCK_SIZE_K=128), *splits):\n"
        "    if size.batch > 1 and one.SPLIT_K > 1: continue\n"
        "    symbol, kernel, grid, positional, _ = of.launches(size, one, Path(sys.argv[2]))[0]\n"
        "    try: kernel[grid](*positional)\n"
        "    except ValueError as error: print(error)\n"
        "    assert 'cutlass' not in sys.modules\n"
    ).replace("<Layout.COL: 'col'>", "of.Layout.COL")
    env = {**os.environ, library.CACHE_VARIABLE: str(cache), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path), str(swap)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout.count("expected device_type=cuda") == len(results), done.stdout + done.stderr


@NEEDS_DSL
@pytest.mark.parametrize("arch", ["sm_100", "sm_103"])
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {**EVERYTHING, "layout_a": Layout.COL},
        {**FP8, "dtype_b": "fp8_e4m3", "scaling": "row_col", "layout_b": Layout.ROW},
    ],
    ids=["plain", "epilogue", "fp8"],
)
def test_blackwells_kernels_are_compiled_and_read(keys: dict[str, Any], arch: str, tmp_path: Path) -> None:
    """By one SM and by two a tile, and with slices of K. Sums are in tensor memory: few registers, and none spilled."""
    size = replace(problem(512, 512, 512), **keys)
    shapes = ({}, {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "CLUSTER_M": 2}, {"SPLIT_K": 2}, {"SWAP_AB": 1})
    wanted = [(size, cute(PROGRAMS_PER_SM=1, BLOCK_SIZE_K=128, **shape)) for shape in shapes]
    results, _ = compiled(wanted, tmp_path, device(arch).target)
    assert [one.status for one in results] == [Status.OK] * len(results), [one.message for one in results]
    assert all(0 < one.registers < 168 and one.spills == 0 for one in results), [one.registers for one in results]
    assert all(0 < one.shared_bytes <= device(arch).shared_memory_bytes for one in results)
