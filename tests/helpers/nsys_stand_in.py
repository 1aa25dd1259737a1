"""Takes nsys's place on PATH: ``profile`` runs the command, ``stats`` writes what it launched as nsys's CSV, and with
NSYS_TABLES ``export`` as nsys's tables.

NSYS_FAULT says what goes wrong: 'exit 1', 'no report', 'stats fails', 'no file', 'empty file', 'no kernels',
'cut short', 'shifted', 'other kernels', 'too much' for a long trace, 'stats never ends', 'no recording',
'no recording at first', 'no kernels at first', 'other kernels at first'; and, where the launcher died:
'nothing after a crash', 'loss at a crash', 'slow report'.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

# What a report after a crash takes, where it is slow.
SLOW_S = 2.0
HEADER = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n"
)


def row(index: int, line: str) -> str:
    duration, name = line.split(" ", 1)
    start = 1_000_000 + 100_000 * index
    return f"{start},{duration},{index},132,1,1,128,1,1,90,0.000,0.049,,,,,NVIDIA H200 (0),1,7,{name}\n"


def run(command: list[str]) -> int:
    import subprocess  # takes as long to import as all of stats

    return subprocess.run(command).returncode


def profile(arguments: list[str], fault: str) -> int:
    if fault == "exit 1":
        print("The target application terminated. No GPU for nsys.", file=sys.stderr)
        return 1
    at = arguments.index("-o")
    recording = Path(arguments[at + 1] + ".nsys-rep")
    status = run(arguments[at + 2 :])
    before = recording.parent.parent / "not recorded"
    if fault == "no recording" or (fault == "no recording at first" and not before.exists()):
        before.touch()
        print("Importer error: nothing was written")
    else:
        recording.touch()
    if fault == "slow report" and status != 0:
        Path(os.environ["HANG_NOTES"], "slow").touch()  # hang_clock.py cannot be imported: it takes longer than limits
        time.sleep(SLOW_S)
    return status if status >= 0 else 128 - status


def export(arguments: list[str], fault: str) -> int:
    """Without NSYS_TABLES as of a version that cannot export single tables."""
    if "NSYS_TABLES" not in os.environ:
        print("unrecognised option '--tables'", file=sys.stderr)
        return 1
    import sqlite3

    path = Path(arguments[arguments.index("-o") + 1])
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, demangledName INTEGER)")
        for index, line in enumerate((path.parent / "kernels.txt").read_text().splitlines()):
            duration, name = line.split(" ", 1)
            start = 1_000_000 + 100_000 * index
            database.execute("INSERT INTO StringIds VALUES (?, ?)", (index, name))
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?)", (start, start + int(duration), index)
            )
    return 0


def stats(arguments: list[str], fault: str) -> int:
    stem = Path(arguments[arguments.index("-o") + 1])
    died = '"finished"' not in (stem.parent / "journal.jsonl").read_text()
    kernels = (stem.parent / "kernels.txt").read_text().splitlines()
    if fault == "stats never ends":
        (stem.parent / "stats.pid").write_text(str(os.getpid()))
        time.sleep(600)
    if not Path(arguments[-1]).exists():
        print("ERROR: Specified input file does not exist.")
        return 1
    if fault == "stats fails" or (fault == "too much" and len(kernels) > 8):
        print("ERROR: the report cannot be opened", file=sys.stderr)
        return 1
    if fault == "no file" or (died and fault == "nothing after a crash"):
        return 0
    first = stem.parent.parent / "read"
    if fault.endswith(" kernels at first"):
        fault = "" if first.exists() else fault.removesuffix(" at first")
        first.touch()
    text = "".join([HEADER, *map(row, range(10**6), (stem.parent / "kernels.txt").read_text().splitlines())])
    if fault == "empty file":
        text = ""
    elif fault == "no kernels":
        text = HEADER
    elif fault == "cut short":
        text = text[: text.rindex(",")]
    elif fault == "shifted":
        text = text.replace(",132,1,1,", ",132,1,1,9,", 1)
    elif fault == "other kernels":
        text = text.replace("good", "unknown")
    elif died and fault == "loss at a crash":
        text = "".join(line for line in text.splitlines(keepends=True) if ",good_1" not in line)
    stem.with_name(stem.name + "_cuda_gpu_trace.csv").write_text(text)
    return 0


def main(arguments: list[str]) -> int:
    job = {"profile": profile, "export": export, "stats": stats}[arguments[0]]
    return job(arguments[1:], os.environ.get("NSYS_FAULT", ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
