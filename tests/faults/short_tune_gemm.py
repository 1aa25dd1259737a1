"""``tune_gemm.py`` whose finals take 3 processes (two that choose, one that publishes) in place of 5.

REPORT_LIMIT_S in the environment: seconds, in place of minutes, that it waits for a profiler in which nothing moves.
"""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from pathlib import Path

PROCESSES = 3

if __name__ == "__main__":  # compile workers import this file too
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

    from gemm_tuner.cli.main import main
    from gemm_tuner.decide.finals_plan import FinalsPlan
    from gemm_tuner.measure import supervise

    at = [field.name for field in fields(FinalsPlan)].index("processes")
    defaults = FinalsPlan.__init__.__defaults__  # of all fields
    FinalsPlan.__init__.__defaults__ = (*defaults[:at], PROCESSES, *defaults[at + 1 :])
    if "REPORT_LIMIT_S" in os.environ:
        supervise.START_LIMIT_S = supervise.REPORT_LIMIT_S = float(os.environ["REPORT_LIMIT_S"])
    sys.exit(main())
