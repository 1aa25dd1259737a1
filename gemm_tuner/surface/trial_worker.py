"""``python -m gemm_tuner.surface.trial_worker``: builds and launches configurations that may hang or crash.

Reads JSON lines: first the job, then one configuration per line. Writes a line when it has the function, when a
configuration is built, when its inputs exist, and when it has ended. Modules are imported; of a script only the
definitions that the function needs are executed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from gemm_tuner.kernels.definitions import definitions
from gemm_tuner.launch.failures import status_of
from gemm_tuner.surface.configurations import Candidate
from gemm_tuner.surface.gpu import wait
from gemm_tuner.surface.judge import one_line
from gemm_tuner.surface.profile_args import CompileArgs
from gemm_tuner.surface.supply import Supply, TensorSupplyType
from gemm_tuner.surface.tunables import Arguments, Function
from gemm_tuner.system.processes import exit_with_tuner

READY, BUILT, READY_TO_LAUNCH, DONE = "ready", "built", "ready to launch", "done"


def main() -> None:
    exit_with_tuner()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # compilers print to standard output
    job = json.loads(sys.stdin.readline())
    sys.path[:0] = [one for one in job["path"] if one not in sys.path]
    tunable = Function(
        load(job["function"]), Arguments(tuple(job["args"]), job["kwargs"]), CompileArgs(**job["compile_args"])
    )
    program = load(job["program"]) if job["program"] else None
    supply = Supply(TensorSupplyType[job["supply"]], program) if job["supply"] else None
    tell(answers, {"at": READY})
    for line in sys.stdin:
        tell(answers, try_one(tunable, json.loads(line), supply, answers))


def try_one(tunable: Function, values: Mapping[str, Any], supply: Supply | None, answers: TextIO) -> dict[str, Any]:
    """Builds a configuration, and launches it once if inputs can be created."""
    try:
        built = tunable.build(Candidate({name: _plain(value) for name, value in values.items()}))
    except Exception as error:
        return {"at": BUILT, "error": one_line(error), "status": "compile_error"}
    tell(answers, {"at": BUILT})
    at = READY_TO_LAUNCH
    try:
        inputs = None if supply is None or built.is_direct else supply.inputs(built.params, tunable.name)
        tell(answers, {"at": at})
        at = DONE
        if inputs is not None:
            built.run(inputs)
            wait()
    except Exception as error:
        return {"at": at, "error": one_line(error), "status": status_of(error).value}
    return {"at": DONE}


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def tell(answers: TextIO, answer: Mapping[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def load(code: Mapping[str, str]) -> Any:
    """The function, without the gt.autotune decorator."""
    name = code["qualname"]
    if code["module"]:
        found: Any = importlib.import_module(code["module"])
        for part in name.split("."):
            found = getattr(found, part)
    else:
        path = Path(code["file"])
        module = ModuleType(path.stem)
        module.__file__ = str(path)
        sys.modules[path.stem] = module
        source = definitions(path.read_text("utf-8"), name, str(path))
        exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 - the user's own function
        found = getattr(module, name)
    return found.__wrapped__ if getattr(found, "autotuned", False) is True else found


if __name__ == "__main__":
    main()
