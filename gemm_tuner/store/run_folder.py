"""The folder of a run and the files in it."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.languages import kernel_cache
from gemm_tuner.store.store import STORE_FILE

DEFAULT_OUTPUT_DIR = Path("results")
# Of a run from Python, which has no run.json.
PYTHON_SUMMARY, PYTHON_TABLE = "summary.json", "table.csv"
STAMP_CHARS = len("20260131-235959")


def is_from_python(folder: Path) -> bool:
    """Whether a folder is of a run from Python, such as of ``gt.autotune``."""
    return (folder / PYTHON_SUMMARY).is_file()


@dataclass(frozen=True, slots=True)
class RunFolder:
    """root: the run's folder. scripts: folder of the generated kernels. cache: compiled kernels, shared by all runs of
    the user."""

    root: Path
    scripts: Path
    cache: Path

    @property
    def raw(self) -> Path:
        """The folder of plans, journals, logs and profiler output."""
        return self.root / "raw"

    @property
    def tables(self) -> Path:
        """The folder with one table per size, of all configurations that the rules keep."""
        return self.root / "configs"

    @property
    def store(self) -> Path:
        return self.root / STORE_FILE

    def results_path(self, asked: Path | None) -> Path:
        """The results file: ``asked`` if given, else in this folder."""
        return asked or self.root / "tuned.yaml"

    def stage(self, name: str) -> Path:
        """A new folder for the next stage; stages are numbered in the order they run. Threads may call it at once."""
        while True:
            numbers = [int(path.name.partition("-")[0]) for path in self.raw.glob("[0-9]*-*") if path.is_dir()]
            path = self.raw / f"{max(numbers, default=-1) + 1:02d}-{name}"
            with suppress(FileExistsError):
                path.mkdir(parents=True)
                return path

    def make(self) -> None:
        """Creates missing folders. Raises EnvironmentFault if that fails."""
        try:
            for path in (self.raw, self.tables, self.scripts, self.cache):
                path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            where = Path(error.filename)
            mine = where.is_relative_to(self.root) or self.root.is_relative_to(where)
            hint = "choose another --output_dir" if mine else "start in a folder that can be written"
            raise EnvironmentFault(f"cannot make a folder: {error.strerror}", where=str(where), hint=hint) from error

    def tidy(self, *, keep: bool) -> None:
        """Removes raw output and scripts, which are only needed for debugging, unless ``keep``."""
        if not keep:
            shutil.rmtree(self.raw, ignore_errors=True)
            shutil.rmtree(self.scripts, ignore_errors=True)

    def remove(self) -> None:
        """Removes what is the run's own: all but the cache, and results files elsewhere."""
        self.tidy(keep=False)
        shutil.rmtree(self.root, ignore_errors=True)


def _named(output_dir: Path, name: str, cache_name: str) -> RunFolder:
    is_default = output_dir.resolve() == DEFAULT_OUTPUT_DIR.resolve()
    generated = Path("generated") if is_default else output_dir / "generated"
    root = (output_dir / name).resolve()
    return RunFolder(root, (generated / name).resolve(), kernel_cache.folder(cache_name, root))


def create(output_dir: Path, key: str, cache_name: str) -> RunFolder:
    """Creates a folder below output_dir, and one of the same name for the scripts: below generated/ if output_dir is
    the default, else below output_dir/generated/.

    key:        identifies what the run tunes, so that the same command finds the run again.
    cache_name: name of the cache of compiled kernels.
    Raises EnvironmentFault if a folder cannot be written.
    """
    stamp, count = time.strftime("%Y%m%d-%H%M%S"), 0
    while (output_dir / f"{stamp}{f'-{count}' if count else ''}-{key}").exists():
        count += 1
    folder = _named(output_dir, f"{stamp}{f'-{count}' if count else ''}-{key}", cache_name)
    folder.make()
    return folder


def find(output_dir: Path, key: str, cache_name: str) -> RunFolder | None:
    """The newest run with this key that has a store; None without any."""
    names = (path.parent.name for path in output_dir.glob(f"*-{key}/{STORE_FILE}"))
    # A second run within the same second gets the suffix -1.
    found = sorted(names, key=lambda name: (name[:STAMP_CHARS], len(name), name))
    return _named(output_dir, found[-1], cache_name) if found else None
