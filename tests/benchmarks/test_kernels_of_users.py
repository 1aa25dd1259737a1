"""The page of users' kernels: where the two times of a row come from, and what a failure costs."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import samples

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Verified
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.store.size_rows import Row

TABLE = """name,family,BLOCK,num_warps,status,screen_us,finals_us,message
f_BLOCK64_num_warps1,f,64,1,ok,11.0,10.0,
f_BLOCK64_num_warps2,f,64,2,ok,12.0,12.5,
f_BLOCK64_num_warps4,f,64,4,ok,22.0,,
f_BLOCK64_num_warps8,f,64,8,ok,12.0,,same code as f_BLOCK64_num_warps2
f_BLOCK64_num_warps16,f,64,16,spills,,,8 bytes
"""
CHOICES = """
import json
for warps in (1, 4):
    print(json.dumps({"config": {"BLOCK": 64, "num_warps": warps, "num_stages": 3}, "seconds": 2.0}))
"""


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, which is in no package."""
    spec = importlib.util.spec_from_file_location("kernels_of_users", samples.ROOT / "benchmarks/kernels_of_users.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(module)
    return module


def row(cols: int, warps: int = 1) -> Row:
    problem = KernelProblem("f", "0" * 12, (("cols", cols),))
    config = PlainConfig("f", (("BLOCK", 64), ("num_warps", warps)))
    return Row(problem, config, {}, "tuned.yaml", Verified.TRUE)


def write_table(folder: Path, *rows: Row) -> None:
    (folder / "configs").mkdir(exist_ok=True)
    for one in rows:
        (folder / "configs" / f"{one.problem.key}.csv.gz").write_bytes(gzip.compress(TABLE.encode()))


@pytest.mark.parametrize(
    ("warps", "found"), [(2, ("finals", 10.0, 12.5)), (4, ("screen", 11.0, 22.0)), (8, ("finals", 10.0, 12.5))]
)
def test_both_times_are_from_one_stage_of_the_configuration_that_was_timed(
    users: ModuleType, tmp_path: Path, warps: int, found: tuple[str, float, float]
) -> None:
    write_table(tmp_path, row(8))
    theirs = {"BLOCK": 64, "num_warps": warps, "num_stages": 3}
    assert users.compared(tmp_path, row(8), theirs) == found


@pytest.mark.parametrize(("warps", "why"), [(16, "spills"), (32, "not among")])
def test_a_choice_without_a_time_is_named(users: ModuleType, tmp_path: Path, warps: int, why: str) -> None:
    write_table(tmp_path, row(8))
    with pytest.raises(users.Failed, match=why):
        users.compared(tmp_path, row(8), {"BLOCK": 64, "num_warps": warps})


def test_the_page_has_a_row_a_case_and_the_seconds_of_all(
    users: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = row(8), row(16)
    write_table(tmp_path, *rows)
    chooser = tmp_path / "choose.py"
    chooser.write_text(CHOICES)
    monkeypatch.setattr(users, "__file__", str(chooser))
    page = users.Page(tmp_path / "page.md")
    page.say_kernel(users.ALL[0], tmp_path, users.Tuned(rows, {}, tmp_path, 30.0, 0.5))
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.path.read_text().splitlines()]
    assert [dict(zip(users.HEAD, line, strict=True))["stage"] for line in cells] == ["finals", "screen"]
    assert [line[-3:-1] for line in cells] == [["30.0", "4.0"], ["", ""]]
    assert page.ratios == [1.0, 2.0] and not page.failed


def test_without_a_gpu_each_kernel_and_language_has_its_row(
    users: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_gpu(*given: object) -> None:
        raise users.Failed("no GPU")

    monkeypatch.setattr(users, "tuned", no_gpu)
    monkeypatch.setattr(users.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["kernels_of_users.py", str(tmp_path / "page.md"), "--work", str(tmp_path)])
    assert users.main() == 1
    text = (tmp_path / "page.md").read_text()
    assert all(f"| {one.file} | no GPU |" in text for one in users.ALL) and text.count("| not installed") == 2


EXAMPLE = """
import sys
print("one of several lines")
print(" ".join(["best:", *sys.argv[1:3]]))
"""


@pytest.mark.parametrize(("file", "title"), [("tilelang_gemm", "TILELANG"), ("cute_quack", "CUTE")])
def test_a_page_may_be_of_one_language_with_nvidias_file_beside(
    users: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, title: str
) -> None:
    (tmp_path / "cute_gemm.py").write_text(EXAMPLE)
    monkeypatch.setattr(users, "EXAMPLES", tmp_path)
    monkeypatch.setattr(users.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("GEMM_TUNER_CUTE_RUNTIME", "")
    words = [str(tmp_path / "page.md"), "--only", file, "--kernel_from", "gemm.py"]
    monkeypatch.setattr(sys, "argv", ["kernels_of_users.py", *words])
    assert users.main() == 0
    rows = [line for line in (tmp_path / "page.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert [line.split(" | ")[0] for line in rows] == [f"| {getattr(users, title)}", f"| {users.NVIDIAS}"]
    assert rows[1].split(" | ")[1] == "best: --kernel_from gemm.py"


def test_triton_autotunes_process_that_fails_says_its_last_line(users: ModuleType, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print(1); print('no memory', file=sys.stderr); sys.exit(7)"]
    with pytest.raises(users.Failed, match="status 7: no memory"):
        users.last_lines(command, {}, "it", 1)
    command[-1] = f"print(1); print({json.dumps('two')!r})"
    assert users.last_lines(command, {}, "it", 1) == ['"two"']
