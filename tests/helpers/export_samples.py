"""What the tests of export share: the hand-made results, and commands on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import quick_yaml
from samples import ROOT, config

from gemm_tuner.cli import main as cli
from gemm_tuner.consumers import CONSUMERS
from gemm_tuner.consumers.consumer import Offer
from gemm_tuner.consumers.sidecar import FILE_NAME
from gemm_tuner.core.records import Verified
from gemm_tuner.export import offers
from gemm_tuner.export.offers import LeftOut
from gemm_tuner.export.trust import Trust
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.pipeline.check_now import CheckNow, Finding
from gemm_tuner.store import results

GOLDEN = ROOT / "tests" / "golden" / "export"
H20, MI300X = GOLDEN / "h20.yaml", GOLDEN / "mi300x.yaml"
SHIPPED = GOLDEN / "nvidia_h200_fp8_block.yaml"  # a real file of format_version 1
VLLM = Path("vllm/model_executor/layers/quantization/utils/configs")
AITER = Path("aiter/ops/triton/configs")
FILE = VLLM / "N=7168,K=2048,device_name=NVIDIA_H20,dtype=fp8_w8a8,block_shape=[128,128].json"
DEFAULT = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 32, "num_warps": 4}


def export(*words: object) -> int:
    return cli.main(["export", *map(str, words)])


def rows(path: Path) -> list[dict[str, Any]]:
    return list(quick_yaml.load(path.read_text())["configs"])


def edited(path: Path, out: Path, **changes: Any) -> Path:
    """A copy of a results file: ``header`` and ``configs`` changed by functions of the same names."""
    document = quick_yaml.load(path.read_text())
    for key, change in changes.items():
        document[key] = change(document[key])
    out.write_text(quick_yaml.dump(document))
    return out


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != FILE_NAME)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def side(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / FILE_NAME).read_text())
    return found


def with_table(folder: Path, *timed: tuple[KernelConfig, float, float | None]) -> Path:
    """Results whose only size was won by gemm_split_k, beside a table of it: config, screen_us, finals_us."""
    row = next(row for row in rows(H20) if row["family"] == "gemm_split_k")
    folder.mkdir(exist_ok=True)
    results = edited(H20, folder / "tuned.yaml", configs=lambda found: [row], without_config=lambda found: [])
    won = config(
        **{key: row[key] for key in row if key.startswith(("BLOCK", "GROUP", "SPLIT", "num_"))}, family=row["family"]
    )
    table = [
        {"name": one.name, "status": "ok", **one.to_dict(), "screen_us": screen, "finals_us": finals}
        for one, screen, finals in ((won, 12.8, 12.7), *timed)
    ]
    (folder / "configs").mkdir()
    key = "64x4096x7168_fp8_e4m3_fp8_e4m3_bf16_nt_scale_block"
    pd.DataFrame(table).to_csv(folder / "configs" / f"{key}.csv.gz", index=False)
    return results


def faster(out: Path, m: int, us: float, **changes: int) -> Path:
    """Results with one row: that of the hand-made file at this M, with another time and config."""
    return edited(H20, out, configs=lambda found: [{**r, "median_us": us, **changes} for r in found if r["M"] == m][:1])


class Judge:
    """Stands for a check that finds these configurations right."""

    def __init__(self, how: Verified, *right: KernelConfig) -> None:
        self.how, self.right = how, {one.name for one in right}

    def first_right(self, candidates: Mapping[GemmProblem, Sequence[KernelConfig]]) -> dict[GemmProblem, Finding]:
        found = {}
        for problem, configs in candidates.items():
            name = next((one.name for one in configs if one.name in self.right), "")
            found[problem] = Finding(name, "" if name else "the first is wrong")
        return found


def collected(
    path: Path, consumer: str, trust: Trust, find_check: Callable[[], CheckNow]
) -> tuple[list[Offer], list[LeftOut]]:
    """What a consumer is offered of a results file, and what not."""
    to = CONSUMERS[consumer]

    def config_fault(problem: GemmProblem, one: KernelConfig) -> str:
        return to.config_fault(problem, one, "sm_90")

    return offers.collect(results.read(path), path, to, config_fault, trust, find_check)
