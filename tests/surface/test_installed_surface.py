"""``gt.install()``: launches without tuning, notes of what is not tuned, results that serve; interpreted kernels."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from fault_runs import ROOT
from triton.runtime import autotuner
from triton.runtime.errors import OutOfResources

import gemm_tuner as gt
from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels import kernel_spec_file, launch_notes
from gemm_tuner.kernels.arguments import launch_of, names_of
from gemm_tuner.kernels.collected import collected
from gemm_tuner.store import results
from gemm_tuner.surface.install import Installed

KERNELS = """
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": 64}, num_warps=1), triton.Config({"BLOCK": 32}, num_warps=2),
           triton.Config({"BLOCK": 128}, num_warps=4)]

def early(configs, named, **kwargs):
    return [one for one in configs if one.kwargs["BLOCK"] <= named["n"]]

@triton.autotune(CONFIGS, key=["n"], prune_configs_by={"early_config_prune": early}, restore_value=["out"])
@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr, SHIFT: tl.constexpr = 0):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor + SHIFT, mask=at < n)
"""
RUN = (64, 2.5)


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Any, Installed]]]:
    """The kernel, imported after ``gt.install``."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    path = tmp_path / "user_kernels.py"
    path.write_text(KERNELS, encoding="utf-8")
    opened: list[Installed] = []

    def load(**options: Any) -> tuple[Any, Installed]:
        installed = gt.install(notes=tmp_path / "notes.jsonl", **options)
        opened.append(installed)
        spec = importlib.util.spec_from_file_location("user_kernels", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.scale, installed

    yield load
    for one in opened:
        one.uninstall()


def launch(scale: Any, n: int, dtype: torch.dtype = torch.float32, factor: float = 2.0) -> None:
    x, out = torch.arange(n).to(dtype), torch.empty(n, dtype=dtype)
    scale[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, factor)
    assert torch.equal(out, x * factor)


def notes_in(folder: Path) -> list[launch_notes.LaunchNote]:
    path = folder / "notes.jsonl"
    return list(launch_notes.read(path)) if path.exists() else []


def test_an_unknown_key_launches_the_first_valid_configuration_and_is_noted_once(
    load: Callable[..., tuple[Any, Installed]], tmp_path: Path
) -> None:
    scale, installed = load()
    benchmarked: list[Any] = []
    scale._do_bench = lambda *args, **kwargs: benchmarked.append(args)
    for n in (100, 48, 100):
        launch(scale, n)
    launch(scale, 100, torch.float16)
    assert not benchmarked and len(installed.fallbacks) == 3
    notes = notes_in(tmp_path)
    assert [(one.scalars["n"], one.tensors["x"].dtype) for one in notes] == [(100, "fp32"), (48, "fp32"), (100, "fp16")]
    launch(scale, 100)
    assert scale.best_config.kwargs["BLOCK"] == 64
    launch(scale, 48)
    assert scale.best_config.kwargs["BLOCK"] == 32, "64 was pruned"


def test_a_configuration_that_does_not_fit_is_passed_over_and_other_errors_are_told(
    load: Callable[..., tuple[Any, Installed]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scale, _ = load()
    run = scale.fn.run

    def too_large(*args: Any, **kwargs: Any) -> Any:
        if kwargs["BLOCK"] == 64:
            raise OutOfResources(300_000, 232_448, "shared memory")
        return run(*args, **kwargs)

    monkeypatch.setattr(scale.fn, "run", too_large)
    launch(scale, 100)
    assert scale.best_config.kwargs["BLOCK"] == 32


def test_other_errors_of_a_launch_are_the_callers(
    load: Callable[..., tuple[Any, Installed]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scale, _ = load()
    tried: list[int] = []

    def fault(*args: Any, **kwargs: Any) -> Any:
        tried.append(kwargs["BLOCK"])
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(scale.fn, "run", fault)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        launch(scale, 100)
    assert tried == [64], "no other is tried"


def test_a_launch_that_cannot_be_noted_is_made(
    load: Callable[..., tuple[Any, Installed]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither where the file cannot be written, nor where a tensor does not say its strides."""
    (tmp_path / "notes.jsonl").mkdir()
    scale, _ = load()
    with pytest.warns(UserWarning, match="scale is not noted"):
        launch(scale, 100)
    made: list[int] = []
    monkeypatch.setattr(scale.fn, "run", lambda *args, **kwargs: made.append(kwargs["BLOCK"]))
    tensor = SimpleNamespace(dtype=torch.float32, shape=(8,), data_ptr=lambda: 16)
    with pytest.warns(UserWarning, match="scale is not noted: .*stride"):
        scale[(1,)](tensor, tensor, 64, 2.0)
    assert made == [64]


def test_the_order_of_fallbacks_can_be_chosen(load: Callable[..., tuple[Any, Installed]]) -> None:
    scale, _ = load(fallback=lambda configs, named: sorted(configs, key=lambda one: -one.num_warps))
    launch(scale, 200)
    assert scale.best_config.num_warps == 4


def test_online_tunes_as_triton_does(load: Callable[..., tuple[Any, Installed]], tmp_path: Path) -> None:
    scale, _ = load(online=True)
    blocks = iter([3.0, 1.0, 2.0])
    scale._do_bench = lambda call, quantiles: (call(), [next(blocks)] * 3)[1]
    launch(scale, 200)
    assert scale.best_config.kwargs["BLOCK"] == 32 and not notes_in(tmp_path)


def test_notes_become_a_spec_whose_launches_are_those_noted(
    load: Callable[..., tuple[Any, Installed]], tmp_path: Path
) -> None:
    scale, _ = load()
    for n in (100, 300, 100):
        launch(scale, n, factor=float(n))
    launch(scale, 300, torch.float16)
    collect = [sys.executable, str(ROOT / "tune_gemm.py"), "collect", "notes.jsonl", "-o", "."]
    done = subprocess.run(collect, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "scale.yaml: 3 cases of 3 notes" in done.stdout, done.stderr
    spec, cases = kernel_spec_file.read(tmp_path / "scale.yaml")
    assert [dict(case) for case in cases] == [
        {"n": n, "factor": factor, "SHIFT": 0, "x_dtype": dtype, "out_dtype": dtype}
        for n, factor, dtype in ((100, 100.0, "fp32"), (300, 300.0, "fp32"), (300, 2.0, "fp16"))
    ]
    assert dict(spec.params) == {"BLOCK": (64, 32, 128), "num_warps": (1, 2, 4), "num_stages": (3,)}
    assert [(one.name, one.shape, one.output) for one in spec.tensors] == [("x", ("n",), False), ("out", ("n",), True)]
    params = {"BLOCK": 32, "num_warps": 2, "num_stages": 3}
    grid, arguments = launch_of(spec, names_of(spec, dict(cases[1]), params, 1), params, {"x": "x", "out": "out"})
    assert grid == (10,)
    assert arguments == {"x": "x", "out": "out", "n": 300, "factor": 300.0, "SHIFT": 0, **params}


def results_file(
    folder: Path, verified: object, config: dict[str, Any], *, source: str = "measured", **case: Any
) -> Path:
    path = folder / "tuned.yaml"
    row = {
        "kind": "kernels", "kernel": "scale", "spec": "0" * 12, "case": case, "family": "scale", **config,
        "name": "scale_one", "verified": verified, "predicted_us" if source == "predicted" else "median_us": 1.0,
    }  # fmt: skip
    header = dict.fromkeys(results.Header.__dataclass_fields__, "") | {"num_sms": 1, "seed": 0, "source": source}
    results.write_rows(path, header, [row], [])
    return path


@pytest.mark.parametrize(
    ("case", "is_served"),
    [
        ({"n": 100, "x_dtype": "fp32", "out_dtype": "fp32", "factor": 7.0}, True),
        ({"n": 100, "dtype": "fp32"}, True),
        ({"n": 100, "dtype": "fp16"}, False),
        ({"n": 101, "dtype": "fp32"}, False),
        ({"rows": 100, "dtype": "fp32"}, False),
    ],
)
def test_a_results_file_serves_the_keys_that_it_has(
    load: Callable[..., tuple[Any, Installed]], tmp_path: Path, case: dict[str, Any], is_served: bool
) -> None:
    tuned = {"BLOCK": 16, "num_warps": 8, "num_stages": 2}
    scale, installed = load(results=results_file(tmp_path, True, tuned, **case))
    launch(scale, 100)
    assert (scale.best_config.kwargs == {"BLOCK": 16}) is is_served
    assert (len(installed.served), len(installed.fallbacks)) == ((1, 0) if is_served else (0, 1))
    assert bool(notes_in(tmp_path)) is not is_served
    if is_served:
        assert scale.best_config.num_warps == 8


@pytest.mark.parametrize(("verified", "is_served"), [(True, True), ("agreed", True), (False, False)])
def test_rows_that_were_not_checked_do_not_serve(
    load: Callable[..., tuple[Any, Installed]], tmp_path: Path, verified: object, is_served: bool
) -> None:
    path = results_file(tmp_path, verified, {"BLOCK": 16, "num_warps": 8, "num_stages": 2}, n=100, dtype="fp32")
    scale, installed = load(results=[path])
    launch(scale, 100)
    assert bool(installed.served) is is_served


@pytest.mark.parametrize("verified", ["agreed", "interpreted", False])
def test_predicted_rows_serve_only_where_they_are_asked_for(
    load: Callable[..., tuple[Any, Installed]], tmp_path: Path, verified: object
) -> None:
    """As in exports; one warning says how many there are. What was not checked does not serve even then."""
    tuned = {"BLOCK": 16, "num_warps": 8, "num_stages": 2}
    path = results_file(tmp_path, verified, tuned, source="predicted", n=100, dtype="fp32")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        scale, installed = load(results=[path, path])
    said = [str(one.message) for one in told if "gt.install" in str(one.message)]
    rows = "gt.install: 2 rows were predicted and never run, and left out; predicted=True uses such rows"
    assert said == ([rows] if verified else [])
    launch(scale, 100)
    assert not installed.served and notes_in(tmp_path)
    installed.uninstall()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scale, installed = load(results=path, predicted=True)
    launch(scale, 100)
    assert bool(installed.served) is bool(verified)


def test_measured_rows_serve_as_before_where_predicted_ones_are_taken(
    load: Callable[..., tuple[Any, Installed]], tmp_path: Path
) -> None:
    """The interpreter's word about a measured row is accepted only where ``verified`` has it."""
    tuned = {"BLOCK": 16, "num_warps": 8, "num_stages": 2}
    path = results_file(tmp_path, "interpreted", tuned, n=100, dtype="fp32")
    for options, is_served in (({"predicted": True}, False), ({"verified": ["interpreted"]}, True)):
        scale, installed = load(results=path, **options)
        launch(scale, 100)
        assert bool(installed.served) is is_served
        installed.uninstall()


def test_a_tuned_configuration_that_does_not_launch_falls_back(
    load: Callable[..., tuple[Any, Installed]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = {"BLOCK": 16, "num_warps": 8, "num_stages": 2}
    scale, installed = load(results=results_file(tmp_path, True, tuned, n=100, dtype="fp32"))
    run = scale.fn.run

    def too_large(*args: Any, **kwargs: Any) -> Any:
        if kwargs["BLOCK"] == 16:
            raise OutOfResources(300_000, 232_448, "shared memory")
        return run(*args, **kwargs)

    monkeypatch.setattr(scale.fn, "run", too_large)
    with pytest.warns(UserWarning, match="scale: the tuned configuration BLOCK: 16.* does not launch"):
        launch(scale, 100)
    assert scale.best_config.kwargs["BLOCK"] == 64 and not installed.served


@pytest.mark.parametrize(
    "tuned", [{"BLOCK_SIZE": 16}, {"BLOCK": 16, "SPLIT": 2}, {"SHIFT": 1}, {"BLOCK": 16, "factor": 2}]
)
def test_results_of_other_parameters_are_not_taken_and_told_once(
    load: Callable[..., tuple[Any, Installed]], tmp_path: Path, tuned: dict[str, Any]
) -> None:
    """Of a kernel before its parameters were renamed, or of another one of this name."""
    path = results_file(tmp_path, True, {**tuned, "num_warps": 8, "num_stages": 2}, n=100, dtype="fp32")
    scale, installed = load(results=path)
    with pytest.warns(UserWarning, match="scale") as told:
        launch(scale, 100)
        scale.chosen.clear()
        launch(scale, 100)
    assert len(told) == 1 and scale.best_config.kwargs["BLOCK"] == 64
    assert not installed.served and notes_in(tmp_path)


@pytest.mark.parametrize(("bias", "is_served"), [(3, True), (4, False), (None, False), (torch.float16, False)])
def test_a_key_that_no_file_can_hold_is_not_served_by_a_row_of_another_value(
    load: Callable[..., tuple[Any, Installed]], tmp_path: Path, bias: Any, is_served: bool
) -> None:
    text = KERNELS.replace('key=["n"]', 'key=["n", "bias"]').replace("n, factor, ", "n, factor, bias: tl.constexpr, ")
    (tmp_path / "user_kernels.py").write_text(text, encoding="utf-8")
    tuned = {"BLOCK": 16, "num_warps": 8, "num_stages": 2}
    scale, installed = load(results=results_file(tmp_path, True, tuned, n=100, bias=3, dtype="fp32"))
    scale[(7,)](torch.ones(100), torch.empty(100), 100, 2.0, bias)
    assert bool(installed.served) is is_served


def test_heuristics_and_the_names_of_the_autotuner_stay(load: Callable[..., tuple[Any, Installed]]) -> None:
    scale, _ = load()
    assert isinstance(scale, autotuner.Autotuner) and scale.arg_names[:2] == ["x", "out"] and len(scale.configs) == 3
    above = triton.heuristics({"SHIFT": lambda args: 5})(scale)
    x, out = torch.arange(64.0), torch.empty(64)
    above[(1,)](x, out, 64, 2.0)
    assert torch.equal(out, x * 2 + 5)


def test_uninstalling_brings_tritons_own_back_also_after_two_installs() -> None:
    original = triton.autotune
    with gt.install(notes="unused"), gt.install(notes="unused"):
        assert triton.autotune is not original and autotuner.autotune is triton.runtime.autotune is triton.autotune
    assert triton.autotune is original and autotuner.autotune is original


def test_what_is_no_results_file_or_no_note_is_told(tmp_path: Path) -> None:
    original = triton.autotune
    with pytest.raises(UserError, match=r"nothing\.yaml: there is no such file; leave results out until"):
        gt.install(results=tmp_path / "nothing.yaml")
    assert triton.autotune is original
    (tmp_path / "notes.jsonl").write_text('{"kernel": "scale"}\n')
    collect = [sys.executable, str(ROOT / "tune_gemm.py"), "collect", "notes.jsonl"]
    done = subprocess.run(collect, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "notes.jsonl, line 1" in done.stderr


def test_what_no_spec_holds_is_left_out_with_the_reason(
    load: Callable[..., tuple[Any, Installed]], tmp_path: Path
) -> None:
    scale, _ = load()
    x = torch.arange(100.0)
    scale[lambda meta: (2 if meta["BLOCK"] > 32 else 4,)](x, torch.empty(100), 100, 2.0)
    scale[(2,)](x.to(torch.int64), torch.empty(100), 100, 2)
    (found,) = collected(notes_in(tmp_path), tmp_path)
    assert found.left_out == (
        "scale: x is a tensor of torch.int64, which no spec holds",
        "scale: its grid does more than arithmetic: write grid: in the spec",
    )
    assert found.spec["grid"] == [] and found.cases == 1
