"""Where a run keeps its files."""

from __future__ import annotations

import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from gemm_tuner.errors import EnvironmentFault


@dataclass(frozen=True, slots=True)
class RunFolder:
    """root: this run's folder, new and its own. scripts: the generated kernels. cache: compiled kernels,
    shared by all runs started here."""

    root: Path
    scripts: Path
    cache: Path

    @property
    def raw(self) -> Path:
        """Plans, journals, logs and the profiler's own output."""
        return self.root / "raw"

    @property
    def tables(self) -> Path:
        """One table of all configurations a size."""
        return self.root / "configs"

    def stage(self, name: str) -> Path:
        """The folder of one more stage, numbered in the order they ran."""
        count = sum(1 for path in self.raw.iterdir() if path.is_dir()) if self.raw.exists() else 0
        path = self.raw / f"{count:02d}-{name}"
        path.mkdir(parents=True)
        return path

    def tidy(self, *, keep: bool) -> None:
        """Removes what only a look behind the scenes needs."""
        if not keep:
            shutil.rmtree(self.raw, ignore_errors=True)
            shutil.rmtree(self.scripts, ignore_errors=True)


def create(output_dir: Path) -> RunFolder:
    """A new folder under output_dir, and one of the same name for the scripts under generated/.

    Raises EnvironmentFault when either cannot be written.
    """
    name = time.strftime("%Y%m%d-%H%M%S") + "-" + secrets.token_hex(2)
    generated = Path("generated")
    folder = RunFolder(
        (output_dir / name).resolve(), (generated / name).resolve(), (generated / "triton_cache").resolve()
    )
    try:
        for path in (folder.raw, folder.tables, folder.scripts, folder.cache):
            path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        where = Path(error.filename)
        mine = where.is_relative_to(folder.root)
        hint = "choose another --output_dir" if mine else "start in a folder that can be written"
        raise EnvironmentFault(f"cannot make a folder: {error.strerror}", where=str(where), hint=hint) from error
    return folder
