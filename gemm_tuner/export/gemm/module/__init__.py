"""``export --to module``: the tuned kernels as one Python file that only needs Triton and torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Target
from gemm_tuner.export.gemm.module import cute, standing
from gemm_tuner.export.gemm.module.objects import Object, objects_of
from gemm_tuner.export.gemm.module.render import rendered
from gemm_tuner.export.gemm.module.rows import Tuned, Winner, select, winner_fault, winners
from gemm_tuner.export.gemm.rows import gemm_of
from gemm_tuner.export.offers import LeftOut
from gemm_tuner.export.trust import Trust
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.families.family import require_known
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.space import space
from gemm_tuner.store import results
from gemm_tuner.system.documents import write_bytes_atomically
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.installation import data_folder

CHECKED_ON_GPU = Trust()


@dataclass(frozen=True, slots=True)
class Cost:
    """A size that runs in Triton though its winner is in CuTe DSL. times: its time / the winner's. why: it does."""

    problem: GemmProblem
    winner: str
    times: float
    why: str

    @property
    def text(self) -> str:
        return f"in Triton, {self.times:.2f} times the time of {self.winner}"


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """The result of an export; nothing was written if num_sizes is 0.

    differs:  the file did not exist or had another text, or the folder of compiled kernels had others.
    left_out: the sizes of the results file that are not in the module.
    remarks:  (size, how it was checked) for those that were not checked on a GPU.
    costs:    the sizes that run in Triton though their winner is in CuTe DSL.
    num_cute: the sizes whose kernel is in CuTe DSL.
    """

    path: Path
    num_sizes: int
    left_out: tuple[LeftOut, ...]
    remarks: tuple[tuple[GemmProblem, str], ...] = ()
    differs: bool = False
    costs: tuple[Cost, ...] = ()
    num_cute: int = 0


def write_module(
    results_path: Path,
    out: Path,
    templates: Path | None = None,
    trust: Trust = CHECKED_ON_GPU,
    *,
    dry_run: bool = False,
    overwrite: bool = False,
) -> ModuleFile:
    """Writes ``out``, a Python file with the tuned kernels of a results file and ``matmul``; beside it a folder with
    the compiled kernels in CuTe DSL, if there are any.

    templates: folder of the kernel templates; None for the project's own.
    trust:     which rows to use in addition to those that were timed and checked on a GPU.
    overwrite: predictions may replace a module with sizes that were measured.
    Nothing is written if no row can be used (``left_out`` says why), if the file already has this text, or with
    dry_run.
    Raises UserError for a file that is not a results file, has no architecture or no sizes, and for a template that
    does not render; EnvironmentFault if ``out`` cannot be written.
    """
    found = results.read(results_path)
    target = _target(found.header, results_path)
    tuned, left_out = select(found, trust)
    if not tuned and not left_out:
        raise UserError("has no row for a module: it holds no sizes", where=printable(results_path))
    if reason := "" if overwrite else standing.yields(out, tuned):
        left_out = (*left_out, *(LeftOut(one.problem.key, one.config.name, reason) for one in tuned))
        tuned = ()
    if not tuned:
        return ModuleFile(out, 0, left_out)
    header, from_templates = _header(found, tuned), templates or data_folder("templates")
    where = {gemm_of(row): row.where for row in found.rows if row.problem.kind == GemmProblem.kind and row.config}
    for one in tuned:
        require_known(one.config.family, from_templates, where[one.problem])
    tuned, costs = with_winners(tuned, winners(tuned), from_templates, target)
    folder = cute.folder_of(out)
    files = {folder / one.winner.object.file: one.winner.object.image for one in tuned if one.winner}
    files[out] = rendered(from_templates, tuned, left_out, header, target, folder.name).encode()
    new = {path: content for path, content in files.items() if not path.is_file() or path.read_bytes() != content}
    stale = cute.libraries_in(folder) - files.keys()
    if not dry_run:
        for path, content in new.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes_atomically(path, content)
        for path in stale:  # after the module that named them
            path.unlink(missing_ok=True)
    remarks = tuple((one.problem, one.remark) for one in tuned if one.remark)
    return ModuleFile(
        out, len(tuned), left_out, remarks, bool(new or stale), costs, sum(one.winner is not None for one in tuned)
    )


def with_winners(
    tuned: tuple[Tuned, ...],
    in_cute: list[tuple[Tuned, KernelConfig, float]],
    templates: Path,
    target: Target,
) -> tuple[tuple[Tuned, ...], tuple[Cost, ...]]:
    """(the sizes, with their winners in CuTe DSL; what it costs where a winner could not be compiled)."""
    fit = [(one.problem, config) for one, config, _ in in_cute if not winner_fault(one.problem, config)]
    compiled = dict(zip((problem for problem, _ in fit), objects_of(fit, templates, target), strict=True))
    found, costs = {one.problem: one for one in tuned}, []
    for one, config, us in in_cute:
        made = compiled.get(one.problem, winner_fault(one.problem, config))
        if isinstance(made, Object) and one.row is not None:
            found[one.problem] = replace(one, winner=Winner(config, us, one.row.verified, made))
        elif one.time_us:
            costs.append(Cost(one.problem, config.name, one.time_us / us, str(made)))
    return tuple(found.values()), tuple(costs)


def _header(found: results.Results, tuned: tuple[Tuned, ...]) -> dict[str, str | int]:
    """A header that combines those of the runs of the module's rows; source is that of the rows.

    For several runs, different texts are joined, the earliest run's first, and numbers are those of the first run.
    """
    served = {one.problem for one in tuned}
    headers = sorted(
        (found.header_of(row) for row in found.rows if row.problem in served), key=lambda one: str(one.get("date", ""))
    )
    joined: dict[str, str | int] = {}
    for key in dict.fromkeys(key for header in headers for key in header):
        values = list(dict.fromkeys(header[key] for header in headers if key in header))
        joined[key] = values[0] if len(values) == 1 or isinstance(values[0], int) else ", ".join(map(str, values))
    return {**joined, "source": ", ".join(dict.fromkeys(one.source or "unknown" for one in tuned))}


def _target(header: dict[str, str | int], path: Path) -> Target:
    arch = str(header.get("arch", ""))
    if not arch.startswith(("sm_", "gfx")):
        what = f"names no architecture: arch is {arch!r}"
        raise UserError(what, where=f"{printable(path)}, header", accepted="such as sm_90 or gfx942")
    return space.load(space.space_path(data_folder("rules"), arch), arch).device.target
