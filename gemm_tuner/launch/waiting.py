"""``python waiting.py LANGUAGE SCRIPTS_DIR``: a launcher that is started before there is a plan. It imports what takes
seconds, then reads the path of one plan from standard input or a named pipe, and executes it. A line ``open PATH``
before that lets it open the GPU, for a check like that plan's."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from pathlib import Path

from gemm_tuner.launch import main as launcher
from gemm_tuner.launch import opening
from gemm_tuner.launch.plan import OPEN
from gemm_tuner.launch.processor import processor_of
from gemm_tuner.system.processes import exit_with_tuner


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
    processor_of(arguments.device)  # imports torch, if the device needs it
    with contextlib.suppress(ImportError):  # a language need not be a package of Python
        importlib.import_module(arguments.language)
    with arguments.pipe.open() if arguments.pipe else contextlib.nullcontext(sys.stdin) as stream:
        plan = stream.readline().rstrip("\n")
        while plan.startswith(f"{OPEN} "):
            opening.open_ahead(Path(plan.removeprefix(f"{OPEN} ")), arguments.turn)
            plan = stream.readline().rstrip("\n")
    turn = ["--turn", str(arguments.turn)] if arguments.turn else []
    return launcher.main(["--plan", plan, *turn], str(arguments.scripts_dir)) if plan else 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    if status:  # a plain return lets a profiler inside the process (proton) write its report
        sys.exit(status)
