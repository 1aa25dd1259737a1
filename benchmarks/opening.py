"""What it takes processes to open GPUs side by side under nsys, and whether kernels that another times notice it.

    python benchmarks/opening.py side      seconds of each step, of one, four and ten processes over all GPUs
    python benchmarks/opening.py beside    times of three kernels on one GPU, by step of a process that opens it

It needs torch, a GPU, and nsys on PATH; kernels are timed by CUDA events. Launchers of the tuner run with
CUDA_DEVICE_MAX_CONNECTIONS=1, as this does where it is set.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemm_tuner.measure.device import visible_gpu
from gemm_tuner.profilers.nsys import Nsys
from gemm_tuner.system.cuda_driver import Driver

SIZES = (4096, 4096, 4096), (1, 4096, 4096), (8192, 8192, 128), (64, 64, 65536), (512, 512, 512), (17, 5120, 5120)
TIMED = (512, 512, 512), (2048, 2048, 2048), (4096, 4096, 4096)
OPENS, READY = "opens", "ready"


def opens() -> None:
    """Opens the GPU step by step, as a launcher of finals does; prints when each has ended."""
    import torch

    def operands(m: int, n: int, k: int) -> tuple[Any, Any]:
        return tuple(torch.zeros(shape, device="cuda", dtype=torch.bfloat16) for shape in ((m, k), (k, n)))

    def multiply() -> None:
        for size in SIZES:
            torch.mm(*operands(*size))
        torch.cuda.synchronize()

    steps = {
        "cuInit": Driver,
        "context": lambda: torch.empty(1, device="cuda"),
        "cuBLAS": lambda: (torch.mm(*operands(256, 256, 256)), torch.cuda.synchronize()),
        "sizes": multiply,
        "recording": torch.cuda.profiler.start,
    }
    print(READY, flush=True)
    sys.stdin.readline()
    ended = [("", time.time())]
    for name, step in steps.items():
        step()
        ended.append((name, time.time()))
    print(json.dumps(ended), flush=True)
    sys.stdin.readline()


def started(folder: str, gpus: Sequence[str]) -> list[subprocess.Popen[str]]:
    """Processes that have imported torch under nsys, one for each of these GPUs."""
    processes = []
    for number, gpu in enumerate(gpus):
        (own := Path(folder, f"{len(gpus)}-{number}")).mkdir()
        argv = Nsys().command([sys.executable, __file__, OPENS], own)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(argv, env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu}, **pipes))
    for process in processes:
        line_with(process, READY)
    return processes


def line_with(process: subprocess.Popen[str], text: str) -> str:
    """The next line that begins so; nsys prints others between. Ends this program if there is none."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(text):
            return line
    sys.exit(f"a process under nsys ended with {process.wait()} before it said {text!r}")


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def ended(process: subprocess.Popen[str]) -> list[tuple[str, float]]:
    """The steps of a process, with the times of their ends; it then goes on to its own end."""
    steps = json.loads(line_with(process, "["))
    go(process)
    return [(name, at) for name, at in steps]


def visible() -> list[str]:
    """The GPUs of this program, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    return [visible_gpu("cuda", number, os.environ) for number in range(torch.cuda.device_count())]


def side(folder: str) -> None:
    gpus = visible()
    for count in (1, 4, 10):
        begun = time.time()
        processes = started(folder, [gpus[number % len(gpus)] for number in range(count)])
        imported = time.time()
        for process in processes:
            go(process)
        steps = [ended(process) for process in processes]
        opened = max(of[-1][1] for of in steps) - imported
        names = [name for name, _ in steps[0][1:]]
        means = [sum(of[at + 1][1] - of[at][1] for of in steps) / count for at in range(len(names))]
        each = ", ".join(f"{name} {mean:.2f}" for name, mean in zip(names, means, strict=True))
        print(f"{count:2} processes: torch imported after {imported - begun:.1f} s, open after {opened:.2f}; {each}")
        for process in processes:
            process.wait()


def beside(folder: str) -> None:
    import torch

    flushed = torch.empty(64 << 18, dtype=torch.int32, device="cuda")
    made = [tuple(torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in ((m, k), (k, n))) for m, n, k in TIMED]
    samples: list[list[tuple[float, float]]] = [[] for _ in TIMED]

    def burst(seconds: float) -> None:
        until = time.time() + seconds
        while time.time() < until:
            events = []
            for _ in range(4):
                for place, operands in enumerate(made):
                    flushed.add_(0)
                    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    first.record()
                    torch.mm(*operands)
                    last.record()
                    events.append((place, first, last))
            at = time.time()
            torch.cuda.synchronize()
            for place, first, last in events:
                samples[place].append((at, first.elapsed_time(last) * 1e3))

    burst(2.0)
    alone = time.time()
    burst(1.5)
    (process,) = started(folder, visible()[:1])
    go(process)
    burst(3.0)
    usual = [median(us for at, us in of if alone <= at < alone + 1.5) for of in samples]
    steps = ended(process)
    spans = [("alone", alone, alone + 1.5), *((name, steps[at][1], end) for at, (name, end) in enumerate(steps[1:]))]
    for name, begin, end in spans:
        within = [[us for at, us in of if begin <= at <= end] for of in samples]
        if all(within):
            ratios = ", ".join(f"{median(us) / of:.3f}" for us, of in zip(within, usual, strict=True))
            print(f"{name:10} {end - begin:.2f} s, {len(within[0])} calls: medians over those alone {ratios}")
    process.wait()


if __name__ == "__main__":
    if sys.argv[1:] == [OPENS]:
        opens()
    elif sys.argv[1:] in (["side"], ["beside"]):
        with tempfile.TemporaryDirectory() as temporary:
            {"side": side, "beside": beside}[sys.argv[1]](temporary)
    else:
        sys.exit(__doc__)
