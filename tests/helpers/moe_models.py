"""Fused MoE layers of public models, as ``tune_gemm.py moe`` reads them off config.json, and samples of spaces."""

from __future__ import annotations

import random
from pathlib import Path

import moe_kernel_source
from samples import ROOT, device

from gemm_tuner.cli import commands
from gemm_tuner.cli.commands import moe
from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.pipeline import prepare
from gemm_tuner.space import prune

DATA = ROOT / "tests" / "data" / "moe"
# With the ranks that they are served on; gpt-oss has experts of 4-bit floats.
MODELS = {
    "deepseek_v3": ("--tp", "8"),
    "qwen3_235b_a22b": ("--tp", "4"),
    "mixtral_8x7b": (),
    "llama4_maverick": ("--tp", "8"),
    "gpt_oss_120b": ("--dtype", "bf16"),
}
SOURCES = {"vllm": moe_kernel_source.VLLM, "sglang": moe_kernel_source.sglang()}


def layer(model: str, arch: str, server: str, folder: Path | None = None, *more: str) -> list[MoeProblem]:
    """The problems of a model. folder: of the kernel's file; without one they have no kernel."""
    words = ["--from", str(DATA / f"{model}.json"), "--arch", arch, *MODELS[model], *more]
    if folder is None:
        words += ["--dry_run", "--serve", server]
    else:
        folder.mkdir(exist_ok=True)
        file = folder / "fused_moe.py"
        file.write_text(SOURCES[server])
        words += ["--kernel_from", str(file)]
    return moe.problems(commands.build_parser("moe").parse(words))


def kept(problem: MoeProblem, arch: str) -> list[PlainConfig]:
    """The configurations that the rules keep."""
    of = device(arch)
    own = WORKLOAD.own_space([problem], of)
    frame = WORKLOAD.frame({family: dict(axes) for family, axes in own.families.items()})
    found = prune.apply(prune.columns_of(frame), problem, of, prepare.rules_of(own)).kept
    return [PlainConfig.from_dict(one.to_dict()) for one in WORKLOAD.configs_of(frame.iloc[found])]


def sample(problem: MoeProblem, arch: str, count: int) -> list[PlainConfig]:
    """The server's default, and some of what the rules keep of its kernel: the same ones each time."""
    default = WORKLOAD.default_config(problem, device(arch))
    others = [one for one in kept(problem, arch) if one != default and one.family == default.family]
    return [default, *random.Random(problem.shape).sample(others, count)]
