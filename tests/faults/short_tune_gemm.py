"""``tune_gemm.py`` whose finals take 3 processes (two that choose, one that publishes) in place of 5.

HANG_NOTES in the environment: a folder. Where a file in it says that something hangs, its time is over at once.
A compile's file has the name of its process.
"""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

PROCESSES = 3

if __name__ == "__main__":  # compile workers import this file too
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

    from gemm_tuner.cli.main import main
    from gemm_tuner.compile import compile_pool
    from gemm_tuner.decide.finals_plan import FinalsPlan
    from gemm_tuner.measure import supervise
    from gemm_tuner.system import processes

    at = [field.name for field in fields(FinalsPlan)].index("processes")
    defaults = FinalsPlan.__init__.__defaults__  # of all fields
    FinalsPlan.__init__.__defaults__ = (*defaults[:at], PROCESSES, *defaults[at + 1 :])
    if "HANG_NOTES" in os.environ:
        sys.path.append(str(Path(__file__).resolve().parents[1] / "helpers"))
        from hang_clock import HangClock

        notes = Path(os.environ["HANG_NOTES"])
        supervise.time = processes.time = HangClock(notes)

        class Worker(compile_pool.Worker):
            def __getattribute__(self, name: str) -> Any:
                if name == "deadline" and (notes / f"compile-{self.process.pid}").exists():
                    return 0.0
                return super().__getattribute__(name)

        compile_pool.Worker = Worker
    sys.exit(main())
