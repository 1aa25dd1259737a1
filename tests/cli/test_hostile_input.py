"""What a person hands over is data: nothing runs it, and names come from checked numbers only. ruff sees to it that no
source unpickles, evaluates or starts a shell (.ruff.toml)."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from samples import ROOT, archs, load_sizes
from samples import config as make_config

from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.space import space
from gemm_tuner.store import results

FOLDERS = ("gemm_tuner", "rules", "benchmarks")
SOURCES = [ROOT / "tune_gemm.py", *sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}(_[A-Z]+[0-9]+)+")


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def called(node: ast.Call) -> str:
    """The dotted name that a call is made by, as written."""
    return ast.unparse(node.func)


def test_commands_are_lists_of_words() -> None:
    """A text as the command of a subprocess would be split by nobody, or by a shell; none says ``shell=``. (A program
    of a spec that says ``shell: true`` is run as [sh, -c, ...].)"""
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES}
    for path, text in texts.items():
        for node in calls(ast.parse(text)) if "subprocess" in text or "psutil" in text else ():
            if called(node) in ("subprocess.run", "subprocess.Popen", "subprocess.check_output") and node.args:
                assert not isinstance(node.args[0], (ast.Constant, ast.JoinedStr)), f"{path}, line {node.lineno}"
            if called(node).startswith(("subprocess.", "psutil.")):
                assert "shell" not in {keyword.arg for keyword in node.keywords}, f"{path}, line {node.lineno}"


HOSTILE_CONFIGS: list[dict[str, object]] = [
    {"family": "../../x"},
    {"family": "gemm_tile; rm -rf /"},
    {"family": "gemm_tile\n"},
    {"family": "Gemm"},
    {"BLOCK_SIZE_M": "128"},
    {"BLOCK_SIZE_M": 128.0},
    {"BLOCK_SIZE_M": True},
    {"BLOCK_SIZE_M": -128},
    {"num_stages": 2**62},
    {"SPLIT_K": "1; import os"},
]
CONFIG: dict[str, object] = {**make_config().options(), "family": "gemm_tile"}


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    from gemm_tuner.system.documents import dump_yaml

    path.write_text(dump_yaml(rows))
    return path


@pytest.mark.parametrize("change", HOSTILE_CONFIGS, ids=repr)
def test_a_kernels_name_is_built_from_checked_numbers(tmp_path: Path, change: dict[str, object]) -> None:
    size: dict[str, object] = {"M": 1, "N": 1, "K": 1}
    (entry,) = load_sizes(write(tmp_path / "good.yaml", [{**size, **CONFIG}]), Defaults()).entries
    assert entry.config is not None and NAME.fullmatch(entry.config.name) and entry.config.name.isidentifier()
    with pytest.raises(UserError):
        load_sizes(write(tmp_path / "bad.yaml", [{**size, **CONFIG, **change}]), Defaults())


@pytest.mark.parametrize("arch", archs("sm_90", "gfx942"))
def test_every_name_of_the_shipped_spaces_is_an_identifier(arch: str) -> None:
    frame = space.frame(space.load(ROOT / "rules" / f"space_{arch}.yaml", arch))
    names = space.names(frame.sample(2000, random_state=0))
    assert names.str.fullmatch(NAME.pattern).all()


def folder(path: Path) -> None:
    path.mkdir()


HOSTILE_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "bomb of aliases": (lambda path: path.write_text("a: &a [x]\nb: [*a, *a]\n"), "anchors and aliases"),
    "deep": (lambda path: path.write_text("[" * 10**6), "nested too deeply"),
    "many": (lambda path: path.write_text("- {M: 1}\n" * 1_700_000), "too many values"),
    "large": (lambda path: path.write_text(" " * (17 << 20)), "too large"),
    "python tag": (lambda path: path.write_text("- !!python/object/apply:os.system ['touch owned']\n"), "not accepted"),
    "template": (lambda path: path.write_text("- {M: '{{ 7*7 }}', N: 1, K: 1}\n"), "M is '{{ 7*7 }}'"),
    "2^62": (lambda path: path.write_text("- {M: 4611686018427387904, N: 1, K: 1}\n"), "M is 4611686018427387904"),
    "line break": (lambda path: path.write_text('- {M: 1, N: 1, K: 1, dtype: "a\\nb"}\n'), "dtype is 'a\\nb'"),
    "escape": (lambda path: path.write_text('- {M: 1, N: 1, K: 1, "\\e[31m": 1}\n'), "'\\x1b[31m'"),
    "path": (lambda path: path.write_text("- {M: ../../x, N: 1, K: 1}\n"), "M is '../../x'"),
    "nul": (lambda path: path.write_bytes(b"- {M: 1\0}\n"), "not valid YAML"),
    "UTF-16": (lambda path: path.write_bytes("- {M: 1}\n".encode("utf-16")), "not UTF-8"),
    "Latin-1": (lambda path: path.write_bytes(b"# gr\xf6\xdfe\n- {M: 1}\n"), "not UTF-8"),
    "nan": (lambda path: path.write_text("- {M: .nan, N: 1, K: 1}\n"), "M is nan"),
    "infinity": (lambda path: path.write_text("- {M: .inf, N: 1, K: 1}\n"), "M is inf"),
    "tab": (lambda path: path.write_text("-\t{M: 1}\n\t- 2\n"), "not valid YAML"),
    "folder": (folder, "Is a directory"),
    "pipe": (os.mkfifo, "it is a pipe"),
    "endless": (lambda path: path.symlink_to("/dev/zero"), "or a device"),
    "itself": (lambda path: path.symlink_to(path), "symbolic links"),
}


# "many" is read in 10 s; the test of memory below reads one such too.
@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.grid] if name == "many" else [])
        for name, case in HOSTILE_FILES.items()
    ],
)
def test_a_hostile_size_file_ends_with_one_line_and_writes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Path], object],
    words: str,
) -> None:
    path, here = tmp_path / "sizes.yaml", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    make(path)
    assert main(["--gemm_size_file", str(path), "--dry_run", "--arch", "sm_90"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert words in line and str(path) in line and line.isprintable()
    assert not list(here.iterdir())


def test_a_results_file_cut_inside_its_last_line_is_refused(tmp_path: Path) -> None:
    """K of 4096 cut to 40 would be another size."""
    path = tmp_path / "tuned.yaml"
    path.write_bytes((ROOT / "tests" / "data" / "h200_nsys_recording" / "tuned.yaml").read_bytes()[:-1])
    with pytest.raises(UserError, match="ends inside a line"):
        results.read(path)


def test_a_results_file_cut_between_rows_is_refused(tmp_path: Path) -> None:
    whole = (ROOT / "tests" / "data" / "h200_nsys_recording" / "tuned.yaml").read_text()
    begins = [at for at in range(len(whole)) if whole.startswith(("\n- M:", "\nwithout_config:"), at)]
    path = tmp_path / "tuned.yaml"
    for at in begins[1:]:
        path.write_text(whole[: at + 1])
        with pytest.raises(UserError, match="cut short"):
            results.read(path)
    path.write_text(whole)
    assert len(results.read(path).rows) == len(begins) - 1
    path.write_text("format_version: 2\nconfigs: []\n")  # by hand
    assert results.read(path).rows == ()


@pytest.mark.parametrize("part", [10, pytest.param(1, marks=pytest.mark.grid)])
def test_the_memory_of_hostile_files_is_bounded(tmp_path: Path, part: int) -> None:
    """In a process of 2 GiB of addresses, a file of the largest size ends with a UserError and not a MemoryError. part:
    a tenth of the size, of the values, and of the addresses beside those of the libraries."""
    pytest.importorskip("resource")
    path = tmp_path / "sizes.yaml"
    code = (
        "import psutil, resource, sys\n"
        "from gemm_tuner.system import documents\n"
        "from gemm_tuner.core.errors import UserError\n"
        "from gemm_tuner.store.sizes import load_file, sizes_of\n"
        "from gemm_tuner.gemm.problem_keys import Defaults\n"
        "libraries, part = psutil.Process().memory_info().vms, int(sys.argv[2])\n"
        "limit = libraries + ((2 << 30) - libraries) // part\n"
        "documents.MAX_NODES //= part\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try:\n"
        "    sizes_of(load_file(sys.argv[1]), Defaults())\n"
        "except UserError as error:\n"
        "    print(error.one_line()[:300])\n"
    )
    for text in ("- {M: 1, N: 1, K: 1, x: 1}\n" * 600_000, "- '" + "x" * (16 << 20)):
        path.write_text(text[: (16 << 20) // part])
        words = [sys.executable, "-c", code, str(path), str(part)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0 and str(path) in done.stdout, done.stderr[-2000:]
