"""What the machines of a cluster are, and which of them cannot work for a run."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import gemm_tuner
from gemm_tuner.languages.cute import extra
from gemm_tuner.system.installation import PACKAGE
from gemm_tuner.system.source_hash import sources_sha


@dataclass(frozen=True, slots=True)
class Versions:
    """tuner: its version, and a hash of its code, which decides what kernels are and how they are timed. triton, torch:
    "" where it is not installed; compiling Triton kernels needs no torch. cute: those of the optional extra."""

    tuner: str
    python: str
    triton: str
    torch: str
    cute: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of a cluster. id: the scheduler's. gpus: that it may use. versions: None where the tuner is not
    installed there; why_not says it."""

    id: str
    address: str
    cpus: int
    gpus: int
    versions: Versions | None = None
    why_not: str = ""


def look_here() -> Versions:
    """Of this process's machine, without importing anything heavy."""

    def installed(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return ""

    tuner = f"{gemm_tuner.__version__} ({sources_sha(PACKAGE, ('**/*.py',))})"
    python = ".".join(platform.python_version_tuple()[:2])
    cute = ", ".join(f"{name} {found}" for name, found in extra.installed().items())
    return Versions(tuner, python, installed("triton"), installed("torch"), cute)


def faults(node: Node, here: Versions, *, times: bool) -> list[str]:
    """Why a machine cannot work for a run that was started where ``here`` is; empty when it can. times: it is to time
    kernels, not only to compile them."""
    there = node.versions
    if there is None:
        return [node.why_not or "it did not answer"]
    names = ("tuner", "python", "triton", *(("torch",) if times else ()), *(("cute",) if here.cute else ()))
    return [
        f"{name} is {getattr(there, name) or 'not installed'}, here {getattr(here, name) or 'not installed'}"
        for name in names
        if getattr(there, name) != getattr(here, name)
    ]


def counted(count: int, what: str) -> str:
    """For a line to a person."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def gpu_files(names: Iterable[str]) -> dict[str, str]:
    """For each GPU model, a word for the name of its results file: unlike the others', and safe in a file's name."""
    safe = {name: "".join(c if c.isalnum() else "_" for c in name.lower()).strip("_") for name in names}
    words = list(safe.values())
    return {
        name: word if words.count(word) == 1 else f"{word}_{number}" for number, (name, word) in enumerate(safe.items())
    }
