"""``python -m gemm_tuner.launch.resident SCRIPTS_DIR``: runs plan after plan in one process, and times them itself.

Reads folders from standard input, one a line; each holds a plan.json. What is slow to import is imported before the
first line is read; scripts stay loaded. Proton (the profiler in Triton) runs in this process: one session a plan, whose
trace lies beside the plan when its journal says that it has finished.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.languages.scripts import load_script
from gemm_tuner.launch.main import load_scripts, run_journalled
from gemm_tuner.launch.plan import EXIT_CANNOT_WRITE, STOP_FILE, Plan
from gemm_tuner.launch.processor import processor_of
from gemm_tuner.system.processes import exit_with_tuner


def main(argv: list[str]) -> int:
    exit_with_tuner()
    processor_of("cuda")  # imports torch, and touches no GPU
    import triton.profiler

    load = functools.cache(load_script)
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        try:
            plan = Plan.read(folder / "plan.json")
            scripts = load_scripts(plan, folder / "plan.json", Path(argv[0]), load)
            recording = session(triton.profiler, folder / "trace")
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


@contextlib.contextmanager
def session(proton: Any, stem: Path) -> Iterator[None]:
    """A session of proton while the block runs, written to ``stem`` with proton's ending."""
    proton.start(str(stem))
    try:
        yield
    finally:
        proton.finalize()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
