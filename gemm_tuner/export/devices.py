"""The GPUs of ``--for``, and whether a configuration fits into their shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.space import prune, rule_answers, space
from gemm_tuner.system.values import did_you_mean

SHARED_MEMORY_RULES = ("shared_memory_fits", "shared_memory_fits_tiles_and_part", "lds_fits")


@dataclass(frozen=True, slots=True)
class Limit:
    """A GPU. arch: the architecture whose rules apply. shared_memory_bytes: limit of shared memory (LDS) per block."""

    name: str
    arch: str
    shared_memory_bytes: int


# (problem, config) -> why a GPU of --for cannot run it; "" if all can.
Fits = Callable[[GemmProblem, KernelConfig], str]


def table(rules_dir: Path) -> tuple[Limit, ...]:
    """The GPUs listed in the space files under ``gpus``."""
    files = ((arch, space.load(space.space_path(rules_dir, arch), arch)) for arch in space.known_archs(rules_dir))
    return tuple(Limit(name, arch, limit) for arch, file in files for name, limit in file.gpus)


def named(text: str, rules_dir: Path) -> tuple[Limit, ...]:
    """The GPUs of a list such as ``MI300X,H20``. Raises UserError for an unknown name."""
    devices = table(rules_dir)
    known = {limit.name.casefold(): limit for limit in devices}
    found = []
    for word in text.split(","):
        name = word.strip().casefold().replace(" ", "")
        if name not in known:
            listed = ", ".join(limit.name for limit in devices)
            hint = did_you_mean(name.upper(), [limit.name for limit in devices])
            raise UserError(f"the device {word.strip()[:60]!r} is not known", where="--for", accepted=listed, hint=hint)
        found.append(known[name])
    return tuple(found)


def fits(limits: tuple[Limit, ...], rules_dir: Path) -> Fits:
    """A function that applies the shared memory rules in ``rules_dir`` (docs/rules.md)."""
    if not limits:
        return lambda problem, config: ""
    rules = [rule for rule in prune.load_rules(rules_dir, heuristics=False) if rule.name in SHARED_MEMORY_RULES]
    devices = []
    for limit in limits:
        assumed = space.load(space.space_path(rules_dir, limit.arch), limit.arch).device
        devices.append(replace(assumed, name=limit.name, shared_memory_bytes=limit.shared_memory_bytes))

    def fault(problem: GemmProblem, config: KernelConfig) -> str:
        columns = prune.columns_of(pd.DataFrame([config.to_dict()]))
        for device in devices:
            applicable = [
                rule
                for rule in rules
                if rule.backend in ("", device.target.backend) and (not rule.families or config.family in rule.families)
            ]
            # Block scales are converted through shared memory, 4 bytes per row and column of the tile.
            scales_bytes = 4 * (config.BLOCK_SIZE_M + config.BLOCK_SIZE_N) if problem.scaling == "block" else 0
            left = replace(device, shared_memory_bytes=device.shared_memory_bytes - scales_bytes)
            if not all(rule_answers.evaluate(rule, columns, problem, left)[0] for rule in applicable):
                return f"its tiles take more shared memory than {device.name} has, {device.shared_memory_bytes} bytes"
        return ""

    return fault
