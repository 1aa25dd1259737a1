"""Lists of sizes, read or refused."""

from __future__ import annotations

from pathlib import Path

from samples import load_sizes

from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.store.sizes import SizeEntry
from gemm_tuner.system.documents import dump_yaml

SIZE = {"M": 16, "N": 32, "K": 64}
CONFIG = {
    "BLOCK_SIZE_M": 128,
    "BLOCK_SIZE_N": 256,
    "BLOCK_SIZE_K": 64,
    "GROUP_SIZE_M": 8,
    "SPLIT_K": 2,
    "num_warps": 8,
    "num_stages": 3,
}
ROCM = {"waves_per_eu": 2, "kpack": 2, "matrix_instr_nonkdim": 16}
ROCM_LIST = """
- {'M': 4864, 'N': 4096, 'K': 4096, 'rowMajorA': 'T', 'rowMajorB': 'N', 'BLOCK_SIZE_M': 256, \
'BLOCK_SIZE_N': 256, 'BLOCK_SIZE_K': 64, 'GROUP_SIZE_M': 8, 'SPLIT_K': 1, 'num_warps': 8, 'num_stages': 2, \
'waves_per_eu': 0, 'kpack': 1, 'matrix_instr_nonkdim': 16, 'schedule_hint': 'none'}  # TFLOPS: 5 time(us): 3
- {'M': 1, 'N': 2, 'K': 3, 'rowMajorA': 'N', 'rowMajorB': 'T'}
"""


def load(path: Path, value: object, defaults: Defaults | None = None) -> tuple[SizeEntry, ...]:
    path.write_text(value if isinstance(value, str) else dump_yaml(value))
    return load_sizes(path, defaults or Defaults()).entries
