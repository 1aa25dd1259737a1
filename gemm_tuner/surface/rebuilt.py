"""Rebuilds configurations of a factory in another process, to be timed under an external profiler."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.surface import trial_job
from gemm_tuner.surface.configurations import Candidate
from gemm_tuner.surface.job import address, at_address
from gemm_tuner.surface.profile_args import CompileArgs, ProfileArgs
from gemm_tuner.surface.records import Call, Config
from gemm_tuner.surface.supply import TensorSupplyType
from gemm_tuner.surface.trial_worker import load
from gemm_tuner.surface.tunables import Arguments, Function, Tunable
from gemm_tuner.surface.tuning import Tuning

PROGRAMS = ("ref_prog", "supply_prog", "manual_check_prog")
NUMBERS = ("warmup", "rep", "rtol", "atol", "max_mismatched_ratio", "skip_check", "cache_input_tensors")


def build_of(tunable: Tunable, profile: ProfileArgs, given: Any) -> functools.partial[Call]:
    """The ``build`` for ``tune_callables(profiler=)``. Raises UserError naming what another process cannot import."""
    where = tunable.name
    if not isinstance(tunable, Function):
        hint = "tune_gemm.py kernel FILE.py:NAME tunes a Triton kernel under a profiler"
        raise UserError("is no factory of kernels, which another process could call", where=where, hint=hint)
    if given is not None:
        raise UserError(
            "the tensors of set_autotune_inputs cannot be rebuilt in another process", where=where,
            hint="give supply_prog=, a function at the top level of a module",
        )  # fmt: skip
    job = trial_job.job_of(tunable, profile, given)
    asked = {
        "supply_type": profile.supply_type.name,
        "programs": {name: address(one, name) for name in PROGRAMS if (one := getattr(profile, name)) is not None},
        **{name: getattr(profile, name) for name in NUMBERS},
    }
    return functools.partial(rebuilt, json.dumps(asdict(job)), json.dumps(asked))


def rebuilt(job: str, asked: str, config: Config) -> Call:
    """Builds a configuration in the other process."""
    return _tuning(job, asked).call(Candidate(config))


@functools.lru_cache(maxsize=4)
def _tuning(job: str, asked: str) -> Tuning:
    """The tuning that all configurations of a process share, with its inputs and the facts from the first run."""
    of_job: Mapping[str, Any] = json.loads(job)
    found: dict[str, Any] = json.loads(asked)
    found |= {name: at_address(where) for name, where in found.pop("programs").items()}
    supply_type = TensorSupplyType[found.pop("supply_type")]
    arguments = Arguments(tuple(of_job["args"]), of_job["kwargs"])
    function = Function(load(of_job["function"]), arguments, CompileArgs(**of_job["compile_args"]))
    return Tuning(function, ProfileArgs(supply_type=supply_type, timeout=0, **found))
