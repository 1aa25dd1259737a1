"""Whether a change of the tuner's code leaves its rows as they were: without a GPU, in about two minutes on two cores.

    python benchmarks/same_rows.py before/ --write     at the older revision
    python benchmarks/same_rows.py before/             at the newer one: exit status 1 where a row differs

Three runs: examples/sizes.yaml predicted for an H200; the recording of tests/data replayed; and the same replay killed
(SIGKILL) when it has settled its first size, and gone on with. Headers are left out: they hold versions, dates, paths.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
RECORDING = ROOT / "tests" / "data" / "h200_nsys_recording"
REPLAY = [
    *("--gemm_size_file", str(RECORDING / "sizes.yaml"), "--search", "full", "--compare"),
    *("--space", str(RECORDING / "space.yaml"), "--rules", str(RECORDING / "rules")),
    *("--profiler", "replay", "--replay", str(RECORDING / "raw")),
]
PREDICTED = ["--gemm_size_file", str(ROOT / "examples" / "sizes.yaml"), "--arch", "sm_90"]


def command(arguments: list[str], folder: Path) -> list[str]:
    where = ["--o", str(folder / "tuned.yaml"), "--output_dir", str(folder / "runs")]
    return [sys.executable, str(ROOT / "tune_gemm.py"), *arguments, *where]


def rows(path: Path) -> Any:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [row for value in document.values() if isinstance(value, list) for row in value]


def whole(arguments: list[str], folder: Path) -> Any:
    subprocess.run(command(arguments, folder), check=True, stdout=subprocess.DEVNULL)
    return rows(folder / "tuned.yaml")


def killed(arguments: list[str], folder: Path) -> Any:
    """As ``whole``, killed once as soon as the results file is there."""
    run = subprocess.Popen(command(arguments, folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while run.poll() is None and not (folder / "tuned.yaml").exists():
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    print(f"killed with exit status {run.wait()}")
    return whole(arguments, folder)


def differing(before: Any, now: Any) -> list[str]:
    """A line for each field that is not the same."""
    found = [] if len(before) == len(now) else [f"{len(before)} rows, now {len(now)}"]
    for place, (old, new) in enumerate(zip(before, now, strict=False)):
        found += [
            f"row {place}: {field} was {old.get(field)!r} and is {new.get(field)!r}"
            for field in sorted({*old, *new})
            if old.get(field) != new.get(field)
        ]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="keep the rows of this revision in the folder")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    runs = {"predicted": (whole, PREDICTED), "replayed": (whole, REPLAY), "resumed": (killed, REPLAY)}
    status = 0
    for name, (how, flags) in runs.items():
        folder = Path(tempfile.mkdtemp(prefix="same_rows_"))
        found = json.loads(json.dumps(how(flags, folder), default=str))
        shutil.rmtree(folder)
        kept = arguments.folder / f"{name}.json"
        if arguments.write:
            kept.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(f"{name}: {len(found)} rows written")
            continue
        lines = differing(json.loads(kept.read_text(encoding="utf-8")), found)
        status |= bool(lines)
        print("\n".join([f"{name}: {len(found)} rows, {len(lines)} fields differ", *lines]))
    return status


if __name__ == "__main__":
    sys.exit(main())
