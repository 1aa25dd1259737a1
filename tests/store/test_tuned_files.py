"""The shipped results files, their page, and the table of who reads which type."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

from samples import ROOT

from gemm_tuner.consumers import CONSUMERS
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.store import results
from gemm_tuner.store.sizes import READABLE_VERSIONS

TUNED = ROOT / "results" / "tuned"


def test_the_shipped_files_read() -> None:
    assert len(list(TUNED.glob("*.yaml"))) >= 4 and 1 in READABLE_VERSIONS
    for path in TUNED.glob("*.yaml"):
        found = results.read(path)
        assert found.rows and not found.without_config, path.name


def make_readme() -> Any:
    spec = importlib.util.spec_from_file_location("make_readme", TUNED / "make_readme.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_their_page_is_what_the_files_say() -> None:
    written = (TUNED / "README.md").read_text(encoding="utf-8")
    assert written == make_readme().page(), "python results/tuned/make_readme.py writes it anew"


def test_the_page_says_of_moe_layers_what_was_tuned_and_who_takes_it(tmp_path: Path) -> None:
    rows = (ROOT / "tests" / "golden" / "export_moe" / "h200.yaml").read_text(encoding="utf-8")
    (tmp_path / "moe.yaml").write_text(rows, encoding="utf-8")
    calls = {str(m): {"us": {"default": 4.0 * m, "tuned": 2.0 * m}} for m in (1, 2)} | {"3": {"us": {"tuned": 1.0}}}
    (tmp_path / "moe.whole_calls.json").write_text(json.dumps(calls), encoding="utf-8")
    lines = "\n".join(make_readme().of_file(tmp_path / "moe.yaml"))
    assert "bf16 in vllm's fused MoE kernel, E=128 N=768 K=2048 top 8" in lines
    assert "fp8_w8a8 with block scales in sglang's fused MoE kernel" in lines
    assert "| the same of whole calls, alignment to sum | 2.000 (geometric mean over 2 sizes) |" in lines
    assert re.search(r"`export --to` takes \| vllm-moe [1-9]\d*, sglang-moe [1-9]", lines)


def test_the_table_of_readers_and_types_is_what_the_exports_do() -> None:
    text = (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")
    table = [line.split("|") for line in text.splitlines() if re.match(r"(bf16|fp8|fp32)[^|]* \|", line)]
    readers = ("vllm", "sglang", "aiter", "triton", "csv", "json")
    columns = (2, 3, 4, 5, 6, 6)
    asked = 0
    for cells in table:
        types, scaling = cells[0].strip().split(", "), cells[1].strip()
        if scaling not in ("none", "block", "row_col", "tensor"):
            continue
        for dtype in types:
            problem = GemmProblem(
                64, 4096, 4096, dtype, dtype, "fp32" if dtype == "fp32" else "bf16", Layout.ROW, Layout.COL,
                scaling=scaling,
            )  # fmt: skip
            for name, column in zip(readers, columns, strict=True):
                arch = "gfx942" if name == "aiter" else "sm_90"
                takes = not CONSUMERS[name].problem_fault(problem, arch)
                assert cells[column].strip() == ("yes" if takes else "no"), (name, dtype, scaling)
                asked += 1
    assert asked == 6 * 11
