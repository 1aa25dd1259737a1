"""What makes a run another one: GPUs, the environment, sources, and how it measures."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_commands import ONE, THREE, TWO, Commands
from samples import ROOT, config
from tuning import environment, run_options

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import CompileResult, Status, Timing
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.languages.triton.kernel_env import COUNTING_PREFIXES
from gemm_tuner.launch.plan import SCREEN
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.pipeline import run_start
from gemm_tuner.pipeline.prepare import Environment
from gemm_tuner.pipeline.run_identity import KERNEL_SOURCES, NOT_TIMING, differences, fingerprint
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.store.sizes import SizeEntry
from gemm_tuner.store.store import KERNELS_WANTED, Store

pytestmark = pytest.mark.usefixtures("in_a_folder", "with_few_sources")


def on(*uuids: str, **fields: Any) -> Environment:
    """The GPUs of a run, by UUID."""
    here = environment(len(uuids))
    rows = tuple({**row, "uuid": uuid, **fields} for row, uuid in zip(here.machine.gpus, uuids, strict=True))
    return replace(here, machine=replace(here.machine, gpus=rows))


def screened(store: Store, size: GemmProblem, gpu: str) -> None:
    store.add_timings([Timing(size, "a", Status.OK, (1.0,))], SCREEN, lambda _: gpu)


def begun(commands: Commands, *sizes: GemmProblem, of: Environment, **by_gpu: tuple[GemmProblem, ...]) -> None:
    """A run of these sizes that was killed. by_gpu: what each GPU has screened of them."""
    commands.asked = replace(commands.asked, entries=tuple(map(SizeEntry, sizes)))
    with ExitStack() as stack:
        _, store = commands.begin(stack, of)
        for gpu, screened_ones in by_gpu.items():
            for size in screened_ones:
                screened(store, size, gpu)
        store.add_compiles({("c", "b", str(i)): CompileResult("b", str(i), Status.OK) for i in range(61)})
        store.set_fact(KERNELS_WANTED, 97)
        store.record_outcome(sizes[0], "a")


def test_another_gpu_of_the_model_goes_on_and_times_unfinished_sizes_anew(commands: Commands) -> None:
    begun(commands, ONE, TWO, THREE, of=on("GPU-a"), **{"GPU-a": (ONE, TWO)})
    with ExitStack() as stack:
        folder, store = commands.begin(stack, on("GPU-b"))
        assert len(store.timings(ONE, SCREEN)) == 1 and store.timings(TWO, SCREEN) == []
        assert store.num_compiles() == 61 and store.finished(ONE) == ("a", "")
    first, second = commands.said
    assert first == f"going on with results/{folder.root.name}: 61 of 97 kernels compiled, 1 of 3 sizes finished"
    assert "GPU-a" in second and "GPU-b" in second and "1 unfinished sizes are timed anew" in second
    commands.run(of=on("GPU-b"))
    assert len(commands.said) == 1


def test_two_gpus_in_another_order_keep_what_each_has_timed(commands: Commands) -> None:
    begun(commands, ONE, TWO, THREE, of=on("GPU-a", "GPU-b"), **{"GPU-a": (TWO,), "GPU-b": (THREE,)})
    with ExitStack() as stack:
        _, store = commands.begin(stack, on("GPU-b", "GPU-a"))
        assert run_start.homes(store, (ONE, TWO, THREE), ["GPU-b", "GPU-a"]) == {TWO: 1, THREE: 0}
    assert len(commands.said) == 1
    with ExitStack() as stack:
        _, store = commands.begin(stack, on("GPU-b"))
        assert (store.timings(TWO, SCREEN), len(store.timings(THREE, SCREEN))) == ([], 1)
    assert "GPU-a" in commands.said[1]


def test_a_size_never_has_screenings_of_two_gpus(commands: Commands) -> None:
    """As a run leaves them whose GPU failed: it goes on where most of the size was timed."""
    begun(commands, ONE, TWO, of=on("GPU-a", "GPU-b"), **{"GPU-a": (TWO, TWO), "GPU-b": (TWO,)})
    with ExitStack() as stack:
        _, store = commands.begin(stack, on("GPU-a", "GPU-b"))
        assert store.timed_on(TWO, SCREEN) == {"GPU-a": 2}


def test_another_model_is_refused(commands: Commands) -> None:
    begun(commands, ONE, TWO, of=on("GPU-a"))
    other = on("GPU-b")
    with pytest.raises(UserError, match="device was 'NVIDIA H200, 132 SMs' and is 'NVIDIA H100, 132 SMs'"):
        commands.run(of=replace(other, device=replace(other.device, name="NVIDIA H100", num_sms=132)))


@pytest.mark.parametrize(
    "name",
    [
        *("TRITON_F32_DEFAULT", "TRITON_PTXAS_PATH", "LLVM_IR_ENABLE_DUMP", "AMDGCN_USE_BUFFER_OPS", "HSA_XNACK"),
        *("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "CUBLAS_WORKSPACE_CONFIG", "TORCH_BLAS_PREFER_CUBLASLT"),
        *("NVIDIA_TF32_OVERRIDE", "ROCBLAS_LAYER", "DISABLE_LLVM_OPT", "DISABLE_PTXAS_OPT"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD"),
    ],
)
def test_a_variable_that_changes_code_or_times_counts(
    name: str, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(name, raising=False)
    commands.run()
    monkeypatch.setenv(name, "1")
    with pytest.raises(UserError, match=f"environment variable {name} was not set and is '1'"):
        commands.run()
    text = (ROOT / "docs" / "tuning.md").read_text()
    assert name in text or any(name.startswith(one) and f"`{one}`" in text for one in COUNTING_PREFIXES)


@pytest.mark.parametrize(
    "name",
    [
        *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
        *("TRITON_CACHE_DIR", "TRITON_HOME", "CUDA_CACHE_PATH", "TRITON_INTERPRET", "TRITON_ALWAYS_COMPILE", "LANG"),
        *("TORCH_LOGS", "TORCH_SHOW_CPP_STACKTRACES", "NVIDIA_DRIVER_CAPABILITIES"),
    ],
)
def test_what_is_seen_and_where_caches_are_does_not_count(
    name: str, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = commands.run()
    monkeypatch.setenv(name, "1")
    assert commands.run() == first


def test_the_sources_that_time_and_compile_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*KERNEL_SOURCES, *NOT_TIMING):
        assert (ROOT / "gemm_tuner" / name).exists(), name
    copy = tmp_path / "package"
    shutil.copytree(ROOT / "gemm_tuner", copy)
    asked = run_options(tmp_path, ONE)
    monkeypatch.setattr("gemm_tuner.pipeline.run_identity.PACKAGE", ROOT / "gemm_tuner")
    before = fingerprint(asked, environment(), "nsys")
    monkeypatch.setattr("gemm_tuner.pipeline.run_identity.PACKAGE", copy)
    assert fingerprint(asked, environment(), "nsys") == before
    counting = ("launch/timing.py", "decide/ranking.py", "pipeline/serving.py", "consumers/aiter.py", "a_new_one.py")
    for name, part in (*((one, "timing code") for one in counting), ("source/codegen.py", "kernel")):
        with (copy / name).open("a") as file:
            file.write("# another\n")
        now = fingerprint(asked, environment(), "nsys")
        (line,) = differences(before, now)
        assert line.startswith(part)
        before = now
    for name in ("pipeline/show.py", "report/text.py", "cli/commands/export.py"):
        with (copy / name).open("a") as file:
            file.write("# another\n")
        assert fingerprint(asked, environment(), "nsys") == before


def changed(asked: RunOptions, **changes: Any) -> list[str]:
    before, now = (fingerprint(one, environment(), "nsys") for one in (asked, replace(asked, **changes)))
    return [line.split(" was ")[0] for line in differences(before, now)]


def test_what_makes_timings_another_kind(tmp_path: Path) -> None:
    asked = run_options(tmp_path, ONE)
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "validity.py").write_text("# mine\n")
    assert changed(asked) == []
    assert changed(asked, rules_dir=rules) == ["rules"]
    assert changed(asked, rotating_mib=512) == changed(asked, init_type="zeros") == ["method"]
    older = {ONE: config()}
    assert changed(asked, older=older) == ["older configurations"]
    assert changed(replace(asked, older=older), min_improvement_pct=0.5) == ["older configurations"]
    assert changed(asked, min_improvement_pct=0.5) == []  # nothing is to be beaten
    assert changed(asked, verbose=True, keep=True, jobs=4, compile_workers=3, budget_s=9.0) == []


def test_what_changes_nothing_without_timing_does_not_count_there(tmp_path: Path) -> None:
    """A command that is told so of a flag goes on all the same."""
    asked = run_options(tmp_path, ONE)
    timed = {"iters": 5, "warmup": 1, "init_type": "zeros", "rotating_mib": 512}
    played_back: Any = SimpleNamespace()
    for of, changes in (
        (replace(environment(), gpus=()), {**timed, "search": "quick"}),
        (replace(environment(), recording=played_back), timed),
    ):
        before, now = (fingerprint(one, of, of.source) for one in (asked, replace(asked, **changes)))
        assert differences(before, now) == []
        (line,) = differences(before, fingerprint(replace(asked, seed=9), of, of.source))
        assert "seed 9" in line
    assert len(changed(asked, **timed)) == 1


def test_the_sizes_given_do_not_change_the_method(tmp_path: Path) -> None:
    sizes: tuple[GemmProblem, ...] = (ONE, TWO)
    one, other = (fingerprint(run_options(tmp_path, *some), environment(), "nsys") for some in (sizes, sizes[:1]))
    assert differences(one, other) == []


def test_the_content_of_a_recorded_routing_counts(tmp_path: Path) -> None:
    recorded = tmp_path / "ids.npy"
    layer = MoeProblem("vllm", 16, 8, 64, 128, 2, routing=("uniform", str(recorded)))
    asked = replace(run_options(tmp_path), entries=(SizeEntry(layer), SizeEntry(layer.at(32))))
    recorded.write_bytes(b"one")
    before = fingerprint(asked, environment(), "nsys")
    assert fingerprint(asked, environment(), "nsys") == before
    recorded.write_bytes(b"another")
    (line,) = differences(before, fingerprint(asked, environment(), "nsys"))
    assert line.startswith(f"content of {recorded} was ")
