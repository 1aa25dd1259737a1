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
from typing import Any, Optional

import pytest
from consumer_look_ups import AITER_BOUNDS, aiter, sglang, vllm
from export_samples import AITER, DEFAULT, H20, MI300X, export
from samples import ROOT

from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import SERVERS

MOE = ROOT / "tests" / "golden" / "export_moe"
KERNELS = ROOT / "tests" / "golden" / "export_kernels"
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


def moe_loader(path: Path, folder: Path, **given: Any) -> Any:
    """A server's get_moe_configs, as if its file lay in ``folder``."""
    names = {"get_config_file_name", "get_moe_configs"}
    namespace = {"__file__": str(folder / "loader.py"), "os": os, "json": json, "functools": functools, "Any": Any,
                 "Optional": Optional, "Dict": dict, "List": list, "logger": QuietLogger(), **given}  # fmt: skip
    return cut_out(path, names, namespace)["get_moe_configs"]


class QuietLogger:
    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def test_vllms_moe_loader_reads_the_files(tmp_path: Path) -> None:
    place = "model_executor/layers/fused_moe/fused_moe.py"
    path = source("vllm", place)
    export(MOE / "h200.yaml", "--to", "vllm-moe", "-o", tmp_path)
    folder = tmp_path / "vllm" / Path(place).parent
    envs = types.SimpleNamespace(VLLM_BATCH_INVARIANT=False, VLLM_TUNED_CONFIG_FOLDER=None)
    device = "NVIDIA_H200_141GB_HBM3"
    load = moe_loader(path, folder, envs=envs, get_device_name_as_file_name=lambda: device)
    assert tuple(load(128, 768, None)[4096].values()) == (128, 128, 64, 16, 8, 3)
    assert tuple(load(256, 256, "fp8_w8a8", 128, 128)[1].values()) == (8, 64, 128, 1, 4, 4)
    envs.VLLM_TUNED_CONFIG_FOLDER = str(folder / "configs")
    assert len(moe_loader(path, tmp_path, envs=envs, get_device_name_as_file_name=lambda: device)(128, 768, None)) == 18


def test_sglangs_moe_loader_reads_both_files(tmp_path: Path) -> None:
    place = "srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_config.py"
    path = source("sglang", place)
    export(MOE / "h200.yaml", "--to", "sglang-moe", "-o", tmp_path)
    exact = types.SimpleNamespace(deterministic=types.SimpleNamespace(enable_deterministic_inference=False))
    load = moe_loader(path, tmp_path / "sglang" / Path(place).parent, get_exec=lambda: exact,
                      get_device_name=lambda: "NVIDIA H200 141GB HBM3",
                      triton=types.SimpleNamespace(__version__="3.6.0"))  # fmt: skip
    up, down = (load(256, 256, "fp8_w8a8", 128, 128, down_moe=of_down) for of_down in (False, True))
    assert up[16]["BLOCK_SIZE_M"] == down[16]["BLOCK_SIZE_M"] and down[16]["GROUP_SIZE_M"] == 16


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_defaults_of_moe_layers_are_the_servers_own(server: str) -> None:
    places = {"vllm": "model_executor/layers/fused_moe/fused_moe.py",
              "sglang": "srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_config.py"}  # fmt: skip
    platform = types.SimpleNamespace(is_rocm=lambda: False, is_cuda=lambda: True)
    exact = types.SimpleNamespace(deterministic=types.SimpleNamespace(enable_deterministic_inference=False))
    namespace = {"envs": types.SimpleNamespace(VLLM_BATCH_INVARIANT=False), "current_platform": platform,
                 "get_exec": lambda: exact, "_is_hip": False, "_use_low_smem_fp8_default": lambda: False,
                 "Optional": Optional, "Dict": dict, "List": list, "Any": Any}  # fmt: skip
    default = cut_out(source(server, places[server]), {"get_default_config"}, namespace)["get_default_config"]
    ours, more = SERVERS[server], {"is_marlin": False} if server == "sglang" else {}
    unset = {"num_warps": 4, "num_stages": 3}  # Triton's own
    for dtype, block in ((None, None), ("fp8_w8a8", [128, 128]), ("fp8_w8a8", None)):
        for m, experts in itertools.product((1, 4, 8, 20, 33, 64, 96, 128, 129, 512, 1024, 4096), (8, 256)):
            theirs = default(m, experts, 768, 2048, 2, dtype, block_shape=block, **more)
            layer = MoeProblem(server, m, experts, 768, 2048, 2, dtype or "bf16",
                               scaling="block" if block else "tensor" if dtype else "none",
                               block_shape=(128, 128) if block else (0, 0))  # fmt: skip
            assert ours.default(layer, "sm_90") == {**unset, **{k: v for k, v in theirs.items() if k != "SPLIT_K"}}


def test_vllms_loaders_read_the_files_of_its_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mamba states out of the package's folder, LoRA out of VLLM_TUNED_CONFIG_FOLDER."""
    place = "model_executor/layers/mamba/ops/mamba_ssm.py"
    path, device = source("vllm", place), "NVIDIA H100 80GB HBM3"
    envs = types.SimpleNamespace(VLLM_TUNED_CONFIG_FOLDER=None)
    platform = types.SimpleNamespace(get_device_name=lambda device_id: device)
    monkeypatch.setitem(sys.modules, "vllm.platforms", types.SimpleNamespace(current_platform=platform))
    namespace = {**common(device), "__file__": str(KERNELS / "vllm" / place), "envs": envs, "logger": QuietLogger(),
                 "cache": functools.cache, "_ssm_config_override": None}  # fmt: skip
    cut_out(source("vllm", "utils/platform_utils.py"), {"get_device_name_as_file_name"}, namespace)
    names = {"_CONFIGS_DIR", "get_ssm_configs", "get_ssm_config_file_name",
             "get_ssm_device_name", "_canonical_cache_dtype", "_try_get_optimal_ssm_config_cached",
             "try_get_optimal_ssm_config", "_get_default_ssm_launch_config"}  # fmt: skip
    best = cut_out(path, names, namespace)["try_get_optimal_ssm_config"]
    assert best(64, 128, 6, 128, "bfloat16", False) == (32, 2)
    assert best(64, 128, 1, 16, "float16", False) == (4, 2)

    ops = source("vllm", "lora/ops/triton_ops/utils.py")
    envs.VLLM_TUNED_CONFIG_FOLDER = str(KERNELS)
    torch = types.SimpleNamespace(cuda=types.SimpleNamespace(get_device_name=lambda: device))
    given = {**namespace, "torch": torch, "Path": Path, "is_batch_invariant": False, "lru_cache": functools.lru_cache,
             "next_power_of_2": lambda number: 1 << (number - 1).bit_length()}  # fmt: skip
    look_up = cut_out(ops, {"load_lora_op_config", "get_lora_op_configs"}, given)["get_lora_op_configs"]
    for slices in (1, 2, 3):
        found = look_up("shrink", max_loras=9, batch=30, hidden_size=4096, rank=16, num_slices=slices)
        assert (found["block_m"], found["split_k"], found["num_ctas"], found["group_size_m"]) == (32, 8, 1, 1)
        found = look_up("expand", 5, 8, 4096, 16, slices, add_inputs=True)
        assert (found["block_m"], found["num_stages"]) == (32, 2)
