"""Triton's interpreter in a process of its own that answers one request after another: torch is imported once.

A process of its own is needed because TRITON_INTERPRET is read when a kernel is defined, and because a kernel that
steps beyond its memory kills it. As a script: requests as JSON lines on stdin, answers as JSON lines on stdout.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from quick_interpreter import quicken  # noqa: E402

from gemm_tuner.languages.triton.language import LANGUAGE  # noqa: E402
from gemm_tuner.measure.launcher_process import launcher_env  # noqa: E402


class Interpreter:
    """The process. It is started by the first request, and again by the next one after it died."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gemm_tuner_interpreter_"))
        self._log = self._folder / "stderr.txt"
        self._process: subprocess.Popen[str] | None = None

    def ask(self, function: Callable[..., Any], **given: Any) -> Any:
        """What ``function(**given)`` returns there, by way of JSON. ``function`` is of a module of this folder.

        Raises AssertionError with the traceback when it raised, and with the exit status when the process died.
        """
        request = json.dumps({"module": function.__module__, "function": function.__name__, "given": given})
        process = self._process or self._start()
        try:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(request + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        except BaseException:  # the test's own time limit: an answer that comes later is to no request
            self.end()
            raise
        if not line:
            status = process.wait()
            self.end()
            raise AssertionError(f"exit status {status}: {self._log.read_text(errors='replace')[-3000:]}")
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["found"]

    def _start(self) -> subprocess.Popen[str]:
        env = launcher_env(LANGUAGE, self._folder / "cache", {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""})
        # Sums in numpy's order whatever the machine; small matrices gain nothing from threads.
        env["OMP_NUM_THREADS"] = "1"
        command = [sys.executable, os.fspath(Path(__file__).resolve())]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        return self._process

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def remove(self) -> None:
        self.end()
        shutil.rmtree(self._folder, ignore_errors=True)


@functools.cache
def interpreter() -> Interpreter:
    """The one that all tests of this process ask."""
    made = Interpreter()
    atexit.register(made.remove)
    return made


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """Inside the interpreting process."""
    try:
        function = getattr(importlib.import_module(request["module"]), request["function"])
        return {"found": function(**request["given"])}
    except Exception:
        return {"error": traceback.format_exc()[-3000:]}


def main() -> None:
    warnings.simplefilter("ignore")  # numpy's, on the NaN and Inf that the tests put in
    quicken()
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what kernels and libraries print is no answer
        for line in sys.stdin:
            answers.write(json.dumps(answer_to(json.loads(line))) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
