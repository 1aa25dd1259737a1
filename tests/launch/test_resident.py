"""The process that screens, without a GPU: what it does before its first plan."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import samples

from gemm_tuner.languages.scripts import load_script
from gemm_tuner.launch.plan import SCREEN, Method, Plan, Work
from gemm_tuner.launch.resident import open_for


@pytest.mark.parametrize("scripts", [("first.py", "second.py"), ("first.py", "missing.py")])
def test_it_opens_the_processor_and_loads_scripts_ahead(scripts: tuple[str, ...], tmp_path: Path) -> None:
    """A script that is missing stops the plan that needs it, not the process."""
    for name in ("first.py", "second.py"):
        (tmp_path / name).write_text("CONFIGS = {}")
    path, loaded = tmp_path / "opening.json", list[str]()

    def load(script: str) -> ModuleType:
        assert not path.exists()  # others wait until the processor is open, and not for this
        loaded.append(Path(script).name)
        return load_script(script)

    Plan(SCREEN, scripts, (Work(samples.problem(64, 64, 64), ()),), Method(), device="cpu").write(path)
    open_for(path, tmp_path, load)
    assert loaded == ([] if "missing.py" in scripts else list(scripts)) and not path.exists()
