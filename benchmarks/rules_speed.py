"""Times the rules over spaces of every architecture, and over one of 132 000 configurations (ROCm's axes)."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.space import prune, space

ROCM_AXES = {
    "BLOCK_SIZE_M": [16, 32, 64, 128, 256],
    "BLOCK_SIZE_N": [16, 32, 64, 128, 256],
    "BLOCK_SIZE_K": [16, 32, 64, 128, 256],
    "GROUP_SIZE_M": [1, 2, 4, 8, 16, 32],
    "SPLIT_K": [1, 2, 4, 5, 6, 8, 10, 12, 16, 18, 24],
    "num_warps": [1, 2, 4, 8],
    "num_stages": [2],
    "waves_per_eu": [0],
    "matrix_instr_nonkdim": [16, 32],
    "kpack": [1, 2],
}


def median_ms(path: Path, arch: str, repeats: int = 21) -> tuple[int, int, float]:
    """(configurations, kept, milliseconds) of 4096 x 4096 x 4096."""
    loaded = space.load(path, arch)
    columns = prune.columns_of(space.frame(loaded))
    rules = prune.load_rules(ROOT / "rules")
    problem = GemmProblem(4096, 4096, 4096)
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        pruned = prune.apply(columns, problem, loaded.device, rules, loaded.families)
        times.append((time.perf_counter() - started) * 1e3)
    return len(columns.BLOCK_SIZE_M), len(pruned.kept), statistics.median(times)


def main() -> int:
    print(f"{'space':<28}{'configurations':>15}{'kept':>8}{'median ms':>11}")
    for arch in space.known_archs(ROOT / "rules"):
        total, kept, took_ms = median_ms(ROOT / "rules" / f"space_{arch}.yaml", arch)
        print(f"{arch:<28}{total:>15}{kept:>8}{took_ms:>11.1f}")
    document = yaml.safe_load((ROOT / "rules" / "space_gfx942.yaml").read_text())
    document["families"]["gemm_tile"] = ROCM_AXES
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rocm_axes.yaml"
        path.write_text(yaml.safe_dump(document))
        total, kept, took_ms = median_ms(path, "gfx942")
    print(f"{'gfx942, the axes of ROCm':<28}{total:>15}{kept:>8}{took_ms:>11.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
