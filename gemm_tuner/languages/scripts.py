"""Imports generated scripts."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from gemm_tuner.core.script import Script, text_sha


def load_script(path: str) -> ModuleType:
    """Imports a generated script under a unique module name. Needs the package of its language, but no torch or GPU."""
    spec = importlib.util.spec_from_file_location(f"generated_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python script")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache(maxsize=16)
def loaded_script(script: Script, scripts_dir: str) -> Any:
    """Imports a script. Raises ValueError if the file's hash is not the one in its name, because its kernels would be
    stored under the wrong hash."""
    path = Path(scripts_dir, script.file)
    if text_sha(path.read_text("utf-8")) != script.text_sha:
        raise ValueError(f"{script.file} has been changed since it was written")
    return load_script(str(path))


@lru_cache(maxsize=16)
def config_of_kernel(script: Script, scripts_dir: str) -> dict[str, dict[str, Any]]:
    """For each kernel symbol of a script, one of the configurations that use this kernel."""
    return {config["binary"]: config for config in loaded_script(script, scripts_dir).CONFIGS.values()}
