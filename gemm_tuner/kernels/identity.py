"""Keys for stored measurements: hashes over everything a measurement depends on. A resumed run reuses results with
equal keys."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import platform
import shutil
from pathlib import Path

from gemm_tuner.kernels.command_lines import Lines, filled, words_in
from gemm_tuner.kernels.program_spec import COMMAND, LAST, PROFILE, Instance, ProgramSpec

# Environment variables that are part of the key, in addition to those that the spec sets.
VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MODULAR_PYTHON",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "CC", "CFLAGS",
)  # fmt: skip
# Larger files are identified by size and modification time.
MAX_HASHED_BYTES = 64 * 2**20
OUTPUT_FLAGS = ("-o", "--output")


class Identity:
    """The keys of the combinations of a run. Each file is read only once."""

    def __init__(self, spec: ProgramSpec) -> None:
        self._spec = spec
        self._file = functools.cache(self._file_now)

    def key(self, instance: Instance, lines: Lines) -> str:
        """The key: a hash over command lines, environment, host, and the content of files on the command lines."""
        spec = self._spec
        words = self._named(lines)
        facts = [
            [word.replace(lines.out, "{out}") if lines.out else word for word in (*lines.build, "", *lines.run)],
            dict(lines.env),
            {name: os.environ[name] for name in VARIABLES if name in os.environ},
            [platform.node(), platform.machine(), str(spec.cwd)],
            [spec.metric.kind, spec.metric.pattern, spec.metric.unit, filled(spec.expect_name, instance.values)],
            [spec.timeout_s, spec.build_timeout_s],
            [self._file(word) for word in words],
            *([spec.profiler, *([LAST] if spec.select == LAST else [])] if spec.metric.kind == PROFILE else []),
        ]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]

    def _named(self, lines: Lines) -> tuple[str, ...]:
        """The words that may be file names, without the files that the build writes: arguments of -o, and the program
        of a command that was built."""
        build, run = words_in(lines.build), words_in(lines.run)
        written = {lines.out} | {after for word, after in itertools.pairwise(build) if word in OUTPUT_FLAGS}
        if build and self._spec.kind == COMMAND:
            run = run[1:]
        return tuple(word for word in (*build, *run) if word not in written)

    def _file_now(self, word: str) -> str:
        """A hash of a file in the spec's folders; size and time of a program on PATH; "" if it is not a file."""
        path = self._spec.cwd / word
        try:
            if path.is_file() and path.stat().st_size > MAX_HASHED_BYTES:
                return _stamp(path)
            if path.is_file():
                return hashlib.sha256(path.read_bytes()).hexdigest()
            found = shutil.which(word) if word and "/" not in word else None
            return _stamp(Path(found)) if found else ""
        except (OSError, ValueError):
            return ""


def _stamp(path: Path) -> str:
    about = path.stat()
    return f"{path.resolve()} {about.st_size} {about.st_mtime_ns}"
