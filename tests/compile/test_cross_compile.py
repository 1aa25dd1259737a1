"""Kernels compiled for every architecture without its GPU, and what the rules and names say of them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gemm_tuner import codegen, prune, space
from gemm_tuner.codegen import specialisation
from gemm_tuner.compile_pool import CompilePool
from gemm_tuner.compile_worker import CompileTask
from gemm_tuner.kernel_env import kernel_env
from gemm_tuner.records import CompileResult, Device, GemmProblem, KernelConfig, Layout, Status

ROOT = Path(__file__).resolve().parents[2]
RULES = prune.load_rules(ROOT / "rules", heuristics=False)
ARCHS = ("sm_80", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950")
ROW, COL = Layout.ROW, Layout.COL
BF16 = GemmProblem(4096, 4096, 4096)
FP32 = GemmProblem(4096, 4096, 4096, "fp32", "fp32", "fp32")
SAMPLE = 13
WORKERS = 2

Work = list[tuple[GemmProblem, KernelConfig]]


def space_of(arch: str) -> space.SpaceFile:
    return space.load(space.space_path(ROOT / "rules", arch), arch)


def config_for(device: Device, *tile: int, split_k: int = 1, warps: int = 4, stages: int = 2) -> KernelConfig:
    amd = (0, 16, 1) if device.target.backend == "hip" else (0, 0, 0)
    return KernelConfig("gemm_tile", *tile, 8, split_k, warps, stages, *amd)


def compile_work(device: Device, work: Work, folder: Path) -> list[CompileResult]:
    """The results in the order of the work, each compiled on its own, even where sizes share a binary."""
    classes: dict[str, list[KernelConfig]] = {}
    for problem, config in work:
        classes.setdefault(problem.class_key, []).append(config)
    scripts = {}
    for problem, _ in work:
        if problem.class_key not in scripts:
            configs = dict.fromkeys(classes[problem.class_key])
            folder.mkdir(parents=True, exist_ok=True)
            script = codegen.write_script(
                ROOT / "templates", folder, "gemm_tile", problem, configs, device.target.backend
            )
            scripts[problem.class_key] = str(script.path)
    tasks = [CompileTask(scripts[p.class_key], c.name, specialisation(p, c), p) for p, c in work]
    with CompilePool(device.target, WORKERS, kernel_env(folder / "cache"), folder / "log.txt") as pool:
        answers = {id(task): result for task, result in pool.run(tasks)}
    return [answers[id(task)] for task in tasks]


def keeps(name: str, config: KernelConfig, problem: GemmProblem, device: Device) -> bool:
    """What one validity rule says of one configuration."""
    (rule,) = [rule for rule in RULES if rule.name == name]
    columns = SimpleNamespace(**{field: np.array([value]) for field, value in config.to_dict().items()})
    return bool(np.all(rule.keep(columns, problem, device)))


@pytest.mark.parametrize("arch", ARCHS)
def test_every_architecture_compiles_and_finds_it_all_in_the_cache_again(tmp_path: Path, arch: str) -> None:
    device = space_of(arch).device
    configs = [
        config_for(device, 32, 32, 32),
        config_for(device, 64, 64, 32),
        config_for(device, 16, 32, 64, split_k=4),
    ]
    tn_bias = GemmProblem(100, 200, 300, "fp16", "fp16", "fp16", COL, ROW, "bias")
    nt_fp32 = GemmProblem(1, 17, 33, "fp32", "fp32", "bf16", ROW, COL)
    work = [(BF16, configs[0]), (BF16, configs[1]), (tn_bias, configs[2]), (nt_fp32, configs[0])]
    results = compile_work(device, work, tmp_path)
    assert [(r.status, r.message) for r in results] == [(Status.OK, "")] * len(work)
    assert all(r.registers > 0 and r.shared_bytes > 0 and not r.cached for r in results)
    assert max(r.spills for r in results) <= 16  # a few bytes of stack are no spill: fp32 on sm_100 has them
    assert len({r.binary_hash for r in results}) == len(work)
    again = compile_work(device, work, tmp_path)
    assert all(r.cached for r in again)
    assert [(r.binary_hash, r.registers) for r in again] == [(r.binary_hash, r.registers) for r in results]


@pytest.mark.parametrize(("arch", "suffix"), [("sm_90", "cubin"), ("gfx942", "hsaco")])
def test_the_symbol_in_the_binary_is_the_name_of_the_configuration(tmp_path: Path, arch: str, suffix: str) -> None:
    device = space_of(arch).device
    configs = [config_for(device, 16, 16, 16), config_for(device, 16, 16, 32, split_k=2)]
    compile_work(device, [(BF16, config) for config in configs], tmp_path)
    images = list((tmp_path / "cache").rglob(f"*.{suffix}"))
    names = [json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["name"] for path in images]
    assert sorted(names) == sorted([*(config.name for config in configs), "gemm_tile_reduce_SK2"])
    for name, image in zip(names, images, strict=True):
        assert f"\0{name}\0".encode() in image.read_bytes()


def test_accumulators_beyond_the_registers_spill(tmp_path: Path) -> None:
    device = space_of("sm_90").device
    fp16 = GemmProblem(4096, 4096, 4096, "fp16", "fp16", "fp16")
    large = replace(config_for(device, 256, 256, 32), num_stages=3)
    spilling, fitting = compile_work(device, [(fp16, large), (fp16, replace(large, BLOCK_SIZE_N=64))], tmp_path)
    assert spilling.status == fitting.status == Status.OK
    assert spilling.spills > 64 and spilling.registers == 255
    assert fitting.spills == 0 and fitting.registers < 255


# Classes meet at 1, odd, divisible by 8 and by 16, BLOCK_SIZE_K dividing K or not, 2**31 elements, 2 GiB.
SIZES = (
    (64, 64, 64), (128, 48, 96), (17, 64, 64), (65, 32, 128), (64, 64, 80), (17, 16, 16), (1, 64, 64), (3, 5, 7),
    (100, 33, 9), (64, 1, 64), (63, 1, 32), (1, 1, 1), (7, 1, 1), (40, 40, 40), (8, 24, 104), (64, 40, 64),
    (63, 24, 96), (64, 64, 1), (16384, 16384, 16384), (2**15 + 16, 16384, 2**15), (2**15 + 32, 16384, 2**15),
    (2**16, 64, 2**15), (64, 2**16, 2**15), (2**16, 2**15, 64), (2**16, 2**16, 64), (8192, 32768, 64),
)  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
@pytest.mark.parametrize("layout_a", [ROW, COL])
@pytest.mark.parametrize("split_k", [1, 4])
def test_sizes_of_one_specialisation_share_their_binary(
    tmp_path: Path, arch: str, layout_a: Layout, split_k: int
) -> None:
    """The name may split finer than Triton, never coarser: whatever bears a known name is in the cache."""
    device = space_of(arch).device
    config = config_for(device, 16, 16, 16, split_k=split_k, warps=1)
    sizes = list(SIZES)
    random.Random(0).shuffle(sizes)
    problems = [replace(BF16, m=m, n=n, k=k, layout_a=layout_a) for m, n, k in sizes]
    first: dict[str, GemmProblem] = {}
    for problem in problems:
        first.setdefault(specialisation(problem, config), problem)
    fresh = compile_work(device, [(p, config) for p in first.values()], tmp_path)
    assert all(r.status == Status.OK for r in fresh), [r.message for r in fresh]
    hashes = {r.specialisation: r.binary_hash for r in fresh}
    rest = [p for p in problems if p not in first.values()]
    again = compile_work(device, [(p, config) for p in rest], tmp_path)
    assert len(rest) >= 4
    assert [(p, specialisation(p, config)) for p, r in zip(rest, again, strict=True) if not r.cached] == []
    assert all(r.binary_hash == hashes[r.specialisation] for r in again)
    # Different names are mostly different kernels: 8 and odd differ by name alone in many places.
    assert sum(not r.cached for r in fresh) >= len(fresh) / 2


@pytest.mark.parametrize("layouts", [(ROW, ROW), (COL, ROW), (ROW, COL), (COL, COL)])
def test_sizes_divisible_by_8_are_loaded_16_bytes_at_a_time(tmp_path: Path, layouts: tuple[Layout, Layout]) -> None:
    """Only such loads are pipelined through shared memory; it is as large as for sizes divisible by 16."""
    device = space_of("sm_90").device
    config = config_for(device, 64, 64, 64, stages=3)
    sizes = [(1024, 1024, 1024), (1000, 1000, 1000), (1032, 1024, 1024), (1001, 1001, 1001)]
    work = [(GemmProblem(*size, layout_a=layouts[0], layout_b=layouts[1]), config) for size in sizes]
    by_16, by_8, m_by_8, odd = (result.shared_bytes for result in compile_work(device, work, tmp_path))
    assert by_16 == by_8 == m_by_8 == 3 * 2 * 64 * 64 * 2
    assert odd < by_16


def cheap_sample(arch: str, element_bytes: int) -> list[KernelConfig]:
    """Configurations that compile fast, drawn over the whole range of shared memory."""
    loaded = space_of(arch)
    threads = loaded.device.target.warp_size
    axes = {
        **loaded.families["gemm_tile"],
        "GROUP_SIZE_M": (8,),
        "SPLIT_K": (1,),
        "BLOCK_SIZE_N": (16, 32, 64, 128, 256),
    }
    every = space.configs_of(space.frame(replace(loaded, families={"gemm_tile": axes})))

    def cheap(c: KernelConfig) -> bool:
        loads = (c.BLOCK_SIZE_M + c.BLOCK_SIZE_N) * c.BLOCK_SIZE_K / (threads * c.num_warps)
        accumulators = c.BLOCK_SIZE_M * c.BLOCK_SIZE_N / (threads * c.num_warps)
        mfma = max(16, c.matrix_instr_nonkdim)
        return (
            c.BLOCK_SIZE_M <= 128
            and min(c.BLOCK_SIZE_M, c.BLOCK_SIZE_N) >= mfma
            and (loads * element_bytes <= 128 and 2 <= accumulators <= 32)
        )

    def tile_bytes(c: KernelConfig) -> int:
        return (c.BLOCK_SIZE_M + c.BLOCK_SIZE_N) * c.BLOCK_SIZE_K * element_bytes * c.num_stages

    ordered = sorted(filter(cheap, every), key=tile_bytes)
    large = [c for c in ordered if tile_bytes(c) > loaded.device.shared_memory_bytes / 4]
    return random.Random(f"{arch}{element_bytes}").sample(large, min(SAMPLE, len(large)))


@pytest.mark.parametrize("arch", ARCHS)
def test_the_shared_memory_rules_agree_with_the_compiler(tmp_path: Path, arch: str) -> None:
    """Verdicts are right at the GPU's limit, and on a GPU that had just enough or a tenth too little."""
    device = space_of(arch).device
    rule = "lds_fits" if device.target.backend == "hip" else "shared_memory_fits"
    work = [(BF16, c) for c in cheap_sample(arch, 2)] + [(FP32, c) for c in cheap_sample(arch, 4)]
    wrong = []
    for (problem, config), result in zip(work, compile_work(device, work, tmp_path), strict=True):
        assert result.status == Status.OK, result.message
        for limit, fits in (
            (device.shared_memory_bytes, result.shared_bytes <= device.shared_memory_bytes),
            (result.shared_bytes, True),
            (int(0.9 * result.shared_bytes), False),
        ):
            if keeps(rule, config, problem, replace(device, shared_memory_bytes=limit)) != fits:
                wrong.append((problem.dtype_a, config.name, result.shared_bytes, limit, fits))
    assert wrong == []
