"""Several threads build records of a type that none has built before: the GPUs of a run read their journals at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import dataclasses, sys, threading
from gemm_tuner.system.conversion import converted
from gemm_tuner.system.json_records import Positive

def build(kind, barrier, found):
    barrier.wait()
    found.append(converted({"inner": {"a": 1, "b": [1]}, "y": 2, "more": {"k": {"a": 3}}}, kind))

sys.setswitchinterval(1e-6)
for _ in range(150):
    Inner = dataclasses.make_dataclass("Inner", [("a", Positive), ("b", tuple[int, ...], ())])
    of = [("inner", Inner), ("y", Positive), ("more", dict[str, Inner])]
    barrier, found, kind = threading.Barrier(3), [], dataclasses.make_dataclass("Outer", of)
    threads = [threading.Thread(target=build, args=(kind, barrier, found)) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert [one.more["k"].a for one in found] == [3, 3, 3]
"""


def test_threads_build_a_new_type_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
