"""Writes README.md beside it: what each results file here holds, and what each reader can take of it."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from statistics import geometric_mean

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from gemm_tuner.store import results  # noqa: E402
from gemm_tuner.core.errors import EnvironmentFault  # noqa: E402
from gemm_tuner.consumers import CONSUMERS  # noqa: E402
from gemm_tuner.export import offers  # noqa: E402
from gemm_tuner.export.gemm.module import rows as module_rows  # noqa: E402
from gemm_tuner.gemm.config import KernelConfig  # noqa: E402
from gemm_tuner.gemm.problem import GemmProblem  # noqa: E402
from gemm_tuner.moe.problem import MoeProblem  # noqa: E402
from gemm_tuner.pipeline import check_now  # noqa: E402
from gemm_tuner.report import moe_calls  # noqa: E402
from gemm_tuner.store.results import Results  # noqa: E402
from gemm_tuner.export.offers import Trust  # noqa: E402

READERS = ("vllm", "sglang", "aiter", "triton", "csv", "json")
READERS_OF_MOE = ("vllm-moe", "sglang-moe")
LABELS = {moe_calls.DEFAULT, moe_calls.TUNED}
HEAD = """\
# Tuned configs

Results files of whole runs, in the format of [docs/results_format.md](../../docs/results_format.md). Give one to
`tune_gemm.py export` ([docs/exports.md](../../docs/exports.md)) or `compare`, or time its rows on your GPU:
`tune_gemm.py --gemm_size_file FILE --benchmark`. `python results/tuned/make_readme.py` writes this page from the files.
"""


def of_file(path: Path) -> list[str]:
    """The lines about one file: the run, what won, and how it compares with the vendor library and with servers."""
    found = results.read(path)
    header, rows = found.header, found.rows
    types = sorted({named(row.problem) for row in rows})
    families = Counter(row.config.family for row in rows if row.config)
    ratios = [row.facts["vendor_ratio"] for row in rows if "vendor_ratio" in row.facts]
    checks = Counter(row.verified.value for row in rows)
    cells = [
        (
            "GPU, profiler, Triton, date",
            ", ".join(str(header.get(key)) for key in ("device", "profiler", "triton", "date")),
        ),
        ("sizes", f"{len(rows)} of {', '.join(types)}"),
        ("families", ", ".join(f"{name} {count}" for name, count in families.most_common())),
        ("verified", ", ".join(f"{name} {count}" for name, count in checks.most_common())),
    ]
    if ratios:
        cells.append(("vendor_us / median_us", mean_of(ratios)))
    calls = [us for us in (one.get("us", {}) for one in moe_calls.read(path).values()) if us.keys() >= LABELS]
    if calls:
        ratios = [us[moe_calls.DEFAULT] / us[moe_calls.TUNED] for us in calls]
        cells.append(("the same of whole calls, alignment to sum", mean_of(ratios)))
    for name in ("vllm", "sglang", "aiter"):
        beside = [one for row in rows for one in row.served if one.consumer == name and one.default_us]
        if beside:
            ratio = geometric_mean(one.default_us / one.time_us for one in beside if one.default_us)
            cells.append((f"{name}'s default / what it can launch", f"{ratio:.3f} over {len(beside)} sizes"))
    if all(isinstance(row.problem, MoeProblem) for row in rows):
        taken_by = [(name, taken(found, name)) for name in READERS_OF_MOE]
    else:
        of_module = len(module_rows.select(found, Trust())[0])
        taken_by = [*((name, taken(found, name)) for name in READERS), ("module", of_module)]
    cells.append(("sizes that `export --to` takes", ", ".join(f"{name} {count}" for name, count in taken_by)))
    return ["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in cells)]


def mean_of(ratios: list[float]) -> str:
    return f"{geometric_mean(ratios):.3f} (geometric mean over {len(ratios)} sizes)"


def named(problem: GemmProblem | MoeProblem) -> str:
    """The types of a size, and of a fused MoE layer the server and the layer."""
    if isinstance(problem, GemmProblem):
        return problem.dtype_a + scaled(problem.scaling)
    layer = f"E={problem.E} N={problem.N} K={problem.K} top {problem.topk}"
    return f"{problem.dtype}{scaled(problem.scaling)} in {problem.server}'s fused MoE kernel, {layer}"


def scaled(scaling: str) -> str:
    return "" if scaling == "none" else f" with {scaling} scales"


def taken(found: Results, name: str) -> int:
    """How many sizes an export takes as they are, where no GPU is there to check others."""
    consumer, arch = CONSUMERS[name], str(found.header.get("arch", ""))
    if consumer.kind != GemmProblem.kind:
        return len(offers.collect_of_kind(found, consumer, Trust())[0])

    def no_check() -> check_now.CheckNow:
        raise EnvironmentFault("none here")

    def config_fault(problem: GemmProblem, config: KernelConfig) -> str:
        return consumer.config_fault(problem, config, arch)

    offered, _ = offers.collect(found, HERE / "any.yaml", consumer, config_fault, Trust(), no_check)
    return len(offered)


def page() -> str:
    parts = [HEAD]
    for path in sorted(HERE.glob("*.yaml")):
        parts += [f"## {path.name}\n", "\n".join(of_file(path)) + "\n"]
    return "\n".join(parts)


if __name__ == "__main__":
    (HERE / "README.md").write_text(page(), encoding="utf-8")
