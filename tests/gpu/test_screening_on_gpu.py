"""Screening in one launcher process a GPU, by proton's own sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemm_tuner.cli import main as cli
from gemm_tuner.launch.journal import Process, read_journal

pytestmark = pytest.mark.gpu


def test_rounds_are_timed_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    size = ("-m", "512", "-n", "1024", "-k", "2048", "--dtype", "bf16")
    assert cli.main([*size, "--screen_with", "in_process", "--keep", "-o", "tuned.yaml"]) == 0
    assert "screening goes on" not in capsys.readouterr().err
    journals = [read_journal(path) for path in tmp_path.glob("results/*/raw/*-screen/start*/journal.jsonl")]
    assert len(journals) > 1
    assert len({event.identity for journal in journals for event in journal if isinstance(event, Process)}) == 1
