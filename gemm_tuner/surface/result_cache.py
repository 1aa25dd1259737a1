"""Stores results of tuned functions for later processes: one folder per key."""

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
# If any of these is 1, nothing is read or stored. TileLang's variables are supported for ported programs.
DISABLE = ("GEMM_TUNER_DISABLE_CACHE", "TILELANG_DISABLE_CACHE", "TILELANG_AUTO_TUNING_DISABLE_CACHE")
TILELANGS = "TILELANG_CACHE_DIR"
# Attributes of TileLang's jit that affect compilation.
JIT_OPTIONS = ("out_idx", "target", "target_host", "execution_backend", PASS_CONFIGS, "compile_flags")


def disabled_by() -> str:
    """The variable that is set, so that nothing is read or stored; "" for none."""
    return next((one for one in DISABLE if os.environ.get(one, "0").lower() in ("1", "true", "yes", "on")), "")


def warn_if_disabled(name: str, stacklevel: int) -> None:
    """Warns for a function that would be stored. The default filter of warnings shows each once."""
    if variable := disabled_by():
        what = f"{name}: the result is not kept for later processes: {variable} is set; unset it to keep results"
        warnings.warn(what, stacklevel=stacklevel + 1)


def folder() -> Path:
    asked = os.environ.get(VARIABLE) or os.environ.get(TILELANGS)
    root = Path(asked) if asked else platformdirs.user_cache_path("gemm_tuner", appauthor=False)
    return root / FOLDER


def key(
    function: Any, call: Any, candidates: Sequence[Candidate], profile: ProfileArgs, others: Mapping[str, Any]
) -> str:
    """A hash over everything that a result depends on: versions, GPU, the function, its call, the configurations, and
    how it is timed and checked. Raises NoFingerprint naming a value without a fingerprint."""
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
    """(the candidate of a stored result, the result without a kernel); None if there is none or it is incomplete."""
    path = folder() / key
    if disabled_by() or not path.is_dir():
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
    """The configuration as it would be read from JSON."""
    return json.loads(json.dumps(dict(config), default=str))


def keep(key: str, result: AutotuneResult) -> None:
    """Stores a result; warns if it cannot be written."""
    if not disabled_by():
        try:
            result.save_to_disk(folder() / key)
        except UserError as error:
            warnings.warn(f"the result is not kept: {error.one_line()}", stacklevel=2)
