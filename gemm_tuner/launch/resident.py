"""``python resident.py SCRIPTS_DIR``: executes many plans in one process, timed by proton inside it.

Standard input has one folder per line; each contains a plan.json. Slow imports are done before the first line is read,
and scripts stay loaded. Proton (the profiler in Triton) runs in this process, with one session per plan; its trace is
complete in the plan's folder before the journal gets its ``finished`` event. A line ``open PATH`` lets it open the GPU
for a plan like the one in that file, which it then removes, and load that plan's scripts.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

from gemm_tuner.core.errors import UserError
from gemm_tuner.languages.scripts import load_script
from gemm_tuner.languages.triton import proton_session
from gemm_tuner.launch.main import language_for, load_scripts, run_journalled
from gemm_tuner.launch.opening import make_once, open_ahead
from gemm_tuner.launch.plan import EXIT_CANNOT_WRITE, OPEN, STOP_FILE, Plan
from gemm_tuner.launch.processor import processor_of
from gemm_tuner.system.processes import exit_with_tuner


def main(argv: list[str]) -> int:
    sys.path[0] = argv[0]  # as of the scripts that finals start
    exit_with_tuner()
    processor_of("cuda")  # imports torch without using the GPU
    proton_session.load()

    load = functools.cache(load_script)
    for line in sys.stdin:
        if line.startswith(f"{OPEN} "):
            open_for(Path(line.removeprefix(f"{OPEN} ").rstrip("\n")), Path(argv[0]), load)
            continue
        folder = Path(line.rstrip("\n"))
        try:
            plan = Plan.read(folder / "plan.json")
            scripts = load_scripts(plan, folder / "plan.json", Path(argv[0]), load)
            recording = proton_session.session(folder / "trace")
            status = run_journalled(plan, scripts, folder / "journal.jsonl", folder / STOP_FILE, recording=recording)
        except UserError as error:
            print(error.one_line(), file=sys.stderr)
            return error.exit_status
        except OSError as error:
            print(f"{folder}: {error.strerror or error}", file=sys.stderr)
            return EXIT_CANNOT_WRITE
        if status:
            return status
    return 0


def open_for(path: Path, scripts_dir: Path, load: Callable[[str], ModuleType]) -> None:
    plan = Plan.read(path)
    language = language_for(plan)
    language.start_launcher(plan.device)
    open_ahead(plan, path, None, partial(make_once, plan, language))
    path.unlink()
    with contextlib.suppress(Exception):  # the plan itself says so
        load_scripts(plan, path, scripts_dir, load)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
