"""How long a GPU has to rest after a load near its power limit, until a kernel takes as long as without that load.

    rest.py [--seconds 60]

Multiplies 8192 x 8192 x 8192 N(0, 1) bf16 matrices by torch.mm for a while, rests, spins up by reading memory as finals
do, and then times calls of several sizes by CUDA events, L2 emptied before each. Printed is how much longer they take
than after a second of rest without load, medians over all turns, in percent. ``launch.plan.REST_S`` follows from it.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SIZES = {(8192, 8192, 8192): 6, (4096, 4096, 4096): 20, (5000, 5000, 5000): 12, (8, 10240, 8192): 20}
LOADS_MS = (60, 180, 400)
RESTS_S = (0.0, 0.1, 0.2, 0.3)
IDLE_S = 0.35  # before each turn, so that it does not depend on the one before
SPIN_UP_S = 0.03
FLUSHED_BYTES = 96 << 20
REFERENCE = (0, 1.0)


def product(size: tuple[int, int, int], generator: torch.Generator) -> Callable[[], object]:
    import torch

    m, n, k = size
    like = {"device": "cuda", "dtype": torch.bfloat16}
    a, b = (torch.randn(*shape, generator=generator, **like) for shape in ((m, k), (k, n)))
    out = torch.empty(m, n, **like)
    return lambda: torch.mm(a, b, out=out)


def keep_busy(seconds: float, *calls: Callable[[], object]) -> None:
    import torch

    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for call in calls:
            call()
        torch.cuda.synchronize()


def time_us(call: Callable[[], object], flush: Callable[[], object], count: int) -> float:
    import torch

    events = [(torch.cuda.Event(True), torch.cuda.Event(True)) for _ in range(count)]
    for begin, end in events:
        flush()
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return 1e3 * median(float(begin.elapsed_time(end)) for begin, end in events)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on (default: 60)")
    seconds = parser.parse_args().seconds
    import torch

    generator = torch.Generator(device="cuda").manual_seed(0)
    calls = {size: product(size, generator) for size in SIZES}
    memory = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda").view(torch.float32)
    turns = [REFERENCE, *itertools.product(LOADS_MS, RESTS_S)]
    found: dict[tuple[tuple[int, int, int], int, float], list[float]] = {}
    for call in calls.values():
        time_us(call, memory.sum, 3)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for (size, call), (load_ms, rest_s) in random.sample([*itertools.product(calls.items(), turns)], k=52):
            time.sleep(IDLE_S)
            keep_busy(SPIN_UP_S, memory.sum)
            keep_busy(load_ms / 1e3, calls[8192, 8192, 8192], memory.sum)
            time.sleep(rest_s)
            keep_busy(SPIN_UP_S, memory.sum)
            found.setdefault((size, load_ms, rest_s), []).append(time_us(call, memory.sum, SIZES[size]))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, percent over the time after a second of rest")
    print("size              us  load ms" + "".join(f"  rest {rest_s} s" for rest_s in RESTS_S))
    for size, load_ms in itertools.product(SIZES, LOADS_MS):
        base = median(found[(size, *REFERENCE)])
        slower = [100 * (median(found[size, load_ms, rest_s]) / base - 1) for rest_s in RESTS_S]
        cells = "".join(f"{one:+12.2f}" for one in slower)
        print(f"{'x'.join(map(str, size)):14} {base:7.1f} {load_ms:6} {cells}")


if __name__ == "__main__":
    main()
