"""Tries a reference with a small case in a separate process (which needs torch) before anything is compiled, so that a
reference with a wrong shape is found in seconds and not after all configurations were timed."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from gemm_tuner.core.workload import problem_from_dict
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.system.child_output import run_child
from gemm_tuner.system.installation import import_path
from gemm_tuner.system.processes import module_command

LIMIT_S = 300.0
EXIT_FAULT, EXIT_RAISES = 3, 4


def tried(problem: KernelProblem) -> tuple[str, str]:
    """(what is wrong with the reference or its result, what it raises on this CPU, which it may not on a GPU); "" for
    nothing."""
    if problem.spec is None or problem.spec.reference is None:
        return "", ""
    with tempfile.TemporaryDirectory(prefix="gemm_tuner_reference_") as folder:
        path = Path(folder) / "problem.json"
        path.write_text(json.dumps(problem.to_dict()))
        environ = {**os.environ, "PYTHONPATH": import_path()}
        child = run_child([*module_command(__name__), str(path)], environ, Path.cwd(), LIMIT_S)
    said = child.stdout.strip().splitlines()[-1] if child.stdout.strip() else ""
    return said if child.exit_status == EXIT_FAULT else "", said if child.exit_status == EXIT_RAISES else ""


def main(path: Path) -> int:
    from gemm_tuner.kernels.check import BadReference, Trial
    from gemm_tuner.kernels.workload import RAGGED, WORKLOAD, at_most, of

    problem = of(problem_from_dict(json.loads(path.read_text())))
    try:
        Trial(WORKLOAD, problem.with_case(at_most(problem.case, RAGGED)), 0, "cpu").expected()
    except BadReference as error:
        print(error)
        return EXIT_FAULT
    except Exception as error:  # of the user's function
        print(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        return EXIT_RAISES
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
