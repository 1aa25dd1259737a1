"""Measures what tuning costs before a GPU is needed: rules, a dry run, generated scripts and the parent's memory.

Each figure is taken in a process of its own; the goals are for 2 shared cores. `python benchmarks/without_gpu.py`
prints a table, with --json one JSON document.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(1, str(ROOT / "benchmarks"))

from rules_speed import ROCM_AXES

from gemm_tuner.core.architecture import Architecture
from gemm_tuner.core.records import Status, Target, Timing
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.launch.plan import SCREEN
from gemm_tuner.source import codegen
from gemm_tuner.space import prune, space

CONFIGS = 15_000
SIZES = 100
SM_90 = Target("cuda", "sm_90", 32, Architecture("wgmma", tma=True))
PROBLEM = GemmProblem(4096, 4096, 4096)


@dataclass(frozen=True)
class Figure:
    """What one measurement gave; all values in ``unit``. The middle of ``values`` counts."""

    name: str
    unit: str
    goal: float
    values: tuple[float, ...]

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def reached(self) -> bool:
        return self.value < self.goal


def many_configs() -> list[KernelConfig]:
    """15 000 different configurations of gemm_tile."""
    axes = ((16, 32, 64, 128, 256), (16, 32, 64, 128, 256), (16, 32, 64, 128), (1, 2, 4, 8, 16), (1, 2, 4, 8))
    more = itertools.product(*axes, (1, 2, 4, 8), (1, 2, 3, 4, 5))
    return [KernelConfig("gemm_tile", *values) for values in itertools.islice(more, CONFIGS)]


def timed(work: Callable[[], object]) -> float:
    """Seconds of wall time."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def rules_ms() -> float:
    """The rules over 132 000 configurations: gemm_tile with the axes of ROCm's tuner, on gfx942."""
    document = yaml.safe_load((ROOT / "rules" / "space_gfx942.yaml").read_text())
    document["families"] = {"gemm_tile": ROCM_AXES}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "space.yaml"
        path.write_text(yaml.safe_dump(document))
        loaded = space.load(path, "gfx942")
    columns, rules = prune.columns_of(space.frame(loaded)), prune.load_rules(ROOT / "rules")
    assert len(columns.BLOCK_SIZE_M) == 132_000
    return 1e3 * statistics.median(
        timed(lambda: prune.apply(columns, PROBLEM, loaded.device, rules, loaded.families)) for _ in range(9)
    )


def codegen_s() -> float:
    """Writing the script of 15 000 configurations."""
    configs = many_configs()
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        return timed(lambda: codegen.write_script(ROOT / "templates", where, "gemm_tile", PROBLEM, configs, SM_90))


def import_s() -> float:
    """Importing that script in a fresh process, Triton included."""
    with tempfile.TemporaryDirectory() as folder:
        script = codegen.write_script(ROOT / "templates", Path(folder), "gemm_tile", PROBLEM, many_configs(), SM_90)
        code = f"import sys; sys.path.insert(0, {folder!r}); import {Path(script.file).stem} as script; "
        code += f"assert len(script.CONFIGS) == {CONFIGS}"
        return timed(lambda: subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT))


def dry_run_s() -> float:
    """--dry_run of 100 sizes with the shipped space of sm_90, the start of Python included; seconds of CPU, which are
    those of the clock on a core of its own: it runs in one thread."""
    extents = itertools.product((16, 64, 512, 2048, 8192), (1024, 4096, 5120, 14336, 5000), (512, 4096, 8192, 7168))
    rows = [{"M": m, "N": n, "K": k} for m, n, k in extents]
    assert len(rows) == SIZES
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sizes.yaml"
        path.write_text(yaml.safe_dump(rows))
        command = ["tune_gemm.py", "--gemm_size_file", str(path), "--arch", "sm_90", "--dry_run"]
        subprocess.run([sys.executable, *command], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def parent_gib() -> float:
    """Largest resident memory of a tuner's own process that has a size of 15 000 kept configurations: loads space and
    rules, searches, books and stores a timing of each, writes its table."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    from tuning import StandInGpu, session, state_of  # what the tests of the measured way use

    from gemm_tuner.pipeline import prepare
    from gemm_tuner.pipeline.run_options import RunOptions
    from gemm_tuner.pipeline.tune import Tuning

    device = space.load(ROOT / "rules" / "space_sm_90.yaml", "sm_90").device

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        here = Path(folder)
        shipped = prepare.load_space(RunOptions((), ROOT / "templates", ROOT / "rules", here), device)
        state = state_of(PROBLEM, many_configs())
        run = session(here, PROBLEM, search="full", compile_stage=False)
        Tuning(run, [state], [StandInGpu()]).run()
        state.write(here)
        timings: list[Timing] = run.store.timings(PROBLEM, SCREEN)
        assert len(timings) == CONFIGS and all(timing.status == Status.OK for timing in timings)
        assert len(shipped.configs) > CONFIGS
        run.store.close()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


FIGURES: dict[str, tuple[str, str, float, Callable[[], float]]] = {
    "rules": ("rules over 132 000 configurations", "ms", 50.0, rules_ms),
    "codegen": (f"script of {CONFIGS} configurations, written", "s", 5.0, codegen_s),
    "import": (f"script of {CONFIGS} configurations, imported", "s", 5.0, import_s),
    "dry_run": (f"--dry_run of {SIZES} sizes", "s of CPU", 5.0, dry_run_s),
    "memory": (f"parent's memory with {CONFIGS} configurations", "GiB", 1.5, parent_gib),
}


def measure(key: str, repeats: int) -> Figure:
    """The figure, each time in a fresh process."""
    name, unit, goal, _ = FIGURES[key]
    command = [sys.executable, __file__, "--only", key]
    with tempfile.TemporaryDirectory() as folder:
        answers = [subprocess.run(command, check=True, stdout=-1, text=True, cwd=folder).stdout for _ in range(repeats)]
    return Figure(name, unit, goal, tuple(float(answer) for answer in answers))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="times that each is measured (default: 3)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--only", choices=FIGURES, help="measure one, once, and print the bare number")
    arguments = parser.parse_args()
    if arguments.only:
        print(FIGURES[arguments.only][3]())
        return 0
    figures = [measure(key, arguments.repeats) for key in FIGURES]
    if arguments.json:
        print(json.dumps([{**asdict(figure), "median": figure.value, "reached": figure.reached} for figure in figures]))
    else:
        print(f"{'':<46}{'median':>9}{'least':>9}{'most':>9}{'goal':>9}")
        for f in figures:
            spread = "".join(f"{number:>9.2f}" for number in (f.value, min(f.values), max(f.values)))
            print(f"{f.name + ', ' + f.unit:<46}{spread}{f'< {f.goal:g}':>9}{'' if f.reached else '  missed'}")
    return 0 if all(figure.reached for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
