"""A process that imports torch before it is known what it launches."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from process_samples import ends

from gemm_tuner.measure.torch_ahead import TorchAhead
from gemm_tuner.system.processes import Watched

SHOWS = """
import json, os, sys
assert "torch" in sys.modules and "triton.profiler" in sys.modules
shown = {"argv": sys.argv, "path": sys.path[0], "pid": os.getpid(), "name": os.environ.get("SHOWN"),
         "gone": "GONE" in os.environ, "lines": [line.rstrip("\\n") for line in sys.stdin]}
print(json.dumps(shown))
sys.exit(7)
"""


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[TorchAhead]:
    monkeypatch.setenv("GONE", "here at the start, and not for the launcher")
    begun = TorchAhead.begin()
    yield begun
    begun.end()


def become(ahead: TorchAhead, folder: Path) -> Watched | None:
    (folder / "shows.py").write_text(SHOWS)
    environment = {**{k: v for k, v in os.environ.items() if k != "GONE"}, "SHOWN": "é\n"}
    return ahead.become([str(folder / "shows.py"), "a", "b c"], environment, folder / "log")


def test_it_becomes_the_program_that_is_asked_for_once(ahead: TorchAhead, tmp_path: Path) -> None:
    process = become(ahead, tmp_path)
    assert process is not None and process.log_path == tmp_path / "log"
    process.tell("first line")
    process.close_stdin()
    assert process.wait(lambda: 0, 240.0).exit_status == 7
    shown = json.loads((tmp_path / "log").read_text())
    assert shown.pop("pid") != os.getpid()
    assert shown == {
        "argv": [str(tmp_path / "shows.py"), "a", "b c"],
        "path": str(tmp_path),
        "name": "é\n",
        "gone": False,
        "lines": ["first line"],
    }
    assert become(ahead, tmp_path) is None


def test_it_ends_with_a_command_that_needs_no_launcher(tmp_path: Path) -> None:
    begun = TorchAhead.begin()
    assert begun._process is not None
    pid = begun._process._process.pid
    begun.end()
    assert ends(pid) and become(begun, tmp_path) is None


def test_where_torch_cannot_be_imported_another_process_has_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no CUDA runtime')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    begun = TorchAhead.begin()
    assert begun._process is not None
    assert begun._process.wait(lambda: 0, 240.0).exit_status
    assert become(begun, tmp_path) is None
