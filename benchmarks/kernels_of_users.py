"""Tunes the examples in examples/kernels on the GPU at hand, and has triton.autotune choose among the same
configurations.

``python benchmarks/kernels_of_users.py OUT_DIR`` prints a table: the time of each choice as the tuner measured it, in
the same stage of one run, and how long each choosing took, caches empty. Each choosing is a process of its own. Lines
are printed, and added to OUT_DIR/table.md, as they are known; a kernel that fails costs its own lines, and the exit
status is then 1. The same command goes on with tunings that did not end.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:  # the process of triton.autotune imports neither pandas nor the tuner
    import pandas as pd

    from gemm_tuner.store.results import Row

EXAMPLES = ROOT / "examples" / "kernels"
# Of one choosing by triton.autotune.
LIMIT_S = 300


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


class Failed(Exception):
    """One of the choosings gave no result."""


def tuned(example: Example, out: Path, profiler: str, budget: str) -> tuple[list[Row], Path, float]:
    """(rows of the results file, folder of the run, seconds). Raises Failed."""
    from gemm_tuner.store import results

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
    return list(found.rows), folder, seconds


def autotuned(example: Example, out: Path, case: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """(triton.autotune's choice for a case, seconds), its process and its imports not counted. Raises Failed."""
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": str(out / f"triton-{time.time_ns()}"),
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in (str(EXAMPLES), *sys.path) if path),
    }
    command = [sys.executable, __file__, "--choose", example.file, json.dumps(case)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"triton.autotune took more than {LIMIT_S} s for {case}") from error
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise Failed(f"triton.autotune ended with status {done.returncode} for {case}: {last}")
    found = json.loads(lines[-1])
    return found["config"], found["seconds"]


def choose(file: str, case: dict[str, Any]) -> None:
    """Prints triton.autotune's choice among the configurations of an example."""
    import torch
    import triton

    (example,) = [one for one in ALL if one.file == file]
    module = importlib.import_module(file)
    kernel = getattr(module, example.kernel)
    torch.zeros(1, device="cuda")
    began = time.perf_counter()
    if example.host:
        getattr(module, example.host)(**case)
    else:
        kernel = softmax_by_autotune(kernel, **case)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    config = {name: value for name, value in kernel.best_config.all_kwargs().items() if value is not None}
    print(json.dumps({"config": config, "seconds": seconds, "triton": triton.__version__}))


def softmax_by_autotune(kernel: Any, rows: int, cols: int, dtype: str) -> Any:
    """The configurations of softmax.yaml under triton.autotune."""
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
    return own


def compared(run: Path, row: Row, theirs: dict[str, Any]) -> tuple[str, float, float]:
    """(stage, microseconds of our choice, of theirs), in the finals where both were there, else in the screening.
    Raises Failed where their choice was not timed."""
    import pandas as pd

    table = pd.read_csv(run / "configs" / f"{row.problem.key}.csv.gz")

    def at(config: dict[str, Any]) -> pd.Series[Any]:
        there = table
        for name, value in config.items():
            there = there[there[name] == value] if name in there else there
        if there.empty:
            raise Failed(f"{config_text(config)} is not among the configurations of {row.problem.shape}")
        return there.iloc[0]

    ours, others = at(row.config.options() if row.config else {}), at(theirs)
    stage = "finals" if pd.notna(ours["finals_us"]) and pd.notna(others["finals_us"]) else "screen"
    return stage, float(ours[f"{stage}_us"]), float(others[f"{stage}_us"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT_DIR", type=Path, nargs="?", default=Path("users"))
    parser.add_argument("--profiler", default="nsys")
    parser.add_argument("--budget", default="", metavar="TIME", help="wall time of each tuning, such as 80s")
    parser.add_argument("--only", nargs="+", default=[one.file for one in ALL], choices=[one.file for one in ALL])
    parser.add_argument("--choose", nargs=2, metavar=("FILE", "CASE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.choose:
        choose(arguments.choose[0], json.loads(arguments.choose[1]))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    failed = False
    with (arguments.out / "table.md").open("w") as file:

        def say(line: str) -> None:
            print(line, flush=True)
            print(line, file=file, flush=True)

        say("| kernel | tuned | us | triton.autotune's choice | us | ratio | stage | tuner s | autotune s | verified |")
        say("|---|---|---|---|---|---|---|---|---|---|")
        for example in [one for one in ALL if one.file in arguments.only]:
            out = arguments.out / example.file
            try:
                rows, run, seconds = tuned(example, out, arguments.profiler, arguments.budget)
            except Failed as error:
                rows, failed = [], True
                say(f"| {example.file} | {error} | | | | | | | | |")
            for row in rows:
                try:
                    say(line_of(example, out, row, run, seconds / len(rows)))
                except Failed as error:
                    failed = True
                    say(f"| {example.file} {row.problem.shape} | {error} | | | | | | {seconds:.0f} | | |")
    sys.exit(failed)


def line_of(example: Example, out: Path, row: Row, run: Path, seconds: float) -> str:
    """A row of the table. seconds: of the tuner, for one case. Raises Failed."""
    from gemm_tuner.kernels.problem import KernelProblem

    assert isinstance(row.problem, KernelProblem)
    theirs, their_seconds = autotuned(example, out, row.problem.values)
    stage, our_us, their_us = compared(run, row, theirs)
    ours = config_text(row.config.options() if row.config else {})
    cells = [f"{example.file} {row.problem.shape}", ours, f"{our_us:.2f}", config_text(theirs), f"{their_us:.2f}"]
    cells += [f"{their_us / our_us:.3f}", stage, f"{seconds:.0f}", f"{their_seconds:.1f}", row.verified.value]
    return f"| {' | '.join(cells)} |"


def config_text(config: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items() if name not in ("num_ctas", "num_stages"))


if __name__ == "__main__":
    main()
