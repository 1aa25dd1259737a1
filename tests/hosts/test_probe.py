"""What is found out of a host function before anything is compiled, and what is said of a bad one, on one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import warm_python

from gemm_tuner.core.errors import UserError
from gemm_tuner.hosts import host_spec_file, probe
from gemm_tuner.hosts.host_spec import HostProblem
from gemm_tuner.hosts.probe_process import answer
from gemm_tuner.hosts.workload import WORKLOAD
from gemm_tuner.space import space

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(__file__).with_name("host_sample.py")
DEVICE = space.load(ROOT / "rules" / "space_sm_90.yaml", "sm_90").device


def problem(kernel: str, host: str, spec: Path | None = None, **case: Any) -> HostProblem:
    found, _ = host_spec_file.read(f"{SAMPLE}:{kernel}", f"{SAMPLE}:{host}", spec)
    one = HostProblem.of(found, tuple(case.items()))
    return HostProblem(one.name, one.sha, one.case, found, device=DEVICE)


def test_the_kernels_own_configurations_are_the_space() -> None:
    """Through the process; the second case is too small for one of the two blocks that the first has left."""
    wide, narrow = WORKLOAD.on_device(
        [problem("tuned_copy", "copy", n=64), problem("tuned_copy", "copy", n=20)], DEVICE
    )
    assert isinstance(wide, HostProblem) and isinstance(narrow, HostProblem)
    axes = dict(wide.spec_there.params)
    assert axes["BLOCK"] == (16, 32, 4096) and axes["num_warps"] == (1,)
    assert wide.spec_there.params == narrow.spec_there.params
    at = list(axes).index("BLOCK")
    assert sorted(row[at] for row in wide.listed or ()) == [16, 32]
    assert [row[at] for row in narrow.listed or ()] == [16]
    own = WORKLOAD.own_space([narrow], DEVICE)

    class Columns:
        family = ["tuned_copy"] * 3
        BLOCK, num_warps, num_stages = [16, 32, 4096], [1] * 3, [3] * 3

    assert own.rules[0][2](Columns, narrow, DEVICE).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("kernel", "host", "words"),
    [
        ("doubled", "reads_registers", ("n_regs", "give tensors, args and grid in the spec")),
        ("doubled", "reads_values", ("reads values of a tensor", "give tensors, args and grid in the spec")),
        ("doubled", "launches_nothing", ("launches no doubled", "let it launch doubled[grid]")),
        ("doubled", "raises", ("raises RuntimeError: no such case", "n=64")),
        ("shifted", "launches_another", ("No configurations to tune", "shifted is not under @triton.autotune")),
        ("not_a_kernel", "copy", ("is no function",)),
        ("reference", "copy", ("reference is not under @triton.jit",)),
    ],
)
def test_a_bad_host_function_is_said_once(
    tmp_path: Path, kernel: str, host: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("cases: {n: 64}\nparams: {num_warps: [1, 2]}\n")
    monkeypatch.setattr(probe, "ask", lambda problems: [answer(one) for one in problems])  # without the process
    with pytest.raises(UserError) as caught:
        WORKLOAD.on_device([problem(kernel, host, None if kernel == "shifted" else spec, n=64)], DEVICE)
    line = caught.value.one_line()
    assert all(word in line for word in words) and "\n" not in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def wrong(x): return x[1:]", "the reference returned (63,) for outputs of (64,)"),
        ("def wrong(x): return True", "the reference returned bool and no tensors"),
        ("def wrong(y): return y", "the reference takes y, and is given "),
        ("def wrong(x): return x * float(x.sum())", ""),  # takes values, which are not there yet
    ],
)
def test_a_reference_of_another_shape_is_found_before_compiling(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "mine.py").write_text(f"{text}\n")
    spec = tmp_path / "spec.yaml"
    spec.write_text("cases: {n: 64}\nparams: {num_warps: [1]}\nreference: mine.py:wrong\n")
    found = answer(problem("doubled", "three_launches", spec, n=64)).fault
    assert words in found[0] if words and found else found is None and not words


def test_such_a_reference_is_found_where_the_kernel_has_its_own_configurations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spec has no params: a fault is said, and is no default configuration."""
    (tmp_path / "mine.py").write_text("def wrong(x): return x[1:]\n")
    spec = tmp_path / "spec.yaml"
    spec.write_text("cases: {n: 64}\nreference: mine.py:wrong\n")
    one = problem("tuned_copy", "copy", spec, n=64)
    found = answer(one)
    assert found.fault is not None and "returned (63,) for outputs of (64,)" in found.fault[0]
    assert found.default is None
    monkeypatch.setattr(probe, "ask", lambda problems: [found])  # without the process
    with pytest.raises(UserError, match=r"returned \(63,\)"):
        WORKLOAD.on_device([one], DEVICE)


@pytest.mark.parametrize(
    ("kernel", "host", "params", "default"),
    [
        # BLOCK is the launch's, SHIFT_BLOCK the host function's own, the others Triton's.
        (
            "doubled",
            "three_launches",
            "{SHIFT_BLOCK: [8], num_stages: [1], num_warps: [1], BLOCK: [32]}",
            (16, 3, 4, 8),
        ),
        ("added", "add", "{BLOCK: [32]}", (16,)),  # the only one of its triton.autotune
        ("tuned_copy", "copy", "{BLOCK: [16]}", None),  # triton.autotune chooses among two
    ],
)
def test_what_is_launched_without_tuning_is_known(
    tmp_path: Path, kernel: str, host: str, params: str, default: tuple[int, ...] | None
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"cases: {{n: 64}}\nparams: {params}\n")
    one = problem(kernel, host, spec, n=64)
    found = answer(one)
    assert found.fault is None and found.default == default
    config = WORKLOAD.default_config(replace(one, default=found.default), DEVICE)
    assert (tuple(config.options().values()) if config else None) == default


def test_definitions_that_raise_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import triton\nSIZE = 1 // 0\n@triton.jit\ndef k(n): ...\ndef run(): k[(SIZE,)](1)\n")
    spec, _ = host_spec_file.read(f"{file}:k", f"{file}:run", None)
    found = answer(HostProblem("k", "0" * 12, (), spec, device=DEVICE)).fault
    assert found is not None and "ZeroDivisionError" in found[0] and found[1] == "mine.py"


def test_host_code_that_ends_its_process_is_said(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import os\nimport triton\n@triton.jit\ndef k(n): ...\ndef run(): os._exit(3)\n")
    spec, _ = host_spec_file.read(f"{file}:k", f"{file}:run", None)
    (tmp_path / "spec.yaml").write_text("params: {num_warps: [1]}\n")
    spec, _ = host_spec_file.read(f"{file}:k", f"{file}:run", tmp_path / "spec.yaml")
    with pytest.raises(UserError, match="ended its process"):
        WORKLOAD.on_device([HostProblem("k", "0" * 12, (), spec)], DEVICE)


def test_files_of_the_user_take_the_place_of_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("queue", "random"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(f'{__file__} was imported')")
    file = tmp_path / "mine.py"
    file.write_text("import triton\n@triton.jit\ndef k(n): ...\ndef run(): k[(1,)](1)\n")
    (tmp_path / "spec.yaml").write_text("params: {num_warps: [1]}\n")
    spec, _ = host_spec_file.read(f"{file}:k", f"{file}:run", tmp_path / "spec.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(warm_python.FOLDER, raising=False)  # warm processes have imported them
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (found,) = WORKLOAD.on_device([HostProblem("k", "0" * 12, (), spec)], DEVICE)
    assert found.signature
