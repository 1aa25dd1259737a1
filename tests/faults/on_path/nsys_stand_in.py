"""Takes nsys's place on PATH: ``profile`` runs the command, ``stats`` writes what it launched as nsys's CSV.

NSYS_FAULT says what goes wrong: 'exits 1', 'hangs', 'writes nothing', 'half a file', 'three kernels short',
'rows twice', 'another locale', 'wrong event order' (for starts of more than NSYS_MOST kernels).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

HEADER = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n"
)


def row(index: int, line: str) -> str:
    duration, name = line.split(" ", 1)
    start = 1_000_000 + 100_000 * index
    return f"{start},{duration},{index},132,1,1,128,1,1,90,0.000,0.049,,,,,NVIDIA H200 (0),1,7,{name}\n"


def profile(arguments: list[str], fault: str) -> int:
    if fault == "exits 1":
        print("The target application terminated. No GPU for nsys.", file=sys.stderr)
        return 1
    at = arguments.index("-o")
    Path(arguments[at + 1] + ".nsys-rep").touch()
    import subprocess  # takes as long to import as all of stats

    import warm_python

    warm_python.install()
    # As nsys does, the command gets a session of its own.
    status = subprocess.run(arguments[at + 2 :], start_new_session=True).returncode
    for second in range(3600) if fault == "hangs" else ():
        # The clock of what waits for it goes on by more than any limit: tests/helpers/hang_clock.py.
        (Path(os.environ["HANG_NOTES"]) / f"{os.getpid()}-{second}").touch()
        time.sleep(1)
    return status if status >= 0 else 128 - status


def spoilt(text: str, fault: str) -> str:
    lines = text.splitlines(keepends=True)
    if fault == "half a file":
        return text[: len(text) // 2]
    if fault == "three kernels short":
        ours = [at for at, line in enumerate(lines) if ",gemm_tile" in line]
        return "".join(line for at, line in enumerate(lines) if at not in ours[:3])
    if fault == "rows twice":
        return "".join([lines[0], *(line * 2 for line in lines[1:])])
    if fault == "another locale":  # 12,345 for 12.345 us, in quotes as CSV wants it
        return "".join([lines[0].replace("(ns)", "(us)", 2), *map(with_commas, lines[1:])])
    return text


def with_commas(line: str) -> str:
    start, duration, rest = line.split(",", 2)
    return f'"{int(start) / 1000:.3f}","{int(duration) / 1000:.3f}",{rest}'.replace(".", ",", 2)


def export(arguments: list[str], fault: str) -> int:
    """As of a version that cannot export single tables."""
    print("unrecognised option '--tables'", file=sys.stderr)
    return 1


def stats(arguments: list[str], fault: str) -> int:
    stem = Path(arguments[arguments.index("-o") + 1])
    lines = (stem.parent / "kernels.txt").read_text().splitlines()
    if fault == "wrong event order" and len(lines) > int(os.environ["NSYS_MOST"]):
        print("Wrong event order has been detected when adding events to the collection", file=sys.stderr)
        return 1
    if fault != "writes nothing":
        text = "".join([HEADER, *(row(at, line) for at, line in enumerate(lines))])
        stem.with_name(stem.name + "_cuda_gpu_trace.csv").write_text(spoilt(text, fault))
    return 0


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[2] / "helpers"))
    job = {"profile": profile, "export": export, "stats": stats}[sys.argv[1]]
    sys.exit(job(sys.argv[2:], os.environ.get("NSYS_FAULT", "")))
