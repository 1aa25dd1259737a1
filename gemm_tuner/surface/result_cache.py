"""Results of tuned functions, kept between processes: a folder for each thing that they depend on."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import platformdirs

from gemm_tuner.core.errors import UserError
from gemm_tuner.languages.kernel_cache import VARIABLE
from gemm_tuner.surface import fingerprints
from gemm_tuner.surface.autotune_result import AutotuneResult
from gemm_tuner.surface.configurations import PASS_CONFIGS, Candidate
from gemm_tuner.surface.fingerprints import NoFingerprint
from gemm_tuner.surface.profile_args import ProfileArgs

FOLDER = "autotune"
# Any of these, set to 1: nothing is read or kept. TileLang's are those of programs that are moved here.
DISABLE = ("GEMM_TUNER_DISABLE_CACHE", "TILELANG_DISABLE_CACHE", "TILELANG_AUTO_TUNING_DISABLE_CACHE")
# Attributes of TileLang's jit that change what it compiles.
JIT_OPTIONS = ("out_idx", "target", "target_host", "execution_backend", PASS_CONFIGS, "compile_flags")


def is_enabled() -> bool:
    return not any(os.environ.get(name, "0").lower() in ("1", "true", "yes", "on") for name in DISABLE)


def folder() -> Path:
    asked = os.environ.get(VARIABLE, "")
    root = Path(asked) if asked else platformdirs.user_cache_path("gemm_tuner", appauthor=False)
    return root / FOLDER


def key(
    function: Any, call: Any, candidates: Sequence[Candidate], profile: ProfileArgs, others: Mapping[str, Any]
) -> str:
    """Of everything that a result depends on: versions and GPU, the function, its call, the configurations, how it is
    timed and checked. Raises NoFingerprint naming what cannot be told apart."""
    facts: dict[str, Any] = {
        "machine": fingerprints.machine(),
        "function": function,
        "options": [str(getattr(function, name, None)) for name in JIT_OPTIONS],
        "configs": [(dict(one.values), one.pre_hook) for one in candidates],
        "call": call,
        **{one.name: getattr(profile, one.name) for one in fields(profile)},
        **others,
    }
    found = {}
    for name, fact in facts.items():
        try:
            found[name] = fingerprints.of(fact)
        except NoFingerprint as error:
            raise NoFingerprint(f"{name}: {error}") from error
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:32]


def kept(key: str, candidates: Sequence[Candidate]) -> tuple[Candidate, AutotuneResult] | None:
    """The result under a key, without a kernel, and the candidate that it names; None for a folder that says less."""
    path = folder() / key
    if not is_enabled() or not path.is_dir():
        return None
    try:
        result = AutotuneResult.read(path)
    except UserError:
        return None
    for one in candidates:
        if _plain(one.values) == _plain(result.config):
            return one, result
    return None


def _plain(config: Mapping[str, Any]) -> Any:
    """As it reads from JSON."""
    return json.loads(json.dumps(dict(config), default=str))


def keep(key: str, result: AutotuneResult) -> None:
    """Keeps a result; warns where it cannot be written."""
    if is_enabled():
        try:
            result.save_to_disk(folder() / key)
        except UserError as error:
            warnings.warn(f"the result is not kept: {error.one_line()}", stacklevel=2)
