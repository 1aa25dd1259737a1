"""What the machines of a cluster are, and which of them cannot work for a run."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass, replace
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
    kernels, not only to compile those that it does not lack the language of."""
    there = node.versions
    if there is None:
        return [node.why_not or "it did not answer"]
    return _unlike(there, here, ("tuner", "python", "triton", *(("torch", *_extras(here)) if times else ())))


def lacks(node: Node, here: Versions) -> dict[str, str]:
    """The languages that a machine cannot compile for a run that was started where ``here`` is, and why; those that
    need no more than Triton's kernels do are none of them."""
    there = node.versions or Versions("", "", "", "")
    return {name: text for name in _extras(here) for text in _unlike(there, here, (name,))}


def here_for(languages: Iterable[str]) -> Versions:
    """``look_here`` for a run of these languages: extras of others do not matter."""
    here = look_here()
    return here if "cute" in languages else replace(here, cute="")


def _extras(here: Versions) -> tuple[str, ...]:
    return ("cute",) if here.cute else ()


def _unlike(there: Versions, here: Versions, names: Iterable[str]) -> list[str]:
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
