"""The table of benchmarks/kernels.md: what a tuning run found, size by size, as markdown.

    kernels_table.py tuned.yaml                                           beside torch.mm and the roofline
    kernels_table.py tuned.yaml --rate rate.json                          and as a share of the rate that the GPU
                                                                          sustains (sustained_rate.py --json)
    kernels_table.py tuned.yaml --baseline b.yaml --baseline_name vLLM    and beside another results file

Nothing is measured here: every figure is read or computed from the files named. The rate of a size is in TFLOP/s where
arithmetic limits it by the device's datasheet and in GB/s (fewest bytes / time) where memory does. Ratios are the other
time / ours: above 1, ours is faster.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from gemm_tuner.core.errors import EXIT_OK, UserError
from gemm_tuner.core.records import Device, Problem
from gemm_tuner.gemm.config import AMD_NAME_PARTS, FAMILY_NAME_PARTS, NAME_PARTS, UNUSED, KernelConfig, tile
from gemm_tuner.gemm.model import roofline_us
from gemm_tuner.gemm.problem import GemmProblem, as_gemm
from gemm_tuner.space import space
from gemm_tuner.store import results

SMALL_M = 32
LARGE_SIDE = 4096
LOW_RATIO = 0.97
NONE = "-"
SHOWN_ANYWAY = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps", "num_stages")


@dataclass(frozen=True)
class Rate:
    """What sustained_rate.py measured: a type and its TFLOP/s."""

    dtype: str
    tflops: float

    @classmethod
    def read(cls, path: Path) -> Rate:
        """Raises UserError for a file of another kind."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["multiply"]
            return cls(str(found["dtype"]), float(found["tflops"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            accepted = "a file that sustained_rate.py --json wrote"
            raise UserError(f"cannot be read as a rate ({error!r})", where=str(path), accepted=accepted) from error


@dataclass(frozen=True)
class Line:
    """One size of the table; what is not known is None.

    vendor_ratio, baseline_ratio: the other time / ours.
    sustained_pct: share of the sustained rate, of large sizes only.
    """

    problem: GemmProblem
    config: KernelConfig
    median_us: float
    by_arithmetic: bool
    roofline_pct: float | None
    vendor_ratio: float | None
    baseline_ratio: float | None
    sustained_pct: float | None

    @property
    def rate(self) -> str:
        if self.by_arithmetic:
            return f"{self.problem.flops / self.median_us / 1e6:.1f} TFLOP/s"
        return f"{self.problem.bytes_moved / self.median_us / 1e3:.0f} GB/s"


def device_of(found: results.Results, path: Path) -> Device:
    """The device that the space file of the results' architecture describes; its rates are the datasheet's."""
    arch = found.header.get("arch")
    if not arch:
        raise UserError("the header names no arch", where=str(path), accepted="a file that tune_gemm.py wrote")
    return space.load(space.space_path(ROOT / "rules", str(arch)), str(arch)).device


def limited_by_arithmetic(problem: GemmProblem, device: Device) -> bool:
    """Whether the roofline of this size is the matrix rate and not the memory's."""
    return problem.flops / (device.tflops(problem.rate_key) * 1e6) >= roofline_us(problem, device)


def line_of(row: results.Row, device: Device, rate: Rate | None, baseline_us: dict[Problem, float]) -> Line:
    """The line of a measured row."""
    problem, ours = as_gemm(row.problem), row.facts["median_us"]
    assert row.config is not None  # every row of a results file has one
    other, vendor = baseline_us.get(problem), row.facts.get("vendor_us")
    large = min(problem.m, problem.n, problem.k) >= LARGE_SIDE
    rated = rate is not None and large and problem.dtype_a == problem.dtype_b == rate.dtype
    return Line(
        problem=problem,
        config=tile(row.config),
        median_us=ours,
        by_arithmetic=limited_by_arithmetic(problem, device),
        roofline_pct=row.facts.get("roofline_pct"),
        vendor_ratio=vendor / ours if vendor else None,
        baseline_ratio=other / ours if other else None,
        sustained_pct=problem.flops / ours / 1e6 / rate.tflops * 100 if rate and rated else None,
    )


def short_config(config: KernelConfig) -> str:
    """Such as 128x256x64 W8 S3 GM8: the tile, warps and stages if it has them, and whatever is not at its default."""
    tile = f"{config.BLOCK_SIZE_M}x{config.BLOCK_SIZE_N}x{config.BLOCK_SIZE_K}"
    rest = [(f, s) for f, s in NAME_PARTS if f not in SHOWN_ANYWAY and getattr(config, f) != 1]
    rest += [(f, s) for f, s in FAMILY_NAME_PARTS if getattr(config, f) != UNUSED[f]]
    rest += list(AMD_NAME_PARTS) if config.kpack else []
    named = (f"{short}{getattr(config, field)}" for field, short in rest)
    counted = (f"W{config.num_warps}", f"S{config.num_stages}") if config.num_warps else ()  # CuTe's class sets them
    return " ".join((tile, *counted, *named))


def decimals(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def table(lines: Sequence[Line], rate: Rate | None, baseline_name: str) -> list[str]:
    """Markdown: a column of the sustained rate or of the baseline only where there is one."""
    head = ["size", "family", "config", "us", "rate", "torch.mm / ours", "of roofline, %"]
    head += ["of sustained, %"] if rate else []
    head += [f"{baseline_name} / ours"] if baseline_name else []
    rows = []
    for line in lines:
        cells = [line.problem.key, line.config.family, short_config(line.config), f"{line.median_us:.2f}", line.rate]
        cells += [decimals(line.vendor_ratio, 3), decimals(line.roofline_pct, 1)]
        cells += [decimals(line.sustained_pct, 1)] if rate else []
        cells += [decimals(line.baseline_ratio, 3)] if baseline_name else []
        rows.append(cells)
    ruler = ["---"] * 3 + ["---:"] * (len(head) - 3)
    return [f"| {' | '.join(cells)} |" for cells in (head, ruler, *rows)]


def mean_text(ratios: Sequence[float]) -> str:
    sizes = "1 size" if len(ratios) == 1 else f"{len(ratios)} sizes"
    return f"{geometric_mean(ratios):.3f} over {sizes}" if ratios else "none"


def ratio_summary(lines: Iterable[Line]) -> str:
    """The summary of the ratio to the vendor library."""
    known = [(line.vendor_ratio, line.problem) for line in lines if line.vendor_ratio is not None]
    if not known:
        return "torch.mm / ours: no row has a time of torch.mm."
    lowest, where = min(known, key=lambda pair: pair[0])
    small = [ratio for ratio, problem in known if problem.m <= SMALL_M]
    under = sum(float(decimals(ratio, 3)) < LOW_RATIO for ratio, _ in known)  # as the table shows them
    return (
        f"torch.mm / ours, geometric mean: {mean_text([ratio for ratio, _ in known])}; "
        f"M <= {SMALL_M}: {mean_text(small)}; lowest: {lowest:.3f} ({where.key}); under {LOW_RATIO}: {under}."
    )


def baseline_summary(lines: Sequence[Line], name: str) -> str:
    ratios = [line.baseline_ratio for line in lines if line.baseline_ratio is not None]
    missing = [line.problem.key for line in lines if line.baseline_ratio is None]
    text = f"{name} / ours, geometric mean: {mean_text(ratios)}."
    return text + (f" Without a time of {name}: {', '.join(missing)}." if missing else "")


def left_out(found: results.Results, lines: Sequence[Line]) -> list[str]:
    """What the table or its ratios do not hold, and why."""
    notes = []
    no_vendor = [line.problem.key for line in lines if line.vendor_ratio is None]
    if no_vendor:
        notes.append(f"Without a time of torch.mm, so not among the ratios: {', '.join(no_vendor)}.")
    predicted = [row.problem.key for row in found.rows if "median_us" not in row.facts]
    if predicted:
        notes.append(f"Not measured, so left out: {', '.join(predicted)}.")
    if found.without_config:
        listed = ", ".join(f"{problem.key} ({reason})" for problem, reason in found.without_config)
        notes.append(f"Without a config: {listed}.")
    return notes


def baseline_times(path: Path | None) -> dict[Problem, float]:
    """The baseline's measured times by size."""
    rows = results.read(path).rows if path else ()
    return {row.problem: row.facts["median_us"] for row in rows if "median_us" in row.facts}


def document(path: Path, rate: Rate | None, baseline: Path | None, baseline_name: str) -> str:
    """The whole text: the table, the summaries, what is left out."""
    found = results.read(path)
    device, times = device_of(found, path), baseline_times(baseline)
    lines = [line_of(row, device, rate, times) for row in found.rows if "median_us" in row.facts]
    name = baseline_name if baseline else ""
    paragraphs = [ratio_summary(lines)]
    paragraphs += [baseline_summary(lines, name)] if name else []
    paragraphs += [f"Sustained rate: {rate.tflops:.1f} TFLOP/s of {rate.dtype}, torch.mm."] if rate else []
    paragraphs += left_out(found, lines)
    return "\n\n".join(("\n".join(table(lines, rate, name)), *paragraphs)) + "\n"


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tuned", type=Path, metavar="TUNED.yaml", help="a results file of tune_gemm.py")
    rate_help = f"what sustained_rate.py --json wrote; sizes of its type with M, N and K of {LARGE_SIDE} or more use it"
    parser.add_argument("--rate", type=Path, metavar="RATE.json", help=rate_help)
    parser.add_argument("--baseline", type=Path, metavar="OTHER.yaml", help="a results file to compare times with")
    parser.add_argument("--baseline_name", default="baseline", metavar="NAME", help="what to call it in the table")
    parser.add_argument("-o", type=Path, metavar="FILE", help="write the text there and not to the terminal")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    arguments: Any = parse(argv)
    try:
        rate = Rate.read(arguments.rate) if arguments.rate else None
        text = document(arguments.tuned, rate, arguments.baseline, arguments.baseline_name)
    except UserError as error:
        print(error.one_line(), file=sys.stderr)
        return error.exit_status
    if arguments.o:
        arguments.o.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
