"""Finds a run from a path that the user gives: its folder, its run.json, or a results file that it wrote."""

from __future__ import annotations

from pathlib import Path

from gemm_tuner.core.errors import UserError
from gemm_tuner.store import results, run_record
from gemm_tuner.store.results import Results
from gemm_tuner.store.run_folder import PYTHON_TABLE, is_from_python
from gemm_tuner.store.run_record import RUN_FILE
from gemm_tuner.store.store import STORE_FILE
from gemm_tuner.system.input_files import printable

RESULTS_FILE = "tuned.yaml"


def run_folder(path: Path) -> Path:
    """The folder of a run, which contains run.json. Raises UserError if none is found."""
    if path.is_dir():
        return path if (path / RUN_FILE).is_file() else _refuse_folder(path)
    if path.name == RUN_FILE and path.is_file():
        return path.parent
    if not path.exists():
        raise UserError("there is no such run or results file", where=printable(path), accepted=accepted(path.parent))
    header = results.read(path).header
    named = results.run_folder(path, header)
    for folder in (named, path.parent):
        if folder is not None and (folder / RUN_FILE).is_file():
            return folder
    if named is None:
        what = "does not name the run that wrote it"
    else:
        what = f"names {printable(named)} as its run, and there is none"
    raise UserError(what, where=printable(path), accepted=accepted(path.parent))


def results_file(path: Path) -> Path:
    """The results file: ``path`` itself, or that of a run's folder. Raises UserError for a folder without one."""
    if not path.is_dir():
        return path
    if not (path / RUN_FILE).is_file():
        _refuse_folder(path)
    wrote = Path(run_record.read(path).results_file)
    for found in (path / RESULTS_FILE, path / wrote.name):
        if found.is_file():
            return found
    if wrote.is_file() and _is_of(wrote, path):  # relative to this folder, another file may have the same name
        return wrote
    raise UserError("holds no results file", where=printable(path), accepted=f"the file that the run wrote, {wrote}")


def results_of_run(folder: Path) -> Results | None:
    """The results file of a run; None if it does not exist any more."""
    try:
        return results.read(results_file(folder))
    except UserError:
        return None


def _is_of(file: Path, folder: Path) -> bool:
    """Whether a results file names this folder as its run's."""
    named = results.run_folder(file, results.read(file).header)
    return named is not None and named.resolve() == folder.resolve()


def _refuse_folder(path: Path) -> Path:
    if (path / STORE_FILE).is_file():
        hint = "the command that began it goes on with it, and --fresh begins another"
        raise UserError("is a run that has not come to its end", where=printable(path), hint=hint)
    if is_from_python(path):
        hint = f"its table is {printable(path / PYTHON_TABLE)}"
        raise UserError("is a run from Python, which commands do not read", where=printable(path), hint=hint)
    raise UserError("holds no run", where=printable(path), accepted=accepted(path))


def accepted(near: Path) -> str:
    """What is accepted instead of a folder without a run, with the newest run below it as an example."""
    runs = sorted(found.parent for found in near.glob(f"*/{RUN_FILE}"))
    example = printable(runs[-1]) if runs else "results/20260131-120000-1a2b"
    return f"a run's folder, such as {example}, or a results file that names its run"
