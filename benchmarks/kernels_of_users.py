"""Tunes the examples in examples/kernels on the GPU at hand, and has triton.autotune choose among the same
configurations.

``python benchmarks/kernels_of_users.py TABLE.md`` writes a page: the time of each choice as the tuner measured it, in
the same stage of one run, and how long each choosing took, caches empty. Each choosing is a process of its own. Lines
are printed and written as they are known; a kernel that fails costs its own lines, and the exit status is then 1. The
examples in other languages run if these are installed; TileLang and CuTe DSL ask for different versions of
apache-tvm-ffi, so each can have an environment of its own and a page with ``--only``. The same command goes on with
tunings that did not end.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import itertools
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:  # the process of triton.autotune imports neither pandas nor the tuner
    from gemm_tuner.store.results import Row

EXAMPLES = ROOT / "examples" / "kernels"
# Of one process: triton.autotune, or the example in TileLang.
LIMIT_S = 300
HEAD = ("kernel", "tuned", "us", "triton.autotune's choice", "us", "theirs / ours", "stage", "noise, %", "tuner s",
        "autotune s", "verified")  # fmt: skip
EXPLAINED = """The kernels are those of examples/kernels, written after Triton's tutorials 02, 05, 06 and 08, with the
cases of their spec files. Both choose among the same configurations, with empty caches. The tuner's seconds are of the
whole command `tune_gemm.py kernel --search full` for all cases of a kernel, with finals and checks; those of
triton.autotune are of its calls for the same cases, without imports. Times are medians of the tuner's run, with L2
emptied before each call; above 1, the tuner's choice is faster. Noise is what one kernel as two contenders differs by.
"""


@dataclass(frozen=True)
class Example:
    """host: the function that launches; "" where the spec says it all."""

    file: str
    kernel: str
    host: str = "run"


ALL = (
    Example("softmax", "softmax_rows", ""),
    Example("layer_norm", "layer_norm_rows"),
    Example("attention", "attention_rows"),
    Example("grouped_gemm", "grouped_matmul"),
)


TILELANG, CUTE, NVIDIAS = "GEMM in TileLang", "GEMM in CuTe DSL", "NVIDIA's example GEMM in CuTe DSL"
QUACK = Example("cute_quack", "build", "")
IN_TILELANG = "tilelang_gemm"
FILES = (*(one.file for one in ALL), IN_TILELANG, QUACK.file)
# What the examples in other languages are built with.
PACKAGES = {IN_TILELANG: ("tilelang",), QUACK.file: ("nvidia-cutlass-dsl", "quack-kernels")}


class Failed(Exception):
    """One of the choosings gave no result."""


@dataclass(frozen=True)
class Tuned:
    """What a run of the tuner found. rows: of its results file; noise_pct: its noise floor, None if unknown."""

    rows: tuple[Row, ...]
    header: dict[str, Any]
    folder: Path
    seconds: float
    noise_pct: float | None


def tuned(example: Example, out: Path, profiler: str, budget: str) -> Tuned:
    """Raises Failed."""
    from gemm_tuner.store import results
    from gemm_tuner.store.run_record import RUN_FILE

    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(ROOT / "tune_gemm.py"), "kernel", f"{EXAMPLES / example.file}.py:{example.kernel}"]
    command += ["--host", f"{EXAMPLES / example.file}.py:{example.host}"] if example.host else []
    command += ["--spec", f"{EXAMPLES / example.file}.yaml", "--output_dir", str(out), "-o", str(out / "tuned.yaml")]
    environment = {**os.environ, "GEMM_TUNER_CACHE_DIR": str(out / "cache")}
    began = time.perf_counter()
    command += ["--search", "full", "--profiler", profiler, *(["--budget", budget] if budget else [])]
    done = subprocess.run(command, env=environment, check=False)
    seconds = time.perf_counter() - began
    if done.returncode not in (0, 1) or not (out / "tuned.yaml").is_file():
        raise Failed(f"tune_gemm.py kernel ended with status {done.returncode}")
    found = results.read(out / "tuned.yaml")
    folder = results.run_folder(out / "tuned.yaml", found.header)
    if folder is None or not found.rows:
        raise Failed("; ".join(why for _, why in found.without_config) or "no row was written")
    noise = json.loads((folder / RUN_FILE).read_text(encoding="utf-8")).get("notes", {}).get("noise_pct")
    return Tuned(found.rows, found.header, folder, seconds, noise[1] if noise else None)


def autotuned(example: Example, out: Path, cases: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], float]]:
    """(triton.autotune's choice, seconds) of each case, its process and its imports not counted. Raises Failed."""
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": str(out / f"triton-{time.time_ns()}"),
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in (str(EXAMPLES), *sys.path) if path),
    }
    command = [sys.executable, __file__, "--choose", example.file, json.dumps(cases)]
    lines = last_lines(command, environment, "triton.autotune", len(cases))
    return [(found["config"], found["seconds"]) for found in map(json.loads, lines)]


def last_lines(command: list[str], environment: dict[str, str], title: str, count: int) -> list[str]:
    """The last ``count`` lines that a command prints. Raises Failed."""
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{title} took more than {LIMIT_S} s") from error
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) < count:
        last = (done.stderr.strip().splitlines() or ["it printed too little"])[-1]
        raise Failed(f"{title} ended with status {done.returncode}: {last}")
    return lines[-count:]


def choose(file: str, cases: list[dict[str, Any]]) -> None:
    """Prints triton.autotune's choice among the configurations of an example, a line a case."""
    import torch

    (example,) = [one for one in ALL if one.file == file]
    module = importlib.import_module(file)
    kernel = getattr(module, example.kernel)
    torch.zeros(1, device="cuda")
    for case in cases:
        began = time.perf_counter()
        if example.host:
            kernel.cache.clear()  # its key may leave out what the cases differ in
            getattr(module, example.host)(**case)
            chosen = kernel.best_config
        else:
            chosen = softmax_by_autotune(kernel, **case)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        config = {name: value for name, value in chosen.all_kwargs().items() if value is not None}
        print(json.dumps({"config": config, "seconds": seconds}), flush=True)


def softmax_by_autotune(kernel: Any, rows: int, cols: int, dtype: str) -> Any:
    """The choice among the configurations of softmax.yaml."""
    import torch
    import triton
    import yaml

    assert dtype == "fp16"
    params = yaml.safe_load((EXAMPLES / "softmax.yaml").read_text())["params"]
    block = triton.next_power_of_2(cols)
    configs = [
        triton.Config({"ROWS": count}, num_warps=warps)
        for count in params["ROWS"]
        for warps in params["num_warps"]
        if block <= 2048 * warps
    ]
    own = triton.autotune(configs=configs, key=["n_cols"])(kernel)
    x = torch.randn(rows, cols, device="cuda", dtype=torch.float16)
    own[lambda meta: (triton.cdiv(rows, meta["ROWS"]),)](torch.empty_like(x), x, cols, rows, cols, BLOCK=block)
    return own.best_config


def compared(run: Path, row: Row, theirs: dict[str, Any]) -> tuple[str, float, float]:
    """(stage, microseconds of our choice, of theirs), in the finals where both were there, else in the screening.
    Raises Failed where their choice was not timed."""
    import pandas as pd

    from gemm_tuner.space.size_state import SAME_CODE_AS

    table = pd.read_csv(run / "configs" / f"{row.problem.key}.csv.gz")

    def at(config: dict[str, Any]) -> pd.Series[Any]:
        there = table
        for name, value in config.items():
            there = there[there[name] == value] if name in there else there
        if there.empty:
            raise Failed(f"{config_text(config)} is not among the configurations of {row.problem.shape}")
        found = there.iloc[0]
        same = table[table["name"] == str(found["message"]).removeprefix(SAME_CODE_AS)]
        return found if same.empty else same.iloc[0]

    ours, others = at(row.config.options() if row.config else {}), at(theirs)
    for stage in ("finals", "screen"):
        times = float(ours[f"{stage}_us"]), float(others[f"{stage}_us"])
        if not any(map(pd.isna, times)):
            return stage, *times
    raise Failed(f"triton.autotune's choice {config_text(theirs)} was not timed: {others['status']}")


class Page:
    """The file that is written line by line, and what its lines came to."""

    def __init__(self, path: Path) -> None:
        self.path, self.failed, self.ratios = path, False, list[float]()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")

    def say(self, line: str) -> None:
        print(line, flush=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def say_failed(self, title: str, error: Failed) -> None:
        self.failed = True
        self.say_row([title, str(error)])

    def say_row(self, cells: Sequence[str]) -> None:
        whole = [*cells, *[""] * (len(HEAD) - len(cells))]
        self.say(f"| {' | '.join(cell.replace('|', '/') for cell in whole)} |")

    def say_kernel(self, example: Example, out: Path, found: Tuned) -> None:
        """A row of the table for each case. The seconds are those of all cases. Raises Failed."""
        from gemm_tuner.kernels.problem import KernelProblem

        cases = [row.problem.values for row in found.rows if isinstance(row.problem, KernelProblem)]
        choices = autotuned(example, out, cases)
        seconds = [f"{found.seconds:.1f}", f"{sum(one for _, one in choices):.1f}"]
        noise = "-" if found.noise_pct is None else f"{found.noise_pct:.2f}"
        for row, (theirs, _) in zip(found.rows, choices, strict=True):
            title, ours = f"{example.file} {row.problem.shape}", row.config.options() if row.config else {}
            try:
                stage, our_us, their_us = compared(found.folder, row, theirs)
            except Failed as error:
                self.say_failed(title, error)
                continue
            self.ratios.append(their_us / our_us)
            times = f"{our_us:.2f}", f"{their_us:.2f}", f"{their_us / our_us:.3f}"
            texts = config_text(ours), config_text({name: theirs[name] for name in ours if name in theirs})
            self.say_row([title, texts[0], times[0], texts[1], *times[1:], stage, noise, *seconds, row.verified.value])
            seconds = ["", ""]


def say_cute(page: Page, out: Path, profiler: str, budget: str) -> str:
    """Rows of QuACK's GEMM in CuTe DSL, of which triton.autotune has no choice. Returns the machine, "" without the
    DSL. Raises Failed."""
    from gemm_tuner.languages.cute import extra

    if extra.why_absent():
        page.say_row([CUTE, "not installed: pip install '.[cute]'"])
        return ""
    found = tuned(QUACK, out / QUACK.file, profiler, budget)
    seconds = f"{found.seconds:.1f}"
    for row in found.rows:
        config, us = config_text(row.config.options() if row.config else {}), f"{row.facts['median_us']:.2f}"
        noise = "" if found.noise_pct is None else f"{found.noise_pct:.2f}"
        page.say_row([f"{CUTE} {row.problem.shape}", config, us, *[""] * 4, noise, seconds, "", row.verified.value])
        seconds = ""
    return machine_text(found.header)


def tilelang_cells() -> list[str]:
    """The row of the GEMM in TileLang. Raises Failed."""
    if importlib.util.find_spec("tilelang") is None:
        return [TILELANG, "not installed: pip install '.[tilelang]'"]
    return cells_of_example(TILELANG, f"{IN_TILELANG}.py")


def cells_of_example(title: str, *words: str) -> list[str]:
    """The row of an example that tunes itself: what it prints last. Raises Failed."""
    places = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": places}
    began = time.perf_counter()
    (last,) = last_lines([sys.executable, str(EXAMPLES / words[0]), *words[1:]], environment, title, 1)
    return [title, last, *[""] * 6, f"{time.perf_counter() - began:.1f}"]


def versions_text(files: Sequence[str]) -> str:
    """The versions of the packages of the other languages that are there; begins with a comma."""
    found = []
    for name in itertools.chain.from_iterable(PACKAGES.get(file, ()) for file in files):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f", {name} {metadata.version(name)}")
    return "".join(found)


def config_text(config: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items())


def machine_text(header: dict[str, Any]) -> str:
    names = ("driver", "python", "torch", "triton")
    versions = ", ".join(f"{name} {header.get(name)}" for name in names)
    return f"{header.get('device')}, {versions}, {header.get('profiler')} {header.get('profiler_version')}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", metavar="TABLE.md", type=Path, nargs="?", default=Path("kernels_of_users.md"))
    parser.add_argument("--work", type=Path, default=Path("users"), help="folder of runs (default: %(default)s)")
    parser.add_argument("--profiler", default="nsys")
    parser.add_argument("--budget", default="", metavar="TIME", help="of each tuning (default: without end)")
    parser.add_argument("--only", nargs="+", default=FILES, choices=FILES, help="examples (default: all)")
    parser.add_argument("--kernel_from", metavar="FILE", type=Path, help="NVIDIA's file: tunes cute_gemm.py's kernels")
    parser.add_argument("--choose", nargs=2, metavar=("FILE", "CASES"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.choose:
        choose(given.choose[0], json.loads(given.choose[1]))
        return 0
    page, machine = Page(given.table), ""
    page.say("# Kernels of users: our choice and triton.autotune's\n")
    words = [given.table.name if word == str(given.table) else word for word in sys.argv[1:]]
    page.say(f"    {shlex.join(['python', 'benchmarks/kernels_of_users.py', *words])}\n")
    page.say_row(HEAD)
    page.say("|---|---|---:|---|---:|---:|---|---:|---:|---:|---|")
    for example in [one for one in ALL if one.file in given.only]:
        try:
            found = tuned(example, given.work / example.file, given.profiler, given.budget)
            machine = machine_text(found.header)
            page.say_kernel(example, given.work / example.file, found)
        except Failed as error:
            page.say_failed(example.file, error)
    try:
        if IN_TILELANG in given.only:
            page.say_row(tilelang_cells())
    except Failed as error:
        page.say_failed(TILELANG, error)
    try:
        if QUACK.file in given.only:
            machine = say_cute(page, given.work, given.profiler, given.budget) or machine
    except Failed as error:
        page.say_failed(CUTE, error)
    try:
        if given.kernel_from:
            workers = ("--workers", str(os.cpu_count() or 1))
            page.say_row(cells_of_example(NVIDIAS, "cute_gemm.py", "--kernel_from", str(given.kernel_from), *workers))
    except Failed as error:
        page.say_failed(NVIDIAS, error)
    machine = (machine or "nothing was tuned under a profiler") + versions_text(given.only)
    page.say(f"\n{time.strftime('%Y-%m-%d')}, {machine}. {EXPLAINED}")
    if page.ratios:
        page.say(f"Least ratio: {min(page.ratios):.3f}.")
    return int(page.failed)


if __name__ == "__main__":
    sys.exit(main())
