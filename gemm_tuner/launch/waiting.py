"""``python waiting.py LANGUAGE SCRIPTS_DIR``: a launcher that is started before there is a plan. It imports what takes
seconds, then reads the path of one plan from standard input or a named pipe, and executes it. Before that, a line
``load PATH`` lets it load the scripts of a plan, and ``open PATH`` open the GPU for finals or a check like that one and
read the kernels of its entries. Files beside that plan say how far it is."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import os
import select
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import IO

from gemm_tuner.languages.scripts import load_script
from gemm_tuner.launch import main as launcher
from gemm_tuner.launch import opening, verify
from gemm_tuner.launch.loading import LoadedAhead
from gemm_tuner.launch.plan import LOAD, LOADED_FILE, OPEN, OPENED_FILE, VERIFY, Plan
from gemm_tuner.launch.processor import processor_of
from gemm_tuner.launch.reading_ahead import read_ahead
from gemm_tuner.system.processes import exit_with_tuner
from gemm_tuner.system.short_end import end_quickly


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Wait for one plan, and run its kernels.")
    parser.add_argument("language", help="the package of the kernels' language")
    parser.add_argument("scripts_dir", type=Path, help="the folder of the plan's scripts")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="where the plan will run")
    parser.add_argument("--pipe", type=Path, help="a named pipe to read from in place of standard input")
    parser.add_argument("--turn", type=Path, help="as of a launcher that is started with its plan")
    arguments = parser.parse_args(argv)
    sys.path[0] = str(arguments.scripts_dir)  # as of the script that it stands in for
    exit_with_tuner()
    processor = processor_of(arguments.device)  # imports torch, if the device needs it
    with opening.ends_process_after(opening.LIMIT_S):
        processor.start_driver()
    with contextlib.suppress(ImportError):  # a language need not be a package of Python
        importlib.import_module(arguments.language)
    load, ahead = functools.cache(load_script), LoadedAhead()
    # Unbuffered, so that a line that has come is seen in the pipe until it is read.
    with open(arguments.pipe or sys.stdin.fileno(), "rb", buffering=0, closefd=bool(arguments.pipe)) as stream:
        plan = line_of(stream)
        while plan.startswith((f"{LOAD} ", f"{OPEN} ")):
            word, _, path = plan.partition(" ")
            if word == LOAD:
                load_for(Path(path), arguments, load)
            else:
                open_for(Path(path), arguments, load, stream, ahead)
            plan = line_of(stream)
    turn = ["--turn", str(arguments.turn)] if arguments.turn else []
    return launcher.main(["--plan", plan, *turn], str(arguments.scripts_dir), load, ahead) if plan else 0


def line_of(stream: IO[bytes]) -> str:
    return os.fsdecode(stream.readline()).rstrip("\n")


def load_for(path: Path, arguments: argparse.Namespace, load: Callable[[str], ModuleType]) -> list[ModuleType]:
    """The scripts of a plan, loaded; their kernels are not compiled here."""
    plan = Plan.read(path)
    scripts = launcher.load_scripts(plan, path, arguments.scripts_dir, load)
    launcher.language_for(plan).start_launcher(plan.device)
    (path.parent / LOADED_FILE).touch()
    return scripts


def open_for(
    path: Path,
    arguments: argparse.Namespace,
    load: Callable[[str], ModuleType],
    stream: IO[bytes],
    ahead: LoadedAhead,
) -> None:
    """Opens the GPU for finals or a check, unless it is open; reads kernels of the latter until the next line comes."""
    plan, opened = Plan.read(path), path.parent / OPENED_FILE
    make = partial(verify.prepare, plan)
    if plan.stage != VERIFY:
        scripts = load_for(path, arguments, load)
        make = partial(opening.load_ahead, plan, scripts, launcher.language_for(plan), ahead)
    if not opened.exists():
        opening.open_ahead(plan, path, arguments.turn, make)
    opened.touch()
    with contextlib.suppress(Exception):  # the check itself says so
        read_ahead(plan, load_for(path, arguments, load), stop=lambda: bool(select.select([stream], [], [], 0)[0]))


if __name__ == "__main__":
    end_quickly()
    status = main(sys.argv[1:])
    if status:  # a plain return lets a profiler inside the process (proton) write its report
        sys.exit(status)
