"""Takes the place of a launcher that is started ahead: reads the path of a plan from its pipe, and does what the plan
says as launcher_stand_in does. The file ``born`` in its folder has its process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import launcher_stand_in

if __name__ == "__main__":
    pipe = Path(sys.argv[sys.argv.index("--pipe") + 1])
    (pipe.parent / "new").write_text(str(os.getpid()))
    (pipe.parent / "new").rename(pipe.parent / "born")
    plan = pipe.open().readline().rstrip("\n")
    if plan:
        launcher_stand_in.run(["--plan", plan])
