"""Measures whether a size costs the same however many a run has: 200 sizes against 2000, on a stand-in for the GPU.

Stages are those of a run without the compiler and the GPU: search, join, ranking, settling, results file; tables; and
the same command again once all sizes are settled. CPU seconds a size, since a busy machine stretches wall time.
`python benchmarks/many_sizes.py` takes some minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from samples import config, problem
from tuning import StandInGpu, restarted, session, state_of

from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.pipeline.run_end import write_records
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.tune import Tuning
from gemm_tuner.space.size_state import SizeState

FEW, MANY = 200, 2000
MOST_TIMES = 2.0
CONFIGS = tuple(config(num_stages=stages) for stages in (2, 3, 4, 5))


def sizes(count: int) -> list[GemmProblem]:
    return [problem(64, 64, 64 + 8 * number) for number in range(count)]


def states(count: int) -> list[SizeState]:
    return [state_of(size, CONFIGS) for size in sizes(count)]


def cpu_ms_a_size(count: int, folder: Path) -> dict[str, float]:
    """CPU milliseconds a size of each stage of a run."""
    os.chdir(folder)
    ms: dict[str, float] = {}

    def run(title: str, one: Session, of: list[SizeState]) -> None:
        begun = time.process_time()
        Tuning(one, of, [StandInGpu(jitter=0.01)]).run()
        ms[title] = (time.process_time() - begun) / count * 1000

    of = states(count)
    one = session(folder, *sizes(count), search="full", compile_stage=False)
    run("screening to settled rows", one, of)
    begun = time.process_time()
    write_records(one, of)
    ms["tables"] = (time.process_time() - begun) / count * 1000
    run("the same command again", restarted(one), states(count))
    return ms


def main() -> int:
    """Exit status 1 where a size of many costs more than MOST_TIMES what one of few costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", type=int, default=FEW)
    parser.add_argument("--many", type=int, default=MANY)
    arguments = parser.parse_args()
    few_of, many_of = arguments.few, arguments.many
    found = []
    for count in (5, few_of, many_of):  # the first imports what is slow to import
        with tempfile.TemporaryDirectory() as folder:
            found.append(cpu_ms_a_size(count, Path(folder)))
    _, few, many = found
    print(f"{'CPU ms a size':27}{few_of:>8} sizes{many_of:>8} sizes   ratio")
    for name in few:
        print(f"{name:27}{few[name]:14.1f}{many[name]:14.1f}{many[name] / few[name]:8.2f}")
    return int(any(many[name] > MOST_TIMES * few[name] for name in few))


if __name__ == "__main__":
    sys.exit(main())
