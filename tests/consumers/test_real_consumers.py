"""The consumers' own loader functions read the exported files, where their packages are installed or on the path.

A loader is cut out of the package's source, as importing the package wants a GPU, and run as if it lay in a package
whose config folder is the exported one. Skipped where a package is absent.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import itertools
import json
import logging
import os
import re
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from consumer_look_ups import AITER_BOUNDS, aiter, sglang, vllm
from export_samples import AITER, DEFAULT, H20, MI300X, export

SIZES = (1, 2, 5, 12, 20, 28, 63, 64, 150, 200, 230, 900, 1300, 4096, 9000)


def source(package: str, *choices: str) -> Path:
    """A file of an installed package, without importing it; skips where there is none."""
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    for choice in choices:
        for folder in folders:
            if (Path(folder) / choice).is_file():
                return Path(folder) / choice
    pytest.skip(f"no {package} with {' or '.join(choices)}")


def cut_out(path: Path, names: set[str], namespace: dict[str, Any]) -> dict[str, Any]:
    """The namespace with the named functions and constants of a file, and nothing else of it, defined."""
    nodes = [node for node in ast.parse(path.read_text()).body if names & defined(node)]
    assert names <= {name for node in nodes for name in defined(node)}, path
    exec(compile(ast.Module(nodes, []), str(path), "exec"), namespace)
    return namespace


def defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def function(path: Path, name: str) -> ast.FunctionDef:
    found = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef) and n.name == name)
    return next(found)


def chosen(path: Path, name: str, configs: dict[int, Any], m: int) -> Any:
    """What the expression ``configs[...]`` of the launching function gives for M."""
    for node in ast.walk(function(path, name)):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "configs":
            return eval(compile(ast.Expression(node), str(path), "eval"), {"configs": configs, "M": m})
    raise AssertionError(f"{name} of {path} does not choose a config")


def default_of(path: Path, name: str) -> dict[str, Any]:
    """The config that the launching function has for a size without a file."""
    for node in ast.walk(function(path, name)):
        if isinstance(node, ast.Dict) and len(node.keys) == 6:
            made: dict[str, Any] = eval(compile(ast.Expression(node), str(path), "eval"), {"block_size": [128, 128]})
            return made
    raise AssertionError(f"{name} of {path} has no default")


def kernel_arguments(path: Path, name: str) -> set[str]:
    return {argument.arg for argument in function(path, name).args.args}


def common(device: str) -> dict[str, Any]:
    return {
        **{"functools": functools, "json": json, "os": os, "re": re, "Any": Any, "Dict": dict, "Optional": Any},
        **{"logger": logging.getLogger("consumer"), "log_info_on_rank0": lambda logger, text: None},
        **{"get_device_name": lambda: device, "_is_cuda": True},
        "torch": types.SimpleNamespace(_dynamo=types.SimpleNamespace(is_compiling=lambda: False)),
    }


def test_vllms_loader_reads_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = source("vllm", "model_executor/layers/quantization/utils/fp8_utils.py")
    names = source("vllm", "utils/platform_utils.py")
    export(H20, "--to", "vllm", "-o", tmp_path)
    platform = types.SimpleNamespace(get_device_name=lambda device_id: "NVIDIA H20")
    monkeypatch.setitem(sys.modules, "vllm.platforms", types.SimpleNamespace(current_platform=platform))
    namespace = {**common("NVIDIA H20"), "cache": functools.cache}
    cut_out(names, {"get_device_name_as_file_name"}, namespace)
    namespace["__file__"] = str(tmp_path / "vllm/model_executor/layers/quantization/utils/fp8_utils.py")
    cut_out(path, {"get_w8a8_block_fp8_configs"}, namespace)
    configs = namespace["get_w8a8_block_fp8_configs"](7168, 2048, 128, 128)
    launch = "w8a8_triton_block_scaled_mm"
    allowed = kernel_arguments(path, f"_{launch}") | {"num_warps", "num_stages"}
    for m in SIZES:
        got = chosen(path, launch, configs, m)
        assert got == vllm(tmp_path, "NVIDIA H20", 7168, 2048, m)
        assert set(got) <= allowed
    assert default_of(path, launch) == {**DEFAULT, "num_stages": 2}
    assert namespace["get_w8a8_block_fp8_configs"](7168, 2049, 128, 128) is None


def test_sglangs_loader_reads_the_files(tmp_path: Path) -> None:
    new, old = "kernels/ops/gemm/fp8_kernel.py", "srt/layers/quantization/fp8_kernel.py"
    path = source("sglang", new, old)
    export(H20, "--to", "sglang", "-o", tmp_path)
    older = path.as_posix().endswith(old)
    namespace = {**common("NVIDIA H20"), "__file__": str(tmp_path / "sglang" / (old if older else new))}
    cut_out(path, {"get_w8a8_block_fp8_configs"}, namespace)
    configs = namespace["get_w8a8_block_fp8_configs"](7168, 2048, 128, 128)
    launch = "w8a8_block_fp8_matmul_triton"
    allowed = kernel_arguments(path, "_w8a8_block_fp8_matmul") | {"num_warps", "num_stages"}
    for m in SIZES:
        got = chosen(path, launch, configs, m)
        assert got == sglang(tmp_path, "NVIDIA H20", 7168, 2048, m, older=older)
        assert set(got) <= allowed
    assert default_of(path, launch) == {**DEFAULT, "num_stages": 3}


@pytest.mark.parametrize("is_cuda", [True, False])
def test_sglangs_loader_changes_nothing_in_the_entries(is_cuda: bool, tmp_path: Path) -> None:
    """It raises BLOCK_SIZE_K where its kernels could not step through the scales."""
    path = source("sglang", "kernels/ops/gemm/fp8_kernel.py", "srt/layers/quantization/fp8_kernel.py")
    results, device = (H20, "NVIDIA H20") if is_cuda else (MI300X, "AMD Instinct MI300X")
    export(results, "--to", "sglang", "-o", tmp_path)
    where = tmp_path / "sglang" / Path(*path.parts[path.parts.index("sglang") + 1 :])
    namespace = {**common(device), "_is_cuda": is_cuda, "__file__": str(where)}
    cut_out(path, {"get_w8a8_block_fp8_configs"}, namespace)
    for file in where.parent.glob("configs/N=*.json"):
        found = re.match(r"N=(\d+),K=(\d+)", file.name)
        assert found
        configs = namespace["get_w8a8_block_fp8_configs"](int(found[1]), int(found[2]), 128, 128)
        assert configs == {int(key): entry for key, entry in json.loads(file.read_text()).items()}


def test_aiters_loader_reads_the_files(tmp_path: Path) -> None:
    path = source("aiter", "ops/triton/utils/gemm_config_utils.py")
    core = source("aiter", "ops/triton/utils/core.py")
    for default in (path.parents[1] / "configs").rglob("*"):
        if re.fullmatch(r"DEFAULT\.json|gfx942-GEMM-A(16W16|8W8|8W8_BLOCKSCALE)\.json", default.name):
            copied = tmp_path / AITER / default.relative_to(path.parents[1] / "configs")
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(default, copied)
    assert export(MI300X, "--to", "aiter", "-o", tmp_path) == 0
    triton = pytest.importorskip("triton")
    namespace = {
        **common(""),
        **{"triton": triton, "itertools": itertools, "copy": __import__("copy")},
        **{"AITER_TRITON_CONFIGS_PATH": str(tmp_path / AITER), "USE_LRU_CACHE": True},
        "arch_info": types.SimpleNamespace(get_arch=lambda: "gfx942"),
    }
    cut_out(core, {"load_config_json"}, namespace)
    wanted = {"STANDARD_M_BOUNDS", "_dtype_dir", "_get_gemm_config_cached", "get_gemm_config"}
    cut_out(path, wanted | {"add_default_gemm_config_params", "compute_splitk_params"}, namespace)
    assert namespace["STANDARD_M_BOUNDS"] == AITER_BOUNDS
    for family, n, k in (("GEMM-A8W8_BLOCKSCALE", 7168, 2048), ("GEMM-A8W8", 4096, 4096), ("GEMM-A16W16", 4096, 4096)):
        for m in SIZES:
            got, is_tuned = namespace["get_gemm_config"](family, m, n, k)
            assert (got, is_tuned) == aiter(tmp_path, "gfx942", family, n, k, m)
            launched = namespace["compute_splitk_params"](dict(got), k)
            assert {key: launched[key] for key in got} == got
