"""The exported module with winners in CuTe DSL: their compiled kernels beside it, a substitute where they cannot run.

Stand-ins launch on the CPU; Triton's kernels run in the interpreter. For the GPU there is test_cute_module_on_gpu.py.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import samples
from exported_modules import HEADER, choice
from result_files import write_choices

from gemm_tuner.cli.main import main
from gemm_tuner.compile.compile_tasks import write_scripts
from gemm_tuner.core.choice import Choice, Substitute
from gemm_tuner.core.language import language_of
from gemm_tuner.core.records import Verified
from gemm_tuner.export.gemm.module import write_module
from gemm_tuner.export.trust import Trust
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.languages import kernel_cache
from gemm_tuner.languages.cute import extra, library
from gemm_tuner.languages.cute.source import Source
from gemm_tuner.languages.scripts import load_script

STAND_IN = samples.ROOT / "tests" / "helpers" / "tvm_ffi_stand_in"
FP16 = {"dtype_a": "fp16", "dtype_b": "fp16", "dtype_c": "fp16"}
SIZE = replace(samples.problem(64, 48, 64), **FP16)
BIASED = replace(samples.problem(64, 32, 64), **FP16, bias=True, alpha=2.0, layout_b=Layout.COL)
SPLIT = replace(samples.problem(40, 24, 96), **FP16, layout_a=Layout.COL)
UNEQUAL = replace(BIASED, m=40, n=24, k=200, layout_a=Layout.COL)
WINNER = KernelConfig("gemm_cute", 64, 48, 64, 8, 1, 0, 0, CLUSTER_M=2)
SLOWER = samples.config(BLOCK_SIZE_M=16, BLOCK_SIZE_N=16, BLOCK_SIZE_K=32)
WINNERS = {
    SIZE: WINNER,
    BIASED: replace(WINNER, SWAP_AB=1),
    SPLIT: replace(WINNER, SPLIT_K=3),
    UNEQUAL: replace(WINNER, SPLIT_K=3, SWAP_AB=1),
}
CALLS = Path(__file__).with_name("cute_calls.py")
REFUSED = """
import json, sys
import torch, tuned_gemm
tuned_gemm._check_device = lambda tensors: None
tuned_gemm._INTERPRETED = False
for M, N, K, biased, layout_a, layout_b in json.loads(sys.argv[1]):
    more = {"bias": torch.ones(N).half(), "alpha": 2.0} if biased else {}
    try:
        a = torch.ones(M, K) if layout_a == "row" else torch.ones(K, M).T
        b = torch.ones(K, N) if layout_b == "row" else torch.ones(N, K).T
        tuned_gemm.matmul(a.half(), b.half(), **more)
    except ValueError as error:
        print(error)
"""


def row(problem: GemmProblem, config: KernelConfig, us: float = 10.0, **substitute: Any) -> Choice:
    other = Substitute(SLOWER, 12.5, Verified.TRUE)
    return replace(choice(problem, config), median_us=us, substitute=replace(other, **substitute))


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(extra, "installed", dict)
    monkeypatch.delenv(library.RUNTIME_VARIABLE, raising=False)
    path = tmp_path / "tuned.yaml"
    rows = [row(problem, config) for problem, config in WINNERS.items()]
    write_choices(path, replace(HEADER), [*rows, choice(replace(SIZE, m=256), SLOWER)])
    return path


def compiled_before(tmp_path: Path) -> None:
    """What a run leaves in the user's cache."""
    target = samples.device("sm_90").target
    cache = kernel_cache.folder(language_of("triton").cache_name(samples.TEMPLATES), tmp_path)
    folder = tmp_path / "scripts"
    folder.mkdir()
    scripts = write_scripts(samples.TEMPLATES, folder, list(WINNERS.items()), target)
    for problem, config in WINNERS.items():
        script = load_script(str(folder / scripts[config.family, problem.signature].file))
        size = problem.m, problem.n, problem.k, problem.batch
        source = Source.of(script.kernel_of(script.CONFIGS[config.name], size))
        library.put(cache, source.entry, ((library.NEEDS, b"{}"), (library.LIBRARY, source.name.encode())))


def sizes_of(problems: Sequence[GemmProblem]) -> str:
    return json.dumps([[p.m, p.n, p.k, p.bias, p.layout_a, p.layout_b] for p in problems])


def run(module: Path, problems: Sequence[GemmProblem], **env: str) -> dict[str, Any]:
    path = os.pathsep.join([str(module.parent), *([env.pop("path")] if "path" in env else [])])
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path, **env}
    done = subprocess.run([sys.executable, str(CALLS), sizes_of(problems)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_winners_are_launched_from_beside_the_module_and_replaced_where_they_cannot_be(
    tuned: Path, tmp_path: Path
) -> None:
    compiled_before(tmp_path)
    made = write_module(tuned, tmp_path / "out" / "tuned_gemm.py")
    assert (made.num_sizes, made.num_cute, made.left_out, made.costs) == (5, 4, (), ())
    objects = sorted(path.name for path in (tmp_path / "out" / "tuned_gemm_cute").iterdir())
    assert len(objects) == 4 and all(name.startswith("gemm_cute_") for name in objects)
    assert not [path for path in (tmp_path / "out").rglob("*") if library.RUNTIME in path.name]
    other = replace(SIZE, k=128)
    everything = [*WINNERS, other]
    found = run(made.path, everything, path=str(STAND_IN), **{library.RUNTIME_VARIABLE: "libm.so.6"})
    assert found["wrong"] == [] and found["said"] == []
    assert sorted(found["calls"]) == sorted(2 * [name.rpartition("_")[0] for name in objects])  # not for the other
    # Without the launching package, without the runtime, without the libraries: once said, and right all the same.
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "tvm_ffi.py").write_text("raise ImportError('not installed')")
    without = [
        run(made.path, everything, path=str(tmp_path / "none")),
        run(made.path, everything, path=str(STAND_IN), **{library.RUNTIME_VARIABLE: str(tmp_path / "none.so")}),
    ]
    for path in (tmp_path / "out" / "tuned_gemm_cute").iterdir():
        path.unlink()
    without.append(run(made.path, [SIZE], path=str(STAND_IN), **{library.RUNTIME_VARIABLE: "libm.so.6"}))
    for one in without:
        assert one["wrong"] == [] and one["calls"] == []
        (said,) = one["said"]
        assert "1.25 to 1.25 times" in said


def test_without_compiled_kernels_the_module_takes_substitutes_and_says_what_they_cost(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(tuned), "--to", "module", "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    (cost,) = (line for line in said.err.splitlines() if "in Triton" in line)
    assert "1.25 times" in cost and "and 1 more" in cost and "pip install" in cost
    assert main(["export", str(tuned), "--to", "module", "-o", str(tmp_path / "out"), "--verbose"]) == 0
    said_more = capsys.readouterr().err.splitlines()
    assert len([line for line in said_more if "1.25 times the time of gemm_cute_BM" in line]) == 4
    assert not (tmp_path / "out" / "tuned_gemm_cute").exists()
    assert "CuTe" not in (tmp_path / "out" / "tuned_gemm.py").read_text(encoding="utf-8")


@pytest.mark.skipif(importlib.util.find_spec("quack") is None, reason="CuTe DSL is not installed")
def test_with_the_extra_kernels_are_compiled_for_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And launched up to the check of arguments: a tensor on the CPU is refused by its place, not by its shape."""
    monkeypatch.setenv("GEMM_TUNER_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "tuned.yaml"
    write_choices(path, replace(HEADER), [row(problem, config) for problem, config in WINNERS.items()])
    made = write_module(path, tmp_path / "out" / "tuned_gemm.py")
    assert (made.num_cute, made.costs) == (4, ())
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(made.path.parent)}
    command = [sys.executable, "-c", REFUSED, sizes_of(list(WINNERS))]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout.count("expected device_type=cuda") == 4, done.stdout + done.stderr


def test_the_same_module_again_is_unchanged_and_a_lost_library_is_written_anew(tuned: Path, tmp_path: Path) -> None:
    compiled_before(tmp_path)
    out = tmp_path / "out" / "tuned_gemm.py"
    assert write_module(tuned, out, dry_run=True).differs and not out.parent.exists()
    assert write_module(tuned, out).differs and not write_module(tuned, out).differs
    gone = next((tmp_path / "out" / "tuned_gemm_cute").iterdir())
    gone.unlink()
    assert write_module(tuned, out, dry_run=True).differs and not gone.exists()
    assert write_module(tuned, out).differs and gone.exists()


def test_libraries_that_the_module_no_longer_names_are_removed(tuned: Path, tmp_path: Path) -> None:
    """And nothing else of the folder."""
    compiled_before(tmp_path)
    out = tmp_path / "out" / "tuned_gemm.py"
    write_module(tuned, out)
    folder = tmp_path / "out" / "tuned_gemm_cute"
    (folder / "gemm_cute_of_mine.so").touch()
    write_choices(tuned, replace(HEADER), [row(SIZE, WINNER)])
    assert write_module(tuned, out, dry_run=True).differs and len(list(folder.iterdir())) == 5
    assert write_module(tuned, out).num_cute == 1
    (left,) = (path.name for path in folder.iterdir() if path.name != "gemm_cute_of_mine.so")
    assert left in out.read_text(encoding="utf-8")


def test_a_winner_that_packs_is_replaced_by_its_substitute(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    packed = replace(WINNER, family="gemm_cute_packed", PACK_BLOCK=2048)
    size = replace(SIZE, k=63)
    write_choices(path, replace(HEADER), [row(size, packed)])
    made = write_module(path, tmp_path / "module.py")
    assert (made.num_sizes, made.num_cute, made.left_out) == (1, 0, ())
    (cost,) = made.costs
    assert cost.problem == size and cost.times == 1.25 and "packs" in cost.why


def test_a_substitute_that_may_not_be_exported_leaves_its_size_out(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    rows = [row(SIZE, WINNER, verified=Verified.FALSE), choice(SPLIT, WINNERS[SPLIT]), choice(replace(SIZE, m=256))]
    write_choices(path, replace(HEADER), rows)
    made = write_module(path, tmp_path / "module.py", trust=Trust())
    assert made.num_sizes == 1 and [one.size for one in made.left_out] == [SIZE.key, SPLIT.key]
    assert "no substitute" in made.left_out[1].reason


def test_a_winner_that_was_not_checked_is_said_to_be_so(tuned: Path, tmp_path: Path) -> None:
    """Also where its substitute was."""
    compiled_before(tmp_path)
    unchecked = replace(row(SIZE, WINNER), verified=Verified.FALSE)
    write_choices(tuned, replace(HEADER), [unchecked, row(SPLIT, WINNERS[SPLIT], verified=Verified.FALSE)])
    assert write_module(tuned, tmp_path / "none.py").num_sizes == 0
    made = write_module(tuned, tmp_path / "module.py", trust=Trust(unverified=True))
    assert made.num_cute == 2
    said = {SIZE: "in CuTe DSL not checked", SPLIT: "in Triton not checked"}
    assert dict(made.remarks) == said
    text = made.path.read_text(encoding="utf-8")
    assert all(f"{problem.key}: {one}" in text for problem, one in said.items())


def test_of_a_size_that_is_there_twice_the_row_that_was_left_out_gives_no_kernel(tuned: Path, tmp_path: Path) -> None:
    compiled_before(tmp_path)
    unchecked = replace(row(SIZE, WINNER), verified=Verified.FALSE)
    write_choices(tuned, replace(HEADER), [choice(SIZE, SLOWER), unchecked])
    made = write_module(tuned, tmp_path / "module.py")
    assert [one.size for one in made.left_out] == [SIZE.key]
    assert (made.num_sizes, made.num_cute) == (1, 0)
