"""``python cute_calls.py SIZES``: calls ``tuned_gemm`` twice for each (M, N, K, biased, layouts of A and B), and prints
what was wrong, what was launched and what it said of Triton. A script of the checkout, so that it starts warm."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch
import tuned_gemm


def matrix(rows: int, columns: int, layout: str) -> torch.Tensor:
    return (torch.randn(rows, columns) if layout == "row" else torch.randn(columns, rows).T).half()


def main(sizes: list[tuple[int, int, int, bool, str, str]]) -> dict[str, Any]:
    tuned_gemm._check_device = lambda tensors: None
    tuned_gemm._INTERPRETED = False  # else no kernel is launched but Triton's
    wrong = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for m, n, k, biased, layout_a, layout_b in sizes:
            for alpha in (2.0, -0.5):  # whatever is kept of the first call shows in the second
                a, b = matrix(m, k, layout_a), matrix(k, n, layout_b)
                more = {"bias": torch.randn(n).half(), "alpha": alpha} if biased else {}
                c = tuned_gemm.matmul(a, b, **more)
                expected = (alpha if biased else 1.0) * (a.float() @ b.float())
                expected += more["bias"].float() if biased else 0
                if not torch.allclose(c.float(), expected, atol=0.1, rtol=0.01):
                    wrong.append([m, n, k, alpha])
    calls = list(sys.modules["tvm_ffi"].CALLS) if "tvm_ffi" in sys.modules else []
    return {
        "wrong": wrong,
        "calls": calls,
        "said": [str(one.message) for one in caught if "Triton" in str(one.message)],
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
