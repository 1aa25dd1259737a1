"""Fused MoE layers of public models at small sizes of the same kind, in the interpreter, against float64."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from moe_models import MODELS, SOURCES, layer, sample
from moe_runner import checked
from samples import TEMPLATES, device

from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import SERVERS
from gemm_tuner.moe.workload import WORKLOAD
from gemm_tuner.source import codegen

SAMPLE = 1
PLACES = list(SOURCES)


@pytest.mark.parametrize(
    ("model", "server"),
    [
        pytest.param(model, server, marks=() if row % len(SOURCES) == PLACES.index(server) else pytest.mark.grid)
        for (row, model), server in itertools.product(enumerate(MODELS), SOURCES)
    ],
)
def test_the_default_and_a_sample_are_right_at_the_sizes_of_checks(model: str, server: str, tmp_path: Path) -> None:
    (problem,) = layer(model, "sm_90", server, tmp_path, "--m", "64")
    configs = sample(problem, "sm_90", SAMPLE)
    family, target = SERVERS[server].family, device("sm_90").target
    script = tmp_path / codegen.write_script(TEMPLATES, tmp_path, family, problem, configs, target).file
    for config in configs:
        small = WORKLOAD.check_problems(problem, config.to_dict(), descriptors=False, interpreted=True)
        for one in small:
            assert isinstance(one, MoeProblem) and one.rows * one.N * one.K <= 2**21
            as_large = {name: getattr(problem, name) for name in ("M", "E", "N", "K", "topk", "seeds")}
            assert replace(one, **as_large) == problem  # types, scales, activation and bias are the model's
            found = checked(str(script), one, config)
            assert found.ok and 0 < found.error_over_bound <= 1, found.message
