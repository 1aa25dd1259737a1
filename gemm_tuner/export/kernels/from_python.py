"""``export --to source`` of a function that was tuned from Python: its configuration as source to bake in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.export.kernels.files import config_text
from gemm_tuner.export.offers import LeftOut, known_wrong
from gemm_tuner.export.trust import Trust
from gemm_tuner.store import results
from gemm_tuner.store.results import Results
from gemm_tuner.store.run_folder import PYTHON_SUMMARY, is_from_python
from gemm_tuner.system.json_records import load_json


def folder_of(found: Results, path: Path) -> Path | None:
    """The folder of the run, if that was one from Python which says what it chose."""
    folder = results.run_folder(path, found.header)
    return folder if folder is not None and is_from_python(folder) else None


def sources(found: Results, folder: Path, trust: Trust) -> tuple[dict[str, str], list[LeftOut]]:
    """(the source by the function's name, what is left out, with the reason). Raises UserError for a run that an older
    version wrote."""
    summary = load_json(folder / PYTHON_SUMMARY, "summary")
    name, config = str(summary.get("name", "")), summary.get("config")
    if not isinstance(config, dict):
        raise UserError("does not say what was chosen", where=str(folder / PYTHON_SUMMARY), hint="tune it again")
    texts, left_out = dict[str, str](), list[LeftOut]()
    for row in found.rows:
        if reason := known_wrong(row) or trust.fault(row.verified, found.source_of(row)):
            left_out.append(LeftOut(name, "", reason))
            continue
        params = {key: tuple(value) if isinstance(value, list) else value for key, value in config.items()}
        us = summary.get("best_us")
        said = [f"{us:.2f} us"] if us else []
        texts[name] = _text(name, params, [*said, f"verified: {row.verified.value}"], found.header, summary)
    return texts, left_out


def _text(
    name: str, params: Mapping[str, Any], said: list[str], header: Mapping[str, str | int], summary: Mapping[str, Any]
) -> str:
    about = f"# {name}, tuned on {header['device']} ({header['arch']}), {header['date']}: {'; '.join(said)}"
    if summary.get("is_triton_kernel"):
        config = config_text(params)
        if hook := str(summary.get("pre_hook") or ""):  # by its name: the kernel may be wrong without it
            config = f"{config[:-1]}, pre_hook={hook if hook.isidentifier() else 'pre_hook'})"
        lines = [
            f"# Above {name} and its decorators; launches must not set {', '.join(params)}.",
            f"@triton.autotune(configs=[{config}], key=[])",
        ]
    else:
        lines = [f"CONFIG = {dict(params)!r}"]
    return "\n".join([about, *lines]) + "\n"
