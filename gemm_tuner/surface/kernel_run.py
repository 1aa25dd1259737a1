"""``gt.kernel``: the command ``kernel`` from Python, in a process of its own; a crash there ends no caller."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_UNVERIFIED, EnvironmentFault, UserError
from gemm_tuner.store import results
from gemm_tuner.store.results import Results, Row
from gemm_tuner.store.run_folder import DEFAULT_OUTPUT_DIR
from gemm_tuner.system.installation import import_path
from gemm_tuner.system.processes import module_command
from gemm_tuner.system.program import SCRIPT

REPEATED = ("serve", "kernel_from")
PREVIEWS = ("dry_run", "compile_only", "explain")


@dataclass(frozen=True)
class KernelRun:
    """What a run found. path: of its results file; folder: of the run, with run.json and the tables of all
    configurations."""

    found: Results
    path: Path
    folder: Path | None

    @property
    def rows(self) -> tuple[Row, ...]:
        """One for each case that has a configuration."""
        return self.found.rows

    @property
    def configs(self) -> dict[str, dict[str, Any]]:
        """The best configuration of each case, such as ``{"rows=4096, cols=1000": {"ROWS": 1, "num_warps": 4}}``."""
        return {row.problem.shape: row.config.options() for row in self.rows if row.config is not None}

    @property
    def best(self) -> dict[str, Any]:
        """The best configuration of the only case. Raises UserError where there are several or none."""
        if len(self.configs) == 1:
            return next(iter(self.configs.values()))
        if not self.configs:
            reasons = "; ".join(f"{problem.shape}: {why}" for problem, why in self.found.without_config)
            raise UserError(f"no case has a configuration: {reasons}", where=str(self.path))
        raise UserError(f"there are {len(self.configs)} cases", where=".best", accepted=".configs, by case")


def kernel(
    kernel: str = "",
    *,
    spec: Path | str | None = None,
    host: str = "",
    output: Path | str | None = None,
    output_dir: Path | str = DEFAULT_OUTPUT_DIR,
    **flags: Any,
) -> KernelRun:
    """Tunes a kernel of yours as ``tune_gemm.py kernel`` does, and returns what it found; the same call goes on with a
    run that did not end.

    kernel: FILE.py:NAME. spec: its spec file. host: FILE.py:FUNCTION. output: the results file, by default one named
    after the spec or the host function in output_dir.
    flags:  those of the command without dashes: ``arch="gfx942"``, ``budget="10m"``, ``search="quick"``,
            ``fresh=True``, ``gpu_ids=[0, 1]``.
    Raises UserError and EnvironmentFault with the command's own line.
    """
    named = Path(spec).stem if spec is not None else host.rpartition(":")[2] or kernel.rpartition(":")[2] or "kernel"
    path = Path(output) if output is not None else Path(output_dir, f"{named}.yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    given = {"spec": spec, "host": host or None, "output": path, "output_dir": output_dir, **flags}
    command = [*module_command("gemm_tuner.cli"), "kernel", *([kernel] if kernel else []), *_words(given)]
    status, last = _run(command)
    if status not in (EXIT_OK, EXIT_UNVERIFIED):
        if status == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        fault = EnvironmentFault if status == EnvironmentFault.exit_status else UserError
        raise fault(last.partition(": ")[2] or last or f"{SCRIPT} kernel ended with status {status}")
    if any(flags.get(name) for name in PREVIEWS) or not path.is_file():
        hint = "leave flags such as dry_run out"
        raise UserError("nothing was tuned, so there is no result", where="gt.kernel", hint=hint)
    found = results.read(path)
    return KernelRun(found, path, results.run_folder(path, found.header))


def _words(flags: Mapping[str, Any]) -> Iterator[str]:
    """Flags as words of a command line; those that are None or False are left out. Several values are one word, with
    commas between them, unless the flag may be repeated."""
    for name, value in flags.items():
        several = list(value) if isinstance(value, (list, tuple)) else [value]
        if len(several) > 1 and name not in REPEATED:
            several = [",".join(map(str, several))]
        for one in several:
            if one is True:
                yield f"--{name}"
            elif one is not None and one is not False:
                yield f"--{name}={one}"


def _run(command: list[str]) -> tuple[int, str]:
    """(exit status, last line on standard error); what it prints is shown as it comes. Ctrl-C reaches it as well, and
    it is waited for: it saves what runs."""
    environ = {**os.environ, "PYTHONPATH": import_path()}
    last, interrupted = "", False
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ) as child:
        assert child.stderr is not None
        while True:
            try:
                line = child.stderr.readline()
            except KeyboardInterrupt:
                interrupted = True
                continue
            if not line:
                break
            last = line.strip() or last
            sys.stderr.write(line)
    if interrupted:
        raise KeyboardInterrupt
    return child.returncode, last
