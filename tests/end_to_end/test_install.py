"""``pip install .`` gives a command that finds its templates and rules without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("gemm_tuner", "templates", "rules", "tune_gemm.py", "setup.cfg", "pyproject.toml", "README.md")


def test_installed_command_previews_and_renders(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for name in SOURCES:
        path = ROOT / name
        shutil.copytree(path, source / name) if path.is_dir() else shutil.copy(path, source / name)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-compile",
        "--target",
        str(target),
    ]
    built = subprocess.run([*pip, "--target", str(target), str(source)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    shutil.rmtree(source)

    env = {**os.environ, "PYTHONPATH": str(target)}
    command = [sys.executable, str(target / "bin" / "tune-gemm"), "-m", "5000", "-n", "5000", "-k", "5000"]
    done = subprocess.run(
        [*command, "--arch", "gfx950", "--dry_run"], capture_output=True, text=True, cwd=tmp_path, env=env
    )
    assert done.returncode == 0, done.stderr
    assert "shared" in done.stdout or "lds_fits" in done.stdout
    done = subprocess.run([*command[:2], "help"], capture_output=True, text=True, cwd=tmp_path, env=env)
    assert done.stderr.startswith("tune-gemm: ") and "; tune-gemm --help" in done.stderr
    render = (
        "from gemm_tuner.source import codegen; from gemm_tuner.system import installation;"
        "from gemm_tuner.space import prune, space; from gemm_tuner.gemm.problem import GemmProblem;"
        "rules = installation.data_folder('rules');"
        "h200 = space.load(space.space_path(rules, 'sm_90'), 'sm_90').device.target;"
        "templates = installation.data_folder('templates');"
        "print(codegen.kernel_sha(templates, 'gemm_persistent', GemmProblem(1, 1, 1), h200));"
        "print(installation.data_folder('templates'))"
    )
    done = subprocess.run([sys.executable, "-c", render], capture_output=True, text=True, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(str(target / "gemm_tuner" / "templates"))
