"""What a machine has and what is wrong with it: drivers' answers read, every finding with the command that mends it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from nvml_recording import Gpu, h200, install, memory, process
from samples import NO_GPU, RULES, gpu

from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EXIT_INPUT, EXIT_OK, EnvironmentFault
from gemm_tuner.languages.cute import extra, library
from gemm_tuner.measure import device as devices
from gemm_tuner.measure.device import Machine
from gemm_tuner.measure.machine_check import facts, gpus
from gemm_tuner.measure.machine_check.facts import Facts, Plan, Surroundings
from gemm_tuner.measure.machine_check.findings import GIB, Level, judge, measurable
from gemm_tuner.measure.machine_check.gpus import LOCKED, NOT_LOCKED, UNKNOWN, GpuState
from gemm_tuner.system import nvml
from gemm_tuner.system.nvml import GpuProcess


def test_what_nvml_says_of_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = h200(
        "GPU-11111111", ClockInfo=1200, CurrentClocksThrottleReasons=0x48, MemoryInfo=memory(9000), MigMode=[1, 1],
        UtilizationRates=SimpleNamespace(gpu=100), PersistenceMode=0,
        ComputeRunningProcesses=[process(os.getpid(), 8000), process(2**30)],
    )  # fmt: skip
    fixed = h200("GPU-22222222", ClockInfo=1500, ApplicationsClock=1500)
    recording = install(monkeypatch, h200(), busy, fixed, Gpu("GPU-33333333", {"Name": b"Tesla T4"}))
    idle_state, busy_state, fixed_state, old_state = gpus.nvidia()
    assert idle_state == GpuState(
        0, "NVIDIA H200", "nvidia", NOT_LOCKED, 375, 1980, "", 0, 0, False, True, (), "GPU-e75930be"
    )
    assert (busy_state.clocks, busy_state.slowed, busy_state.mig, busy_state.persistent) == (
        UNKNOWN, "hardware slowdown, heat, by the hardware", True, False)  # fmt: skip
    mine, gone = busy_state.processes
    assert (mine.pid, mine.memory_bytes) == (os.getpid(), 8000 << 20) and "python" in mine.name
    assert gone == GpuProcess(2**30, "unknown", None)
    assert (busy_state.memory_used_mib, busy_state.utilization_pct) == (9000, 100)
    assert fixed_state.clocks == LOCKED
    assert old_state == GpuState(3, "Tesla T4", "nvidia", uuid="GPU-33333333")
    assert recording.said == ["init", "shutdown"]


def test_without_a_driver_or_the_library_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, init_error="Driver Not Loaded")
    assert gpus.nvidia() == () and nvml.driver_version() == ""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpus.nvidia() == () and nvml.driver_version() == ""


def test_the_version_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, h200())
    assert devices.driver_version() == "580.159.04"


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(("level", "clocks"), [("auto\n", NOT_LOCKED), ("perf_determinism\n", LOCKED), ("", UNKNOWN)])
def test_what_amdgpu_says_in_its_files(level: str, clocks: str, tmp_path: Path) -> None:
    card = "sys/class/drm/card1/device"
    put(tmp_path, {
        "sys/class/drm/card0/device/vendor": "0x1a03\n",
        "sys/class/drm/card1-DP-1/device/vendor": "0x1002\n",
        f"{card}/vendor": "0x1002\n",
        f"{card}/product_name": "AMD Instinct MI300X OAM\n",
        f"{card}/power_dpm_force_performance_level": level,
        f"{card}/pp_dpm_sclk": "0: 500Mhz\n1: 132Mhz *\n2: 2100Mhz\n",
        f"{card}/mem_info_vram_used": f"{300 << 20}\n",
        f"{card}/gpu_busy_percent": "7\n",
        "sys/class/kfd/kfd/proc/77/pasid": "1\n",
        "sys/class/kfd/kfd/proc/77/vram_4711": f"{5 << 20}\n",
        "sys/class/kfd/kfd/proc/77/vram_4712": f"{2 << 20}\n",
        "proc/77/comm": "vllm\n",
    })  # fmt: skip
    (found,) = gpus.amd(tmp_path)
    used = (GpuProcess(77, "vllm", 7 << 20),)
    assert found == GpuState(0, "AMD Instinct MI300X OAM", "amd", clocks, 132, 2100, "", 300, 7, False, None, used)
    assert gpus.amd(tmp_path / "empty") == ()


@pytest.mark.parametrize(
    ("files", "memory", "cpus"),
    [
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "1000\n",
          "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/cpu.max": "150000 100000\n",
          "sys/fs/cgroup/a/cpu.max": "50000 100000\n"}, 1000, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2000\n", "sys/fs/cgroup/cpu.max": "max 100000\n"},
         2000, None),
        ({"proc/self/cgroup": "3:cpu,cpuacct:/x\n2:memory:/x\n",
          "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "3000\n",
          "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
          "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n"},
         3000, 1),
        ({"proc/self/cgroup": "3:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
          "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, None, None),
        ({"sys/fs/cgroup/memory.max": "4000\n", "sys/fs/cgroup/cpu.max": "90000 100000\n"}, 4000, 1),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "5000\n"}, 5000, None),
        ({}, None, None),
    ],
)  # fmt: skip
def test_the_limits_of_a_container(files: dict[str, str], memory: int | None, cpus: int | None, tmp_path: Path) -> None:
    put(tmp_path, files)
    found = facts.look_around(tmp_path, tmp_path)
    assert found.memory_limit_bytes == memory
    allowed = len(os.sched_getaffinity(0))
    assert found.cores == min(allowed, cpus or allowed)
    assert found.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_an_output_folder_that_is_not_there_yet_is_judged_by_the_one_above(tmp_path: Path) -> None:
    found = facts.look_around(tmp_path / "a" / "b", tmp_path)
    assert found.output_folder == tmp_path and found.write_fault == "" and found.free_bytes > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_may_not_be_written_is_said_to_be_none(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert facts.look_around(tmp_path, tmp_path).write_fault == "Permission denied"


AROUND = Surroundings(16, 256 * GIB, None, Path("/out"), 100 * GIB, "", "/usr/bin/gcc", True, False, ())
PLAN = Plan("sm_90", "cuda", "rules/space_sm_90.yaml", "", "nsys", "", "measured")
STATE = GpuState(0, "NVIDIA H200", "nvidia", UNKNOWN, 1980, 1980)
GOOD = Facts(Machine((gpu(0),), NO_GPU.versions, "580.1"), "", (STATE,), (), AROUND, PLAN)
NONE = replace(GOOD, machine=NO_GPU, states=(), plan=replace(PLAN, source="predicted"))


def test_a_machine_that_is_as_it_should_be_has_no_findings() -> None:
    assert judge(GOOD) == [] and measurable(judge(GOOD))


@pytest.mark.parametrize(
    ("known", "words", "mend"),
    [
        (NONE, "there is no GPU", ""),
        (replace(NONE, states=(STATE,)), "torch 2.11.0 sees no GPU and the driver lists NVIDIA H200", "built for CUDA"),
        (replace(NONE, states=(STATE,), hiding=(("CUDA_VISIBLE_DEVICES", ""),)), "CUDA_VISIBLE_DEVICES=",
         "unset CUDA_VISIBLE_DEVICES"),
        (replace(NONE, machine_fault="looking for GPUs failed"), "looking for GPUs failed", "pip install"),
        (replace(NONE, machine=Machine((), {"torch": "", "triton": "3.6.0"}, "")), "torch is not installed",
         "pip install torch"),
        (replace(GOOD, machine=replace(GOOD.machine, versions={"torch": "2.11.0"})), "triton is not installed",
         "pip install triton"),
        (replace(GOOD, plan=replace(PLAN, profiler_fault="no profiler for cuda is installed")), "no profiler", ""),
        (replace(GOOD, plan=replace(PLAN, space_fault="no space is known")), "no space is known", ""),
        (replace(GOOD, plan=replace(PLAN, arch="gfx942")), "this GPU is sm_90", "leave out --arch"),
        (replace(GOOD, around=replace(AROUND, write_fault="Permission denied")), "/out cannot be written",
         "another --output_dir"),
        (replace(GOOD, around=replace(AROUND, compiler="", python_headers=False)), "no C compiler and no Python.h",
         "apt-get install gcc python3-dev"),
        (replace(GOOD, around=replace(AROUND, counters_for_root=True), plan=replace(PLAN, profiler="ncu")),
         "performance counters", "--profiler nsys"),
    ],
)  # fmt: skip
def test_what_blocks_measuring_comes_first_and_says_what_mends_it(known: Facts, words: str, mend: str) -> None:
    found = judge(known)
    assert not measurable(found)
    assert found[0].level == Level.BLOCKS and words in found[0].what and mend in found[0].mend


@pytest.mark.parametrize(
    ("known", "words", "mend"),
    [
        (replace(GOOD, states=(replace(STATE, processes=(GpuProcess(7, "vllm"),)),)), "used by 7 (vllm)", "--gpu_ids"),
        (replace(GOOD, states=(replace(STATE, memory_used_mib=9000),)), "9000 MiB in use", "on the host"),
        (replace(GOOD, states=(replace(STATE, compute_mode=2),)), "no process may use it", "-c DEFAULT"),
        (replace(GOOD, states=(replace(STATE, slowed="power brake"),)), "slowed down by power brake", "power supply"),
        (replace(GOOD, around=replace(AROUND, free_bytes=GIB // 2)), "/out has 0.5 GiB free", "--output_dir"),
        (replace(GOOD, around=replace(AROUND, memory_limit_bytes=GIB // 2)), "0.5 GiB of memory", "--num_threads 1"),
    ],
)
def test_what_spoils_times_is_warned_of_and_blocks_nothing(known: Facts, words: str, mend: str) -> None:
    found = judge(known)
    assert measurable(found)
    assert [one.level for one in found] == [Level.WARNING] and words in found[0].what and mend in found[0].mend


@pytest.mark.parametrize(
    ("known", "words", "mend"),
    [
        (replace(GOOD, states=(replace(STATE, clocks=NOT_LOCKED),)), "not locked",
         "sudo nvidia-smi -i 0 --lock-gpu-clocks=1980,1980"),
        (replace(GOOD, states=(replace(STATE, vendor="amd", clocks=NOT_LOCKED),)), "not locked", "rocm-smi"),
        (replace(GOOD, states=(replace(STATE, mig=True),)), "split (MIG)", ""),
        (replace(GOOD, states=(replace(STATE, compute_mode=3),)), "one after another", "-c DEFAULT"),
        (replace(GOOD, around=replace(AROUND, foreign=("TRITON_INTERPRET",))), "TRITON_INTERPRET is set", "unset"),
        (replace(GOOD, machine=Machine((gpu(0), gpu(1, "NVIDIA A100", "sm_80")), NO_GPU.versions, "")),
         "several kinds (0: NVIDIA H200, 1: NVIDIA A100)", "--gpu_ids"),
        (replace(GOOD, plan=replace(PLAN, absent=(("one", "get it"), ("other", "get it")))), "one, other", "get it"),
    ],
)  # fmt: skip
def test_what_is_good_to_know_is_a_note(known: Facts, words: str, mend: str) -> None:
    found = judge(known)
    assert measurable(found)
    assert [one.level for one in found] == [Level.NOTE] and words in found[0].what and mend in found[0].mend


def test_the_plan_is_that_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a PATH with an nsys that starts, on one without, and for another architecture than the GPU's."""
    tool = tmp_path / "nsys"
    tool.write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2023.4.4.54\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    machine = GOOD.machine
    found = facts.plan(machine, RULES, "auto", "")
    assert (found.arch, found.backend, found.profiler, found.source) == ("sm_90", "cuda", "nsys", "measured")
    assert found.space_file.endswith("space_sm_90.yaml")
    assert facts.plan(machine, RULES, "auto", "gfx942").source == "predicted"
    assert facts.plan(NO_GPU, RULES, "auto", "").source == "predicted"
    relative = facts.plan(Machine((gpu(0, "GB10", "sm_121"),), {}, ""), RULES, "auto", "")
    assert relative.space_file.endswith("space_sm_120.yaml") and relative.source == "measured"
    assert "sm_121" in relative.stand_in and "sm_120" in relative.stand_in and found.stand_in == ""
    foreign = facts.plan(Machine((gpu(0, "T4", "sm_75"),), {}, ""), RULES, "auto", "")
    assert "sm_75" in foreign.space_fault and foreign.source == "predicted"
    tool.unlink()
    missing = facts.plan(machine, RULES, "nsys", "")
    assert "nsys is not installed" in missing.profiler_fault and missing.source == "predicted"


def test_families_that_need_an_extra_are_named_where_the_architecture_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(library.RUNTIME_VARIABLE, raising=False)
    monkeypatch.setattr(extra, "installed", dict)
    of = {arch: facts.plan(NO_GPU, RULES, "auto", arch).absent for arch in ("sm_90", "sm_100", "sm_80", "gfx942")}
    assert of["sm_90"] == tuple(
        (name, extra.BRINGS) for name in ("gemm_cute", "gemm_cute_packed", "gemm_cute_in_place")
    )
    assert of["sm_100"] and not of["sm_80"] and not of["gfx942"]


def test_an_interpreter_that_does_not_run_matters_where_times_are_predicted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Versions as a metadata folder of NumPy and Triton in front of those installed tells them."""
    for name, version in (("triton", "3.6.0"), ("numpy", "2.4.0")):
        put(
            tmp_path,
            {f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"},
        )
    monkeypatch.syspath_prepend(tmp_path)
    plan = facts.plan(NO_GPU, RULES, "auto", "")
    found = judge(replace(NONE, plan=plan))
    assert "numpy<2.4" in plan.interpreter_fault
    assert [one.level for one in found if "2.4.0" in one.what] == [Level.WARNING]
    assert facts.plan(GOOD.machine, RULES, "proton", "").interpreter_fault == ""


def test_the_command_on_a_machine_with_and_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    install(monkeypatch, h200())
    monkeypatch.setattr(devices, "look", lambda: NO_GPU)
    assert main(["check"]) == EXIT_ENVIRONMENT
    shown = capsys.readouterr().out
    assert "blocks: torch 2.11.0 sees no GPU and the driver lists NVIDIA H200" in shown
    assert "375 of 1980 MHz, clocks not locked" in shown and "--dry_run" in shown
    assert not (tmp_path / "results").exists()

    monkeypatch.setattr(devices, "look", lambda: GOOD.machine)
    monkeypatch.setattr(facts, "_compiler", lambda: "/usr/bin/gcc")
    for name in ("nsys", "gcc"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    status = main(["check", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["plan"]["source"] == "measured" and document["states"][0]["sm_clock_mhz"] == 375
    assert (status == EXIT_OK) == document["measurable"] == document["around"]["python_headers"]


def test_a_machine_that_cannot_be_asked_is_a_finding_and_not_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Machine:
        raise EnvironmentFault("looking for GPUs failed: libcuda.so", hint="does torch work?")

    monkeypatch.setattr(devices, "look", broken)
    assert main(["check", "--output_dir", str(tmp_path)]) == EXIT_ENVIRONMENT
    assert "blocks: looking for GPUs failed: libcuda.so" in capsys.readouterr().out
    assert main(["check", "--profiler", "perf"]) == EXIT_INPUT
