"""The optional packages of CuTe DSL: which versions, what they bring, and under which licence; imports none of them."""

from __future__ import annotations

import importlib.util
import os
from importlib import metadata
from pathlib import Path

from gemm_tuner.languages.cute.library import HINT, RUNTIME_VARIABLE

# As in setup.cfg: both change their interfaces from version to version.
PINNED = {"nvidia-cutlass-dsl": "4.8.1", "quack-kernels": "0.6.5"}
LAUNCHED_THROUGH = "apache-tvm-ffi==0.1.15.post2"
# By which quack-kernels tells a library's code from a user's.
PACKAGES = {"site-packages", "dist-packages"}
MADE_WITH = f"# {', '.join(f'{name} {version}' for name, version in PINNED.items())}\n"
GET = f"the extra cute ({HINT}; NVIDIA's proprietary licence)"
# Of results/tuned/nvidia_h200_bf16.yaml, sizes with aligned rows: geometric means of torch.mm / the best in Triton,
# and of torch.mm / the best.
BRINGS = f"{GET} raises the mean speed from 1.00 to 1.09 times torch.mm's (H200, bf16, 62 sizes)"
# Of a machine that launches compiled kernels only.
NEEDS = (
    f"pip install 'nvidia-cutlass-dsl[cu13]=={PINNED['nvidia-cutlass-dsl']}' '{LAUNCHED_THROUGH}' "
    "(NVIDIA's proprietary licence)"
)


def installed() -> dict[str, str]:
    """The versions of PINNED that are there."""
    found = {}
    for name in PINNED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def why_absent(brings: str = BRINGS) -> str:
    """Why there can be no kernels of the library here, in one line; empty when there can. Looks, imports nothing.

    brings: the line where the packages are not installed: how to get them, under which licence, and what for.

    Kernels that were compiled elsewhere are launched with the runtime library that a variable names. Other versions are
    refused there, too: what they compile would lie in the cache as kernels of the pinned ones.
    """
    there = installed()
    is_other = any(PINNED[name] != version for name, version in there.items())
    if not is_other and os.environ.get(RUNTIME_VARIABLE) and importlib.util.find_spec("tvm_ffi"):
        return ""
    if importlib.util.find_spec("cutlass") is None or importlib.util.find_spec("quack") is None or not there:
        return brings
    others = [f"{name} {there.get(name, 'none')}" for name, version in PINNED.items() if there.get(name) != version]
    wanted = " and ".join(f"{name} {version}" for name, version in PINNED.items())
    return f"it is made for {wanted}, and here is {', '.join(others)}" if others else _why_misplaced()


def _why_misplaced() -> str:
    """Why CuTe DSL cannot be used where it lies; "" where it can.

    quack-kernels compiles a kernel with an epilogue only if all functions that this calls lie in a folder of PACKAGES,
    or are its own. After pip install --target CuTe DSL's do not.
    """
    spec = importlib.util.find_spec("cutlass")
    path = Path(spec.origin) if spec is not None and spec.origin else None
    if path is None or not path.is_absolute() or PACKAGES.intersection(path.parts):
        return ""
    return (
        f"quack-kernels compiles some kernels only with CuTe DSL in a folder called site-packages: it is {path.parent}"
    )
