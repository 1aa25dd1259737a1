"""Runs of ``tune_gemm.py spec`` with real programs."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from screens import Screen

from gemm_tuner.cli import main as cli
from gemm_tuner.cli.commands import Consoles

# A stand-in of Modular's Bench: its time and its case follow from what it is given. It notes its arguments.
BENCH = """\
#!/bin/sh
echo "$@" >> calls
for word in "$@"; do case $word in *=*) eval "${word#--}";; esac; done
echo "| name | met (ms) | iters | Arithmetic (GFLOPS/s) |"
echo "| ---- | -------- | ----- | --------------------- |"
echo "| gemm/M=${M}/S=${S} | 0.${M}${S} | 2 | 17${S}.123456789 |"
"""


class Run:
    """The command in a folder, as on a terminal of 80 columns unless ``width`` is 0."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch, self.setenv = folder, monkeypatch, monkeypatch.setenv
        monkeypatch.chdir(folder)
        self.lines: list[str] = []
        self.log: list[str] = []

    def __call__(self, *words: str, spec: str = "", width: int = 80) -> int:
        if spec:
            (self.folder / "t.yaml").write_text(spec, encoding="utf-8")
        out, log = Screen(width), Screen(0)
        self._patch.setattr(cli, "consoles", lambda: Consoles(log.console, out.console))
        status = cli.main(["spec", "t.yaml", *words])
        self.lines, self.log = out.lines, log.lines
        return status

    @property
    def said(self) -> str:
        """All that was printed, without its line ends."""
        return " ".join(" ".join(self.lines).split())

    def table(self, name: str = "t.csv") -> list[dict[str, str]]:
        with (self.folder / name).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


def script(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


METRIC = 'metric: {regex: "met=([-+.a-zA-Z0-9]+)"}\n'
