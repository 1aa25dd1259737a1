"""What a command line comes to, or is answered with."""

from __future__ import annotations

import argparse

import pytest

from gemm_tuner.cli.main import main, run_options_from
from gemm_tuner.cli.options import build_parser
from gemm_tuner.cli.size_flags import read_sizes
from gemm_tuner.pipeline.run_options import RunOptions

ONE = ["-m", "64", "-n", "64", "-k", "64"]


def answer(capsys: pytest.CaptureFixture[str], argv: list[str]) -> tuple[int, str]:
    """The exit status and the one line on standard error."""
    status = main(argv)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("tune_gemm.py: ")
    assert lines[0].isprintable()
    return status, lines[0]


def parsed(*argv: str) -> argparse.Namespace:
    return build_parser().parse(list(argv))


def asked(*argv: str) -> RunOptions:
    arguments = parsed(*argv)
    return run_options_from(arguments, read_sizes(arguments, None))  # type: ignore[arg-type]
