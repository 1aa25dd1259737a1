"""Kernels in CuTe DSL: compiled in processes of their own, kept, and launched without the DSL.

A stand-in for the DSL makes real machine code and host code; test_cute_dsl.py is for the DSL itself.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import ROOT

import gemm_tuner as gt
from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.compile.compile_tasks import support_task, tasks_for, write_scripts
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.language import language_of
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Status
from gemm_tuner.cute.problem import CuteProblem
from gemm_tuner.cute.workload import WORKLOAD
from gemm_tuner.kernels.kernel_spec import KernelSpec
from gemm_tuner.languages import elf
from gemm_tuner.languages.cute import library
from gemm_tuner.languages.scripts import load_script
from gemm_tuner.surface.device import of_arch
from gemm_tuner.surface.par_compile import function_of
from gemm_tuner.system.installation import data_folder

STAND_IN = ROOT / "tests" / "helpers" / "cute_stand_in"
RUNTIME = "long long stand_in_add(long long a, long long b) { return a + b; }"
CONFIGS: list[dict[str, Any]] = [
    {"tile": (16, 64), "shared": 4096},
    {"tile": (16, 64), "shared": 4096, "fault": "aborts"},
    {"tile": (96, 64), "shared": 1024},
    {"tile": (16, 64), "shared": 4096, "fault": "raises"},
    {"tile": (16, 64), "shared": 4096, "fault": "twice"},
    {"tile": (16, 64), "shared": -1},
    {"tile": (16, 64), "shared": 240000},
    {"tile": (16, 64), "shared": 4096, "fault": "none"},
]


@pytest.fixture(scope="module")
def patch() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def built(patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The stand-in's function, with a cache and a runtime library of its own."""
    folder = tmp_path_factory.mktemp("cute")
    patch.syspath_prepend(str(STAND_IN))
    patch.setenv("GEMM_TUNER_CACHE_DIR", str(folder / "cache"))
    runtime = folder / library.RUNTIME
    subprocess.run(["cc", "-shared", "-x", "c", "-", "-o", runtime], input=RUNTIME.encode(), check=True)
    patch.setenv(library.RUNTIME_VARIABLE, str(runtime))
    spec = importlib.util.spec_from_file_location("builders", STAND_IN / "builders.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in [name for name in sys.modules if name.partition(".")[0] == "cutlass"]:
        del sys.modules[name]
    return module.built


def compiled_here(built: Any, configs: list[dict[str, Any]] = CONFIGS) -> list[gt.Compiled]:
    return gt.par_compile(built, configs, target="sm_90", language="cute", num_workers=2)


@pytest.fixture(scope="module")
def compiled(built: Any) -> list[gt.Compiled]:
    return compiled_here(built)


def test_each_configuration_has_its_own_end(compiled: list[gt.Compiled]) -> None:
    failed = Status.COMPILE_ERROR
    assert [(one.status, one.reason) for one in compiled if one.status is failed] == [
        (failed, "the compiler died (exit -6)"),
        (failed, "ValueError: no tile (16, 64)"),
        (failed, f"ValueError: the function launches {', '.join(two_names(4))}, and has to launch the one kernel"),
        (failed, "ValueError: the shared memory of the launch is no constant of the host code"),
    ]
    assert [number for number, one in enumerate(compiled) if one.status is Status.OK] == [0, 2, 7]
    assert compiled[6].status is Status.OUT_OF_RESOURCES and "240064 bytes" in compiled[6].reason


def two_names(number: int) -> list[str]:
    name = f"kernel_tile16x64_shared4096_faulttwice_number{number}"
    return [f"{name}_0", f"{name}_1"]


def test_resources_are_those_of_the_machine_code(compiled: list[gt.Compiled]) -> None:
    small, large = compiled[0], compiled[2]
    assert large.registers >= 96 > small.registers > 16
    assert (small.shared_bytes, large.shared_bytes) == (4096 + 64, 1024 + 64)
    assert small.spills == large.spills == 0
    assert len({small.binary_hash, large.binary_hash}) == 2
    assert compiled[7].binary_hash == small.binary_hash  # by another name
    cubin = elf.inner(small.binary, elf.MACHINE_CUDA)
    assert b"kernel_tile16x64_shared4096_number0_0\0" in cubin


def test_what_was_compiled_is_found_again(built: Any, compiled: list[gt.Compiled]) -> None:
    (again,) = compiled_here(built, CONFIGS[:1])
    assert not compiled[0].cached
    assert replace(again, seconds=0) == replace(compiled[0], seconds=0, cached=True)


@pytest.mark.skipif(importlib.util.find_spec("cutlass") is not None, reason="the DSL is installed here")
def test_without_the_dsl_it_is_said_how_to_get_it(built: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(STAND_IN)])
    (one,) = compiled_here(built, CONFIGS[:1])
    assert one.status is Status.COMPILE_ERROR
    assert one.reason.endswith(f"nvidia-cutlass-dsl is not installed: {library.HINT}")


def test_a_file_of_compiled_kernels_is_read_and_launched(compiled: list[gt.Compiled], tmp_path: Path) -> None:
    gt.save_compiled(compiled, tmp_path / "kernels.json")
    found = gt.read_compiled(tmp_path / "kernels.json")
    assert found == compiled
    pytest.importorskip("tvm_ffi", reason="kernels of CuTe DSL are launched through apache-tvm-ffi")
    assert [gt.load_compiled(found[number])(5, 7, number) for number in (0, 2)] == [12, 14]
    with pytest.raises(ValueError, match="compile_error the compiler died"):
        gt.load_compiled(found[1])


def test_another_file_is_refused(tmp_path: Path) -> None:
    for text in ("[", '[{"config": 1}]'):
        (tmp_path / "other.json").write_text(text)
        with pytest.raises(UserError, match="holds no compiled kernels"):
            gt.read_compiled(tmp_path / "other.json")


def test_a_script_launches_what_a_pool_compiled(
    built: Any, compiled: list[gt.Compiled], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run does it: compiled with the measurement's own kernels, carried to another cache, launched there."""
    spec = KernelSpec(
        "two", function_of(built, "cute"), (), (("n", "rows * 2"),), (("tile", ()), ("shared", ())), ("1",), ()
    )
    problem = CuteProblem.of(spec, (("rows", 21),))
    assert CuteProblem.from_dict({name: one for name, one in problem.to_dict().items() if name != "kind"}) == problem
    config = PlainConfig("two", (("tile", (16, 64)), ("shared", 64)))
    device, language = of_arch("sm_90"), language_of("cute")
    scripts = write_scripts(data_folder("templates"), tmp_path, [(problem, config)], device.target)
    (task,) = tasks_for([(problem, config)], scripts, device.target)
    cache = tmp_path / "cache"
    (cache / "kernels").mkdir(parents=True)
    with CompilePool(language, device.target, 1, cache, tmp_path / "log", tmp_path) as pool:
        results = {done.name: result for done, result in pool.run([task, support_task(task)])}
    for name, result in results.items():
        assert (result.status, bool(result.entries)) == (Status.OK, True), (name, result.message)
        for entry in result.entries:
            language.unpack(language.pack(cache, entry), tmp_path / "other")
    with pytest.raises(ValueError, match="no kernel of CuTe DSL"):
        language.unpack(replace(language.pack(cache, results[task.name].entries[0]), files=()), tmp_path / "other")
    (script,) = scripts.values()
    module = load_script(str(tmp_path / script.file))
    ((symbol, kernel, grid, arguments, options),) = WORKLOAD.launches(
        module, module.CONFIGS[config.name], problem, Tensors(), None, 1
    )
    assert (symbol, arguments, options) == ("two_tile16x64_shared64_0", (3, 42), {})
    monkeypatch.setenv(library.CACHE_VARIABLE, str(tmp_path / "other"))
    pytest.importorskip("tvm_ffi", reason="kernels of CuTe DSL are launched through apache-tvm-ffi")
    assert kernel[grid](*arguments) == 45


class Tensors:
    def by_name(self) -> dict[str, int]:
        return {"x": 3}


def test_the_example_compiles_the_space_of_the_file_that_is_named(built: Any, tmp_path: Path) -> None:
    """NVIDIA's file by a stand-in with its interface; test_cute_dsl.py takes NVIDIA's own."""
    example, file = ROOT / "examples" / "kernels" / "cute_gemm.py", STAND_IN / "dense_gemm.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(STAND_IN)))}

    def run(*arguments: object) -> list[str]:
        command = [sys.executable, str(example), "--compile_only", *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    kept = ("--compiled", tmp_path / "kernels.json")
    lines = run("--kernel_from", file, "--arch", "sm_100", "--workers", "2", *kept)
    rows = [line.split() for line in lines[1:]]
    ok = [row for row in rows if row[4] == "ok"]
    assert (len(rows), len(ok)) == (40, 10)
    assert {"use_2cta_instrs=True", "max_active_clusters=74"} < set(ok[0])
    assert {int(row[2]) for row in ok} == {64 + 16 * n * buffers for n in (128, 256) for buffers in (1, 2)}
    registers = {row[5]: int(row[0]) for row in ok}
    assert registers["mma_tiler_mn=(256,"] >= 32 > registers["mma_tiler_mn=(64,"] >= 8
    assert "CantImplementError: not one CTA" in next(line for line in lines if "use_2cta_instrs=False" in line)
    assert run(*kept) == lines
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run("--kernel_from", tmp_path / "gemm.py")
    assert failed.value.returncode == 2 and "there is no file" in failed.value.stderr.splitlines()[-1]
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run("--kernel_from", file, "--arch", "sm_90")
    said = "for sm_90 NVIDIA's file is hopper/kernel/dense_gemm/dense_gemm_persistent.py"
    assert failed.value.returncode == 2 and failed.value.stderr.splitlines()[-1].endswith(said)
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(tmp_path)))
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['cutlass'] = None\n")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run("--kernel_from", file, "--arch", "sm_100")
    assert failed.value.returncode == 2 and "pip install" in failed.value.stderr.splitlines()[-1]


def test_nothing_is_compiled_for_other_gpus(built: Any) -> None:
    with pytest.raises(UserError, match="compiles nothing for gfx942"):
        gt.par_compile(built, CONFIGS, target="gfx942", language="cute")


def test_the_dsl_is_named_with_its_version(built: Any) -> None:
    found = language_of("cute").identity({})
    assert found["nvidia-cutlass-dsl"] == "0.0.1"
