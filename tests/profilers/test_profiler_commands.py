"""The command lines, the versions and the choice of a profiler. Stand-ins take the tools' place on PATH."""

from __future__ import annotations

import importlib.metadata
import os
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EXIT_INPUT, EnvironmentFault, UserError
from gemm_tuner.measure import probe
from gemm_tuner.profilers import AUTO_ORDER, PROFILERS, base, look_ahead, proton, select
from gemm_tuner.profilers.ncu import Ncu
from gemm_tuner.profilers.nsys import Nsys
from gemm_tuner.profilers.proton import Proton
from gemm_tuner.profilers.rocprof import Rocprof
from gemm_tuner.profilers.rocprofv3 import Rocprofv3

ARGV = ["python3", "generated/gemm.py", "--plan", "plan 1.json"]
OUT = Path("results/run1/trace 7")
ALL = (Rocprofv3(), Rocprof(), Nsys(), Ncu(), Proton())


@pytest.fixture
def bin_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the only one on PATH, and no Triton."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(proton, "find_spec", lambda name: None)
    return folder


def stand_in(folder: Path, name: str, script: str) -> None:
    tool = folder / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


def install_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, with_proton: bool = True) -> None:
    package = tmp_path / "site" / "triton"
    (package / "profiler").mkdir(parents=True)
    if with_proton:
        (package / "profiler" / "proton.py").touch()
    spec = ModuleSpec("triton", None, is_package=True)
    assert spec.submodule_search_locations is not None
    spec.submodule_search_locations.append(str(package))
    monkeypatch.setattr(proton, "find_spec", lambda name: spec)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.9.0")


def test_nsys_command() -> None:
    assert Nsys().command(ARGV, OUT) == [
        "nsys",
        "profile",
        "-t",
        "cuda",
        "-s",
        "none",
        "--cpuctxsw=none",
        "--cuda-flush-interval=86400000",
        "-c",
        "cudaProfilerApi",
        "--capture-range-end=stop",
        "-f",
        "true",
        "-o",
        "results/run1/trace 7/trace",
        *ARGV,
    ]
    tables, report = Nsys().export_commands(OUT)
    assert tables == [
        "nsys",
        "export",
        "-t",
        "sqlite",
        "-q",
        "true",
        "--tables=CUPTI_ACTIVITY_KIND_KERNEL,StringIds",
        "--force-overwrite=true",
        "-o",
        "results/run1/trace 7/kernels.db",
        "results/run1/trace 7/trace.nsys-rep",
    ]
    assert report == [
        "nsys",
        "stats",
        "-q",
        "-r",
        "cuda_gpu_trace",
        "--format",
        "csv",
        "--timeunit",
        "nsec",
        "--force-export=true",
        "--force-overwrite=true",
        "-o",
        "results/run1/trace 7/trace",
        "results/run1/trace 7/trace.nsys-rep",
    ]


def test_ncu_command() -> None:
    assert Ncu().command(ARGV, OUT) == [
        "ncu",
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--metrics",
        "gpu__time_duration.sum",
        "--clock-control",
        "none",
        "--cache-control",
        "none",
        "--target-processes",
        "all",
        "--log-file",
        "results/run1/trace 7/trace.csv",
        *ARGV,
    ]


def test_rocprofv3_command() -> None:
    assert Rocprofv3().command(ARGV, OUT) == [
        "rocprofv3",
        "--kernel-trace",
        "--output-format",
        "csv",
        "-d",
        "results/run1/trace 7",
        "-o",
        "trace",
        "--log-level",
        "fatal",
        "--",
        *ARGV,
    ]


def test_rocprof_command() -> None:
    assert Rocprof().command(ARGV, OUT) == [
        "rocprof",
        "--stats",
        "-o",
        "results/run1/trace 7/trace.csv",
        *ARGV,
    ]


@pytest.mark.parametrize("argument", ["it's.json", 'a"b', "$HOME", "`x`", "a\\b"])
def test_rocprof_refuses_what_its_shell_would_change(argument: str) -> None:
    with pytest.raises(EnvironmentFault, match="rocprof cannot pass on"):
        Rocprof().command([*ARGV, argument], OUT)


def test_proton_command() -> None:
    start = ["-m", "triton.profiler.proton", "-d", "trace", "-n", "results/run1/trace 7/trace"]
    assert Proton().command(ARGV, OUT) == ["python3", *start, *ARGV[1:]]
    flags = ["python3", "-u", "-X", "dev", "-Wignore"]
    assert Proton().command([*flags, "x.py", "-m", "y"], OUT) == [*flags, *start, "x.py", "-m", "y"]


@pytest.mark.parametrize("argv", [["python3", "-m", "x"], ["python3", "-u", "-c", "x"], ["python3"], ["python3", "-X"]])
def test_proton_runs_script_files_only(argv: list[str]) -> None:
    with pytest.raises(ValueError, match="proton"):
        Proton().command(argv, OUT)


@pytest.mark.parametrize("profiler", ALL, ids=lambda profiler: profiler.name)
def test_every_profiler_of_the_registry(profiler: base.Profiler) -> None:
    assert type(profiler) in map(type, PROFILERS)
    assert profiler.uses_scopes == (profiler.name == "proton")
    assert profiler.uses_capture_range == (profiler.name == "nsys")
    assert profiler.environment() == {"LC_ALL": "C.UTF-8"}
    assert bool(profiler.export_commands(OUT)) == (profiler.name == "nsys")
    assert profiler.install_hint
    before = list(ARGV)
    profiler.command(ARGV, OUT)
    assert before == ARGV


def test_backends() -> None:
    supported = {p.name: [backend for backend in ("cuda", "hip", "cpu") if p.supports(backend)] for p in ALL}
    assert supported == {
        "rocprofv3": ["hip"],
        "rocprof": ["hip"],
        "nsys": ["cuda"],
        "ncu": ["cuda"],
        "proton": ["cuda", "hip"],
    }


def test_outputs_are_found_below_the_folder_that_the_command_names(tmp_path: Path) -> None:
    samples = Path(__file__).resolve().parents[1] / "data" / "profilers"
    for profiler, output, sample, rows in (
        (Nsys(), "trace_cuda_gpu_trace.csv", "nsys_2023.4.4_cuda_gpu_trace_h200_triton_matmul.csv", 12),
        (Ncu(), "trace.csv", "ncu_2022.3_import_raw_units_base.csv", 1),
        (Rocprofv3(), "trace_kernel_trace.csv", "rocprofv3_kernel_trace_h4_docs_rocm7.0.csv", 9),
        (Rocprof(), "trace.csv", "rocprofv1_stats_results_mi250_finitediff.csv", 19),
        (Proton(), "trace.chrome_trace", "proton_triton3.6_h200_triton_matmul.json", 17),
    ):
        out_dir = tmp_path / profiler.name
        out_dir.mkdir()
        (out_dir / output).write_bytes((samples / sample).read_bytes())
        assert len(profiler.read(out_dir)) == rows
    (tmp_path / "nsys" / "trace_cuda_gpu_trace.csv").rename(tmp_path / "nsys" / "trace_gputrace.csv")
    assert len(Nsys().read(tmp_path / "nsys")) == 12


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0'", "2023.4.4.54-234433681190v0"),
        ("echo 'Copyright (c) 2018.1'; echo 'Version 2025.3.1.0 (build 36398880)'", "2025.3.1.0"),
        ("echo 'version 1.2' >&2; exit 1", "1.2"),
        ("echo 'no number'", "unknown"),
        ("test \"$LC_ALL\" = C.UTF-8 && echo 'version 7.0.1'", "7.0.1"),
        ("echo 'cannot open shared object'; exit 127", None),
        ("printf 'version 3.1 \\377'", "3.1"),
    ],
)
def test_version_of_a_tool(bin_dir: Path, script: str, expected: str | None) -> None:
    stand_in(bin_dir, "nsys", script)
    assert Nsys().version() == expected


def test_a_tool_is_asked_for_its_version_once(bin_dir: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    stand_in(bin_dir, "nsys", f"echo asked >> {asked}; echo 'version 2023.4'")
    assert [select("nsys", "cuda").version(), Nsys().version()] == ["2023.4"] * 2
    assert asked.read_text() == "asked\n"
    stand_in(bin_dir, "nsys", "echo 'version 2025.3, installed since'")
    assert Nsys().version() == "2025.3"


@pytest.mark.parametrize("name", ["auto", "nsys"])
def test_the_version_is_looked_for_ahead(name: str, bin_dir: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "asked")
    stand_in(bin_dir, "nsys", f"echo 'by a thread' > {tmp_path / 'asked'}; echo 'version 2023.4'")
    look_ahead(name)
    assert (tmp_path / "asked").read_text() == "by a thread\n"


def test_a_tool_that_hangs_or_cannot_start_counts_as_absent(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "VERSION_TIMEOUT_S", 0.2)
    stand_in(bin_dir, "ncu", "exec /bin/sleep 20")
    assert Ncu().version() is None
    (bin_dir / "nsys").write_bytes(b"\x7fELF not a program")
    (bin_dir / "nsys").chmod(0o755)
    assert Nsys().version() is None


def test_without_tools_there_is_no_version(bin_dir: Path) -> None:
    assert [profiler.version() for profiler in ALL] == [None] * 5


def test_proton_is_there_when_its_files_are(bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_triton(tmp_path, monkeypatch)
    assert Proton().version() == "3.9.0"
    (tmp_path / "site" / "triton" / "profiler" / "proton.py").unlink()
    assert Proton().version() is None


def test_triton_under_another_package_name(bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_triton(tmp_path, monkeypatch)

    def version(name: str) -> str:
        if name == "triton":
            raise importlib.metadata.PackageNotFoundError(name)
        return f"{name} 3.5"

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: {"triton": ["other-triton"]})
    assert Proton().version() == probe.versions()["triton"] == "other-triton 3.5"
    monkeypatch.setattr(importlib.metadata, "packages_distributions", dict)
    assert Proton().version() == "unknown" and probe.versions()["triton"] == ""


@pytest.mark.parametrize(("backend", "order"), [(backend, AUTO_ORDER[backend]) for backend in ("hip", "cuda")])
def test_auto_takes_the_first_that_is_installed(
    bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, order: tuple[str, ...]
) -> None:
    for name in reversed(order):
        if name == "proton":
            install_triton(tmp_path, monkeypatch)
        else:
            stand_in(bin_dir, name, "echo version 1.0")
        assert select("auto", backend).name == name


def test_auto_order() -> None:
    gpus = {"hip": ("rocprofv3", "rocprof", "proton"), "cuda": ("nsys", "proton", "ncu")}
    assert {**gpus, "cpu": ("clock",)} == AUTO_ORDER


def test_auto_skips_a_tool_that_does_not_start(bin_dir: Path) -> None:
    stand_in(bin_dir, "rocprofv3", "exit 1")
    stand_in(bin_dir, "rocprof", "echo version 1.0")
    assert select("auto", "hip").name == "rocprof"


def test_auto_without_any_tool(bin_dir: Path) -> None:
    with pytest.raises(EnvironmentFault, match="no profiler for cuda is installed") as caught:
        select("auto", "cuda")
    assert caught.value.exit_status == EXIT_ENVIRONMENT
    assert "put nsys on PATH; or proton is part of Triton" in caught.value.hint


def test_a_named_tool_is_taken(bin_dir: Path) -> None:
    stand_in(bin_dir, "nsys", "echo version 1.0")
    stand_in(bin_dir, "ncu", "echo version 1.0")
    assert select("ncu", "cuda").name == "ncu"


def test_a_named_tool_that_is_not_installed(bin_dir: Path) -> None:
    stand_in(bin_dir, "ncu", "echo version 1.0")
    with pytest.raises(EnvironmentFault, match="nsys is not installed") as caught:
        select("nsys", "cuda")
    assert "install NVIDIA Nsight Systems" in caught.value.hint
    assert "available: ncu" in caught.value.hint


def test_a_named_tool_for_another_gpu(bin_dir: Path) -> None:
    stand_in(bin_dir, "nsys", "echo version 1.0")
    with pytest.raises(EnvironmentFault, match="nsys cannot time hip kernels") as caught:
        select("nsys", "hip")
    assert "available: none" in caught.value.hint


def test_an_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(UserError, match="no profiler 'nvprof'") as caught:
        select("nvprof", "cuda")
    assert caught.value.exit_status == EXIT_INPUT
    for name in ("auto", "rocprofv3", "rocprof", "nsys", "ncu", "proton"):
        assert name in caught.value.accepted
