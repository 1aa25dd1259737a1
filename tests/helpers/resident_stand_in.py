"""Takes the resident launcher's place: reads folders of plans from standard input, writes journals as a launcher does,
and beside each the trace that proton would write. Configurations behave as their names say (launcher_stand_in).

STAND_IN_RESIDENT: 'broken' ends it at the first plan, which is when proton finds no CUPTI; 'said before' too, after it
has said why at its start.
"""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

from launcher_stand_in import FLUSH, StandIn

from gemm_tuner.launch.journal import Compiles, Finished, Journal, Process
from gemm_tuner.launch.plan import OPEN, Plan
from gemm_tuner.system.processes import identity


class Scoped(StandIn):
    """Notes each kernel under the number of its call, one after the other."""

    def __init__(self, plan: Plan, journal: Journal) -> None:
        super().__init__(plan, journal, io.StringIO())
        self.events: list[dict[str, object]] = []
        self._ended_us = 0.0

    def kernel(self, name: str, us: float) -> None:
        stack = ["ROOT", name] if name == FLUSH else ["ROOT", f"L{self.number}", name]
        event = {"name": name, "cat": "kernel", "ts": self._ended_us, "dur": us, "args": {"call_stack": stack}}
        self.events.append(event)
        self._ended_us += us


def main() -> None:
    fault = os.environ.get("STAND_IN_RESIDENT")
    if fault == "said before":
        print("the driver is too old", file=sys.stderr, flush=True)
    for line in sys.stdin:
        if fault == "broken":
            print("CUPTI is not to be had", file=sys.stderr)
        if fault:
            sys.exit(1)
        if line.startswith(f"{OPEN} "):
            path = Path(line.strip().removeprefix(f"{OPEN} "))
            path.rename(path.with_suffix(".opened"))
            continue
        folder = Path(line.strip())
        with (folder / "journal.jsonl").open("w") as stream:
            journal = Journal(stream)
            journal.write(Process(identity(os.getpid())))
            stand_in = Scoped(Plan.read(folder / "plan.json"), journal)
            for index, work in enumerate(stand_in.plan.work):
                stand_in.time_all(index, work)
            journal.write(Compiles(0, 1))
            (folder / "trace.chrome_trace").write_text(json.dumps({"traceEvents": stand_in.events}))
            journal.write(Finished())


if __name__ == "__main__":
    main()
