"""Tunes softmax.py's kernel as AITER's scripts tune theirs, with their import changed to gemm_tuner.

  pip install .                                                 # in the tuner's repository
  python examples/kernels/tune_softmax.py --rows 64 256 4096 --save_path configs
  python examples/kernels/tune_softmax.py --rows 4096           # one size: prints the best

On a GPU the Triton kernel is timed. Without one, PyTorch computes as many rows at a time as the configuration says, in
its place, and the times are those of this CPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import triton
from softmax import reference, softmax_rows

from gemm_tuner import tune_and_save_configs, tune_kernel

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


# Step 1: inputs.
def input_helper(rows: int, cols: int, dtype: torch.dtype, config: dict[str, Any]) -> tuple[Any, ...]:
    x = torch.randn(rows, cols, dtype=dtype, device=DEVICE)
    out = torch.empty_like(x)
    return x, out, config


def softmax(x: Any, out: Any, config: dict[str, Any]) -> Any:
    rows, cols = x.shape
    if DEVICE == "cuda":
        softmax_rows[(triton.cdiv(rows, config["ROWS"]),)](
            out, x, x.stride(0), rows, cols, BLOCK=triton.next_power_of_2(cols), **config
        )
    else:
        for first in range(0, rows, config["ROWS"]):
            block = slice(first, first + config["ROWS"])
            torch.softmax(x[block], dim=-1, out=out[block])
    return out


# Steps 2 and 3: the reference, and what makes a run and its ground truth.
def make_run_and_gt_fn_factory(rows: int, cols: int, dtype: torch.dtype) -> Any:
    def make_run_and_gt(config: dict[str, Any]) -> tuple[Any, Any]:
        x, out, config = input_helper(rows, cols, dtype, config)

        def run() -> Any:
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
            return softmax(x, out, config)

        return run, reference(x, torch.float32)

    return make_run_and_gt


# Step 4: one size.
def tune_softmax(rows: int, cols: int, dtype: torch.dtype, search_space: list[dict[str, Any]]) -> dict[str, Any]:
    return tune_kernel(search_space=search_space, make_run_and_gt_fn=make_run_and_gt_fn_factory(rows, cols, dtype))


# Step 6: the space.
def get_custom_search_space() -> list[dict[str, Any]]:
    warps = (1, 4, 8) if DEVICE == "cuda" else (1,)
    return [{"ROWS": rows, "num_warps": num_warps} for rows in (1, 4, 16) for num_warps in warps]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 256, 4096])
    parser.add_argument("--cols", type=int, default=1024)
    parser.add_argument("--save_path", default="configs")
    parser.add_argument("--output_dir", default="results", help="where the logs and tables of the runs go")
    given = parser.parse_args()
    if len(given.rows) == 1:
        print(tune_softmax(given.rows[0], given.cols, torch.float32, get_custom_search_space()))
        return
    # Step 5: all sizes, one configuration for each range of them.
    tune_and_save_configs(
        given.rows,
        lambda rows: make_run_and_gt_fn_factory(rows, given.cols, torch.float32),
        get_custom_search_space(),
        given.save_path,
        torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU",
        kernel_name="SOFTMAX",
        output_dir=Path(given.output_dir),
    )


if __name__ == "__main__":
    main()
