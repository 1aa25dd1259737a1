"""``python waiting.py LANGUAGE SCRIPTS_DIR``: a launcher that is started before there is a plan. It
imports what takes seconds, then reads the path of one plan from standard input and executes it."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path

from gemm_tuner.launch import main as launcher
from gemm_tuner.launch.processor import processor_of
from gemm_tuner.system.processes import exit_with_tuner


def main(argv: list[str]) -> int:
    language, scripts_dir = argv
    sys.path[0] = scripts_dir  # as of the script that it stands in for
    exit_with_tuner()
    processor_of("cpu")  # imports torch
    with contextlib.suppress(ImportError):  # a language need not be a package of Python
        importlib.import_module(language)
    plan = sys.stdin.readline().rstrip("\n")
    return launcher.main(["--plan", plan], str(Path(scripts_dir))) if plan else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
