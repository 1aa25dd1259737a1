"""Modules are short and say what they are, and the command line starts light."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from collections import Counter

from samples import ROOT

PACKAGE = ROOT / "gemm_tuner"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
MAX_LINES = 300


def test_modules_are_short_and_say_what_they_are() -> None:
    texts = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in MODULES}
    assert {name: lines for name, text in texts.items() if (lines := text.count("\n")) > MAX_LINES} == {}
    assert [name for name, text in texts.items() if not ast.get_docstring(ast.parse(text))] == []


def imports_of(package: str) -> set[str]:
    """The modules that a package's modules import, inside functions too."""
    nodes = [
        node for path in (PACKAGE / package).rglob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8")))
    ]
    plain = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
    names = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return plain | {f"{node.module}.{one.name}" for node in names for one in node.names}


def test_core_imports_the_standard_library_only() -> None:
    roots = {name.partition(".")[0] for name in imports_of("core")}
    assert roots - {"gemm_tuner"} - sys.stdlib_module_names == set()


def test_packages_import_what_their_docstrings_say() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    checked = 0
    for package in sorted(packages):
        about = ast.get_docstring(ast.parse((PACKAGE / package / "__init__.py").read_text("utf-8"))) or ""
        if said := re.search(r"May import ([\w,\s]+)\.", about):
            imported = {name.split(".")[1] for name in imports_of(package) if name.startswith("gemm_tuner.")}
            words = set(re.findall(r"\w+", said[1]))
            allowed = packages - {"surface"} if "all" in words else words
            assert allowed <= packages and (imported & packages) - {package} <= allowed, package
            checked += 1
    assert checked == len(packages) - 2, "core and surface say it in other words"


def loaded_after(module: str) -> set[str]:
    heavy = ("torch", "triton", "pandas", "numpy", "jinja2")
    code = f"import sys, {module}; print(*(name for name in {heavy} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_command_line_starts_without_torch_and_triton() -> None:
    assert not loaded_after("gemm_tuner.cli.main") & {"torch", "triton"}


def test_the_pipeline_never_brings_torch_into_the_parent() -> None:
    assert "torch" not in loaded_after("gemm_tuner.pipeline.run")


def test_workers_and_launchers_of_any_kind_start_without_pandas() -> None:
    kinds = ("gemm_tuner.gemm", "gemm_tuner.kernels", "gemm_tuner.moe", "gemm_tuner.cute")
    assert "pandas" not in loaded_after(", ".join(f"{kind}.workload" for kind in kinds))


def test_a_plan_of_gemm_is_read_without_numpy() -> None:
    assert loaded_after("gemm_tuner.gemm.workload") == set()


def test_the_entry_script_imports_nothing_for_those_who_import_it() -> None:
    assert loaded_after("tune_gemm") == set()


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest imports them by name: the second would end the collection of all."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_an_installation_has_all_packages() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}
    assert there - set(setup["options"]["packages"].split()) == set()


def test_no_text_installs_this_package_from_a_registry() -> None:
    """No registry has it: what somebody else may give that name there would be installed."""
    folders = (PACKAGE, *(ROOT / name for name in ("benchmarks", "docs", "examples", "rules", "templates")))
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".md", ".yaml", ".j2")]
    texts = {path: path.read_text("utf-8") for path in (ROOT / "README.md", *files)}
    assert [path for path, text in texts.items() if re.search(r"pip install '?gemm[-_]tuner", text)] == []
