"""What may know what: stages know the records and not each other, and the command line starts light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from samples import ROOT

PACKAGE = ROOT / "gemm_tuner"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
MAX_LINES = 350

# Known to all: records and the small things beside them.
COMMON = {
    *("records", "problem", "descriptors", "errors", "dtypes", "documents"),
    *("input_files", "json_records", "gemm_tuner"),
}
# The stages, in the order of the data, and what a stage may know beside COMMON.
STAGES: dict[str, set[str]] = {
    "values": set(),
    "flag_types": {"values"},
    "dtype_hints": {"values"},
    "combinations": set(),
    "problem_keys": {"combinations", "dtype_hints", "values"},
    "config_keys": {"values"},
    "sizes": {"config_keys", "problem_keys"},
    "space": set(),
    "rule": set(),
    "prune": {"rule", "space"},  # AXES
    "model": set(),
    "search": {"model"},
    "codegen": set(),
    "binary": set(),
    "memory": set(),
    "compile_worker": {"binary", "kernel_env", "launcher", "memory"},
    "compile_pool": {"compile_worker", "memory"},
    "compiler": {"compile_pool", "compile_worker"},
    "compile_stage": {"codegen", "compile_worker", "ledger"},
    "profilers": set(),
    "guarded": set(),
    "processes": {"guarded"},
    "interruption": set(),
    "kernel_env": set(),
    "attribution": {"launcher"},
    "outcomes": {"attribution", "launcher", "processes", "profilers"},
    "watching": {"launcher", "processes"},
    "checking": {"launcher", "outcomes", "watching"},
    "starts": {"launcher", "outcomes", "processes", "profilers", "watching"},
    "launch": {"checking", "kernel_env", "launcher", "processes", "profilers", "starts", "watching"},
    "choose": {"launcher", "model"},  # VENDOR, the roofline
    "contest": {"launcher"},  # VENDOR
    "fleet": {"launcher", "outcomes", "starts", "watching"},
    "gpu_watch": set(),
    "store": set(),
    "ledger": {"prune"},  # Pruned
    "same_code": {"ledger"},
    "verify": {"launcher", "ledger", "outcomes", "watching"},
    "results": {"combinations", "problem_keys", "sizes"},
    "progress": set(),
    "run_folder": {"store"},
    "run_lock": set(),
    "report": {"launcher", "run_record"},  # VENDOR
    "export": {"config_keys", "problem_keys", "prune", "results", "rule", "run_record", "sizes", "space", "values"},
    "run_record": set(),
    "run_timings": {"config_keys", "run_record"},
    "compact": {"results", "run_record", "run_timings", "sizes"},
    "machine_check": {"device", "kernel_env", "profilers", "space"},
    "compare": {"results", "run_record"},
    "size_sources": {"problem_keys"},
    "device": set(),
    "launcher": {"support_kernels", "processes"},
}
# Those whose work is to put stages in order.
ORDERING = {
    *("cli", "options", "settings", "prepare", "preview", "session"),
    *("show", "replay", "steps", "tune", "predict", "pipeline", "commands", "module_export"),
    *("compiling", "rounds", "finals", "plans", "incumbents", "other_checks"),
    *("resume", "run_start", "run_identity", "run_summary"),
}


def part_of(path: Path) -> str:
    """A module's name below the package; that of its folder where it has one."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """All modules that a file imports anywhere, in full."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            is_package = (ROOT / module.replace(".", "/")).is_dir()
            found |= {f"{module}.{alias.name}" for alias in node.names} if is_package else {module}
    return found


def own_imports(path: Path) -> set[str]:
    """The parts of the package that a file imports."""
    names = {name for name in imports(path) if name.split(".")[0] == "gemm_tuner"}
    return {name.split(".")[1] if "." in name else name for name in names}


def test_every_module_has_its_place() -> None:
    parts = {part_of(path) for path in MODULES}
    assert parts <= set(STAGES) | ORDERING | COMMON | {"probe"}
    assert set(STAGES) | ORDERING <= parts | {"support_kernels", "commands"}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_knows_the_records_and_few_others(stage: str) -> None:
    allowed = STAGES[stage] | COMMON | {stage}
    for path in MODULES:
        if part_of(path) == stage:
            parts = {part_of(module) for module in MODULES}
            assert own_imports(path) & parts <= allowed, path


def test_records_know_nothing_but_types() -> None:
    assert own_imports(PACKAGE / "records.py") == {"problem"}
    assert own_imports(PACKAGE / "problem.py") == {"dtypes"}
    assert own_imports(PACKAGE / "errors.py") == own_imports(PACKAGE / "dtypes.py") == set()


def test_nobody_imports_those_that_order_but_those() -> None:
    top = {"cli", "pipeline", "preview", "predict"}
    for path in MODULES:
        if part_of(path) not in ORDERING:
            assert not own_imports(path) & ORDERING, path
        if part_of(path) not in {"cli", "pipeline"}:
            assert not own_imports(path) & top, path


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert ast.get_docstring(ast.parse(text))


def test_torch_is_imported_inside_functions_only() -> None:
    for path in MODULES:
        top_level = [n for n in ast.parse(path.read_text()).body if isinstance(n, (ast.Import, ast.ImportFrom))]
        names = {a.name for n in top_level for a in n.names} | {n.module for n in top_level if hasattr(n, "module")}
        assert "torch" not in names, path


def loaded_after(module: str) -> set[str]:
    code = f"import sys, {module}; print(*(m for m in ('torch', 'triton', 'pandas', 'jinja2') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_command_line_starts_without_torch_and_triton() -> None:
    assert not loaded_after("gemm_tuner.cli") & {"torch", "triton"}


def test_the_pipeline_never_brings_torch_into_the_parent() -> None:
    assert "torch" not in loaded_after("gemm_tuner.pipeline")


def test_the_entry_script_imports_nothing_for_those_who_import_it() -> None:
    assert loaded_after("tune_gemm") == set()
