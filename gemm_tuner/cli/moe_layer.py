"""The layer that flags of ``tune_gemm.py moe`` describe, alone or over what a model's config.json says."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gemm_tuner.cli import options
from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.families.family import known_families
from gemm_tuner.gemm.problem import SCALE_BLOCK, GemmProblem
from gemm_tuner.measure import device as devices
from gemm_tuner.moe import model_config, problem
from gemm_tuner.moe.launchers import BY_FAMILY
from gemm_tuner.moe.model_config import Layer
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import SERVERS

# The flags of a layer's sizes.
SIZES = ("E", "N", "K", "topk")
# Flags that describe a layer, which a size file has described.
OF_A_LAYER = (*SIZES, "m", "tp", "dense", "enable_expert_parallel", "global_experts", "dtype", "out", "block_shape",
              "group_size", "zero_points", "per_channel", "fp8", "activation", "bias")  # fmt: skip
# Where there are AMD GPUs.
AMD_DRIVER = Path("/dev/kfd")
# Scales of dense layers and of experts.
SCALINGS = {"none": "tensor", "tensor": "tensor", "row_col": "channel", "block": "block"}


def layer_of(arguments: argparse.Namespace) -> Layer:
    """The layer of --from, with values replaced by flags, or that of the flags alone. Raises UserError."""
    given = {name: getattr(arguments, name) for name in SIZES if getattr(arguments, name) is not None}
    if arguments.tp is not None and "N" in given:
        raise UserError("is given beside --N, which is a rank's share already", where="--tp", accepted="one of them")
    if arguments.source is None:
        if len(given) < len(SIZES):
            absent = ", ".join(f"--{name}" for name in SIZES if name not in given)
            accepted = "--from config.json, or --E, --N, --K and --topk"
            raise UserError(f"the layer is not said: no {absent}", accepted=accepted)
        if arguments.enable_expert_parallel:
            raise UserError("splits a model's experts, and --E is a rank's share already",
                            where="--enable_expert_parallel", accepted="it with --from config.json")  # fmt: skip
        base = Layer(
            **given, dtype="bf16", out="bf16", scaling="none", block_shape=(0, 0), activation="silu", bias=False
        )
    else:
        is_typed = bool(arguments.dtype or arguments.block_shape or arguments.per_channel)
        whole = model_config.read(arguments.source, activation=arguments.activation or "", is_typed=is_typed)
        base = model_config.share(whole, arguments.tp or 1, experts=arguments.enable_expert_parallel)
        base = replace(base, **given)
    changed = replace(base, out=arguments.out or base.out, activation=arguments.activation or base.activation,
                      bias=base.bias or arguments.bias)  # fmt: skip
    return typed(changed, arguments)


def is_size_file(source: Path | None) -> bool:
    """Whether --from names a size file or results file, and no config.json."""
    return source is not None and source.suffix in (".yaml", ".yml")


def require_one_kernel(found: Iterable[MoeProblem], source: Path, hint: str) -> None:
    """Raises UserError for layers of a file that servers multiply by two kernels."""
    if len({one.grouped for one in found}) > 1:
        what = "holds layers with integers in groups beside others, which servers multiply by another kernel"
        raise UserError(what, where=str(source), hint=hint)


def arch_of(arguments: argparse.Namespace) -> str:
    """Of --arch, of the recording that is played back, or of this machine's GPUs; the default without any. Raises
    UserError and EnvironmentFault."""
    from gemm_tuner.measure import replay

    if arguments.arch or arguments.cluster:
        return arguments.arch or devices.DEFAULT_ARCH
    is_replay = arguments.profiler == options.REPLAY
    gpus = (replay.load(arguments.replay).machine if is_replay else devices.look()).gpus
    return str(gpus[0]["arch"]) if gpus else devices.DEFAULT_ARCH


def fp8_of(arguments: argparse.Namespace, *, matters: bool) -> str:
    """The encoding of --fp8, or that of the GPU's architecture. matters: there are operands in fp8. Raises UserError
    and EnvironmentFault."""
    # To look at the GPUs takes seconds.
    is_asked = matters and (AMD_DRIVER.exists() or arguments.profiler == options.REPLAY)
    arch = arguments.arch or (arch_of(arguments) if is_asked and not arguments.fp8 else "")
    return arguments.fp8 or ("fp8_e4m3_fnuz" if arch.startswith("gfx94") else "fp8_e4m3")


def families_by_kind(families: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(families of GEMMs, families of fused layers) out of --families; without one of a kind it keeps all of its."""
    of_layers = tuple(name for name in families if name in BY_FAMILY)
    return tuple(name for name in families if name not in of_layers), of_layers


def kind_of_config(text: str | None) -> str:
    """The kind of problem that a configuration's name is of; "" for other texts, such as FIELD=VALUE."""
    kinds = ((MoeProblem.kind, BY_FAMILY), (GemmProblem.kind, known_families()))
    named = (kind for kind, families in kinds for one in families if text is not None and text.startswith(f"{one}_"))
    return next(named, "")


def refuse_what_a_file_says(arguments: argparse.Namespace, *more: str) -> None:
    """Raises UserError for a flag that describes a layer, or is one of ``more``."""
    given = [name for name in (*OF_A_LAYER, *more) if name in arguments.given]
    if given:
        raise UserError("says what the file says", where=f"--{given[0]}", hint="leave it out, or change the file")


def forget_servers(arguments: argparse.Namespace) -> None:
    """What --serve and --kernel_from say of layers is of dense GEMMs for what reads them from here on."""
    arguments.serve, arguments.kernel_from = [], []
    arguments.given = {name: flag for name, flag in arguments.given.items() if name not in ("serve", "kernel_from")}


def in_groups(layer: Layer, dtype: str, arguments: argparse.Namespace) -> Layer:
    """The layer of integers with a scale a group. Raises UserError."""
    if dtype not in problem.INTEGERS:
        raise UserError(f"{dtype} has no groups", where="--group_size", accepted=", ".join(problem.INTEGERS))
    if arguments.block_shape or arguments.per_channel:
        raise UserError("is given beside --group_size", where="--block_shape" if arguments.block_shape else
                        "--per_channel", accepted="one of them")  # fmt: skip
    group_size = arguments.group_size or (layer.block_shape[1] if layer.scaling == "group" else 0)
    if not group_size:
        flag = "--zero_points" if arguments.zero_points else "--dtype"
        raise UserError(f"{dtype} has its scales in groups" if flag == "--dtype" else "is for scales in groups",
                        where=flag, accepted="it with --group_size")  # fmt: skip
    return replace(layer, dtype=dtype, scaling="group", block_shape=(0, group_size),
                   zero_points=arguments.zero_points or layer.zero_points)  # fmt: skip


def typed(layer: Layer, arguments: argparse.Namespace) -> Layer:
    """The layer with the types of --dtype, --block_shape and --per_channel. Raises UserError for unsupported types."""
    dtype = arguments.dtype or ("fp8_w8a8" if arguments.block_shape or arguments.per_channel else "")
    if arguments.group_size or arguments.zero_points:
        dtype = dtype or layer.dtype
    if (arguments.group_size or arguments.zero_points) and dtype not in problem.INTEGERS:
        flag = "--group_size" if arguments.group_size else "--zero_points"
        raise UserError("is for integer weights", where=flag, accepted=f"--dtype {' or '.join(problem.INTEGERS)}")
    if not dtype:
        if not layer.dtype:
            raise UserError(layer.reason, where=str(arguments.source), accepted=", ".join(problem.DTYPES),
                            hint=model_config.OTHER_WAY)  # fmt: skip
        return layer
    if arguments.block_shape and arguments.per_channel:
        raise UserError("is given beside --block_shape", where="--per_channel", accepted="one of them")
    if dtype in problem.SIXTEEN_BIT:
        if arguments.block_shape or arguments.per_channel:
            raise UserError(f"{dtype} has no scales", where="--dtype", accepted="fp8_w8a8")
        out = arguments.out or dtype
        return replace(layer, dtype=dtype, out=out, scaling="none", block_shape=(0, 0), zero_points=False)
    said = arguments.block_shape or arguments.per_channel or arguments.group_size or arguments.zero_points
    if dtype == layer.dtype and not said:
        return layer
    if arguments.group_size or arguments.zero_points or dtype == "int4_w4a16":
        return in_groups(layer, dtype, arguments)
    scaling = "block" if arguments.block_shape else "channel" if arguments.per_channel else "tensor"
    scaling = "channel" if dtype == "int8_w8a16" and scaling == "tensor" else scaling
    shape = arguments.block_shape or (0, 0)
    return replace(layer, dtype=dtype, scaling=scaling, block_shape=shape, zero_points=False)


def launched_in_triton(found: list[MoeProblem], arch: str | None) -> tuple[list[MoeProblem], str]:
    """(the problems that servers multiply by the kernel that is tuned, one line about the others; all and "" where
    none is). arch: of --arch; without one that of a GPU here."""
    backend = "hip" if (arch.startswith("gfx") if arch else AMD_DRIVER.exists()) else "cuda"
    some = [one for one in found if one.server not in SERVERS or SERVERS[one.server].launches_it(one, backend)]
    left_out = [one for one in found if one not in some]
    others = [str(one.M) for one in left_out]
    if not some or not others:
        return found, ""
    line = f"M of {', '.join(others)} left out: {left_out[0].server} multiplies so few rows by a kernel in CUDA,"
    return some, f"{line} for which a file sets BLOCK_SIZE_M alone"


def with_shared_experts(found: list[MoeProblem], arguments: argparse.Namespace) -> str:
    """A line about the layer that SGLang makes of a model's experts and shared experts; "" where it makes none."""
    takes_them = any(one.server in SERVERS and SERVERS[one.server].takes_shared_experts for one in found)
    if arguments.source is None or "E" in arguments.given or not takes_them:
        return ""
    shared = model_config.shared_experts(arguments.source)
    E, topk = found[0].E + shared, found[0].topk + shared
    line = f"of some models sglang puts the shared experts, here {shared}, into this layer, and then reads a file of"
    return f"{line} E={E}: --E {E} --topk {topk} tunes that" if shared else ""


def in_dense_types(layer: Layer, dtype: str, scaling: str) -> Layer:
    """The layer in the types that ``sizes`` gives to dense layers. dtype: of A and B; fp8 names one of e4m3. Raises
    UserError for types that no server's fused MoE kernel has."""
    if dtype in problem.SIXTEEN_BIT:
        return replace(layer, dtype=dtype, out=dtype, scaling="none", block_shape=(0, 0), zero_points=False)
    if dtype not in ("fp8", *problem.FP8):
        accepted = ", ".join((*problem.SIXTEEN_BIT, "fp8", *problem.FP8))
        raise UserError(f"{dtype} is no type of fused MoE layers", where="--dtype", accepted=accepted,
                        hint="leave --moe out")  # fmt: skip
    shape = (SCALE_BLOCK, SCALE_BLOCK) if scaling == "block" else (0, 0)
    return replace(layer, dtype="fp8_w8a8", scaling=SCALINGS[scaling], block_shape=shape, zero_points=False)


def dense_types(arguments: argparse.Namespace) -> tuple[str, str]:
    """(dtype, scaling) of dense layers, as ``sizes`` takes them, beside experts in the types of ``moe``'s flags; empty
    where config.json decides, as beside experts of integers. Raises UserError for scales of other blocks than dense
    layers have."""
    dtype = arguments.dtype or ("fp8_w8a8" if arguments.block_shape or arguments.per_channel else "")
    if dtype in problem.SIXTEEN_BIT:
        return dtype, ""
    if dtype != "fp8_w8a8":
        return "", ""
    of_model = model_config.read(arguments.source, activation=arguments.activation or "", is_typed=True)
    if not (arguments.block_shape or arguments.per_channel) and of_model.dtype == dtype:
        return "", ""  # with the scales that the model has, as ``typed`` leaves them to the experts
    if arguments.block_shape not in (None, (SCALE_BLOCK, SCALE_BLOCK)):
        shape = ",".join(map(str, arguments.block_shape))
        raise UserError(f"dense layers have no scales of blocks of {shape}", where="--dense",
                        accepted=f"--block_shape {SCALE_BLOCK},{SCALE_BLOCK}")  # fmt: skip
    return "fp8", "block" if arguments.block_shape else "row_col" if arguments.per_channel else "tensor"
