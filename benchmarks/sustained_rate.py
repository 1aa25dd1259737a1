"""How fast this GPU multiplies and copies in this minute: what a share of "the GPU's rate" should be taken of.

    sustained_rate.py                                   bf16, prints TFLOP/s, GB/s and the GPU's state
    sustained_rate.py --dtype fp16 --json rate.json     the same of fp16, and a file for kernels_table.py --rate

Multiplies N(0, 1) matrices back to back by torch.mm and copies device memory, each for --seconds after a warm-up, timed
by CUDA events round the whole block. A GPU under load lowers its clocks to keep to its power limit, so this is less
than the datasheet's rate and changes with temperature: measure it in the same session as what it is compared with.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemm_tuner.measure.gpu_watch import find_sensor, summary, watching

EXIT_ENVIRONMENT = 3
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
CALIBRATION_CALLS = 4


@dataclass(frozen=True)
class Block:
    """Calls that were timed as one: how many, and their seconds by CUDA events."""

    calls: int
    seconds: float


@dataclass
class State:
    """The GPU while a block ran, as gpu_watch sums it up: least, median and most of each reading; empty where it
    cannot be read, then ``unknown`` says why."""

    summary: dict[str, Any] = field(default_factory=dict)
    unknown: str = ""

    def __str__(self) -> str:
        if not self.summary:
            return f"unknown: {self.unknown or 'no sample'}"
        readings = {name: value for name, value in self.summary.items() if isinstance(value, list)}
        named = ", ".join(f"{name} {v[1]:g} ({v[0]:g} to {v[2]:g})" for name, v in readings.items())
        return f"{named}, {self.summary['samples']} samples"


@contextmanager
def watched(gpu: str) -> Iterator[State]:
    """Samples the GPU's state while the block under it runs; the State is filled when that ends."""
    sensor, reason = find_sensor("cuda", [gpu])
    state = State(unknown=reason)
    with watching(sensor, [gpu]) as samples:
        yield state
    state.summary = summary(samples)
    if sensor is not None:
        sensor.close()


def gpu_uuid(torch: Any) -> str:
    """The current GPU as NVML names it, whatever CUDA_VISIBLE_DEVICES says; its index where torch does not know."""
    current = torch.cuda.current_device()
    uuid = getattr(torch.cuda.get_device_properties(current), "uuid", None)
    return f"GPU-{uuid}" if uuid else str(current)


def timed(torch: Any, call: Callable[[], Any], calls: int) -> Block:
    """So many calls back to back, timed by two events round all of them."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return Block(calls, begin.elapsed_time(end) / 1e3)


def sustained(torch: Any, call: Callable[[], Any], seconds: float, warmup_seconds: float) -> tuple[Block, State]:
    """A block of about ``seconds`` after a warm-up, and the GPU's state during it."""
    timed(torch, call, 1)  # the library loads and chooses its kernel
    one = timed(torch, call, CALIBRATION_CALLS)
    warm = timed(torch, call, calls_in(warmup_seconds, one))
    with watched(gpu_uuid(torch)) as state:
        block = timed(torch, call, calls_in(seconds, warm))
    return block, state


def calls_in(seconds: float, like: Block) -> int:
    """How many calls take so long if they are as fast as those."""
    return max(1, math.ceil(seconds * like.calls / like.seconds))


def multiply_rate(torch: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """TFLOP/s of torch.mm."""
    size, kind = arguments.size, getattr(torch, DTYPES[arguments.dtype])
    generator = torch.Generator(device="cuda").manual_seed(0)
    a, b = (torch.randn(size, size, generator=generator, device="cuda").to(kind) for _ in range(2))
    c = torch.empty(size, size, device="cuda", dtype=kind)
    block, state = sustained(torch, lambda: torch.mm(a, b, out=c), arguments.seconds, arguments.warmup_seconds)
    tflops = 2 * size**3 * block.calls / block.seconds / 1e12
    return {"dtype": arguments.dtype, "size": size, "tflops": tflops, **asdict(block), "state": asdict(state)}


def copy_rate(torch: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """GB/s of a copy within device memory: bytes read and bytes written."""
    size_bytes = int(arguments.copy_gib * 2**30) // 4 * 4
    source = torch.empty(size_bytes // 4, device="cuda", dtype=torch.int32).random_()
    target = torch.empty_like(source)
    block, state = sustained(torch, lambda: target.copy_(source), arguments.seconds, arguments.warmup_seconds)
    gb_per_s = 2 * size_bytes * block.calls / block.seconds / 1e9
    return {"bytes": size_bytes, "gb_per_s": gb_per_s, **asdict(block), "state": asdict(state)}


def measure(torch: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """Both rates, with what they were measured on and when."""
    multiply = multiply_rate(torch, arguments)
    torch.cuda.empty_cache()
    copy = copy_rate(torch, arguments)
    return {
        "device": torch.cuda.get_device_name(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "torch": torch.__version__,
        "multiply": multiply,
        "copy": copy,
    }


def report(found: dict[str, Any]) -> str:
    """What a person reads."""
    multiply, copy = found["multiply"], found["copy"]
    size = multiply["size"]
    return "\n".join(
        (
            f"{found['device']}, torch {found['torch']}, {found['date']}",
            f"torch.mm {size}x{size}x{size} {multiply['dtype']}: {multiply['tflops']:.1f} TFLOP/s "
            f"({multiply['calls']} calls in {multiply['seconds']:.2f} s)",
            f"  {State(**multiply['state'])}",
            f"copy of {copy['bytes'] / 2**30:g} GiB: {copy['gb_per_s']:.0f} GB/s read and written "
            f"({copy['calls']} calls in {copy['seconds']:.2f} s)",
            f"  {State(**copy['state'])}",
        )
    )


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bf16", help="type of A, B and C (default: bf16)")
    parser.add_argument("--size", type=int, default=8192, metavar="N", help="M, N and K of the product (default: 8192)")
    parser.add_argument("--seconds", type=positive, default=3.0, help="length of each timed block, s (default: 3)")
    parser.add_argument(
        "--warmup_seconds",
        type=positive,
        default=2.0,
        help="load before each block, so that clocks settle (default: 2)",
    )
    parser.add_argument(
        "--copy_gib", type=positive, default=4.0, metavar="GIB", help="size of the copy; needs twice that (default: 4)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured there")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    arguments = parse(argv)
    import torch

    if not torch.cuda.is_available():
        print("torch sees no GPU on this machine", file=sys.stderr)
        return EXIT_ENVIRONMENT
    found = measure(torch, arguments)
    print(report(found))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
