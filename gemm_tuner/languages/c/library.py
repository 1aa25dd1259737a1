"""Compiles C functions to shared libraries in a content-addressed cache, and loads them with ctypes."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gemm_tuner.languages.elf import code_of
from gemm_tuner.languages.kernel_cache import mark_used

CACHE_VARIABLE = "GEMM_TUNER_C_CACHE"
FILE = "kernel.so"
ENTRY = re.compile("[0-9a-f]{64}")
COMPILE_SECONDS = 60
MESSAGE_CHARACTERS = 2000
WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
FLAG = re.compile(r"-[Ofm][\w=.,+-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Source:
    """One C function. symbol: its name in the library. defines: macros (name, value). flags: -O, -f and -m options."""

    symbol: str
    text: str
    defines: tuple[tuple[str, str], ...] = ()
    flags: tuple[str, ...] = ("-O2",)

    @classmethod
    def of(cls, function: Any) -> Source:
        """From a ``Function`` of a generated script. Raises ValueError for an invalid name or flag."""
        defines = tuple((str(name), str(value)) for name, value in function.defines.items())
        source = cls(str(function.symbol), str(function.text), defines, tuple(map(str, function.flags)))
        names = [source.symbol, *(name for name, _ in defines)]
        for word in [name for name in names if not WORD.fullmatch(name)]:
            raise ValueError(f"{word!r} is no name in C")
        for flag in [flag for flag in source.flags if not FLAG.fullmatch(flag)]:
            raise ValueError(f"{flag!r} is no -O, -f or -m option")
        return source

    def options(self) -> list[str]:
        return [*self.flags, *(f"-D{name}={value}" for name, value in self.defines)]


def compiler(environ: Mapping[str, str]) -> str:
    """The command that compiles C: $CC, else cc."""
    return environ.get("CC") or "cc"


@lru_cache(maxsize=4)
def compiler_version(command: str) -> str:
    """The first line of ``cc --version``; "not found" without a compiler."""
    try:
        done = subprocess.run([*shlex.split(command), "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return "not found"
    return (done.stdout.strip().splitlines() or ["not found"])[0]


def entry_of(source: Source, command: str) -> str:
    """The name of the cache entry: a hash over the source, the options and the compiler."""
    parts = (compiler_version(command), platform.machine(), source.symbol, source.text, *source.options())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def compiled(source: Source, cache: Path) -> tuple[str, bool]:
    """Compiles a source unless it is cached; returns (name of the entry, whether it was cached). Raises
    CalledProcessError for a compiler error, ValueError without a compiler, OSError when the cache cannot be written."""
    command = compiler(os.environ)
    entry = entry_of(source, command)
    if (cache / entry / FILE).is_file() and mark_used(cache / entry):
        return entry, True
    if shutil.which(shlex.split(command)[0]) is None:
        raise ValueError(f"{command} is not there: install a C compiler, or name one in CC")
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / FILE
        arguments = ["-shared", "-fPIC", "-x", "c", "-", "-o", str(built), *source.options(), "-lm"]
        subprocess.run(
            [*shlex.split(command), *arguments],
            input=source.text.encode(), capture_output=True, timeout=COMPILE_SECONDS, check=True,
        )  # fmt: skip
        put(cache, entry, built.read_bytes())
    return entry, False


def put(cache: Path, entry: str, content: bytes) -> None:
    """Writes an entry atomically, so that other processes can load it at any time. Raises OSError."""
    folder = cache / entry
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as part:
        (Path(part) / FILE).write_bytes(content)
        (Path(part) / FILE).replace(folder / FILE)


def code_hash(libraries: Iterable[Path]) -> str:
    """sha256 over the machine code of the libraries of one call, without the functions' names."""
    digest = hashlib.sha256()
    for path in libraries:
        digest.update(code_of(path.read_bytes()))
    return digest.hexdigest()


def said(error: BaseException) -> str:
    """The compiler's output if the error has one, else the text of the error."""
    printed = getattr(error, "stderr", None) or b""
    return (printed.decode(errors="replace").strip() or str(error))[:MESSAGE_CHARACTERS]


def load(source: Source, cache: Path) -> tuple[Callable[..., None], bool]:
    """Returns (the function, whether it was in the cache)."""
    entry, was_there = compiled(source, cache)
    function = getattr(ctypes.CDLL(str(cache / entry / FILE)), source.symbol)

    def call(*arguments: Any) -> None:
        function(*map(c_value, arguments))

    return call, was_there


def c_value(value: Any) -> Any:
    """Converts an argument for ctypes: to a long, a double, or the address of a buffer that the caller keeps alive."""
    if isinstance(value, int):
        return ctypes.c_long(value)
    if isinstance(value, float):
        return ctypes.c_double(value)
    if isinstance(value, bytearray):
        return (ctypes.c_char * len(value)).from_buffer(value)
    address = value.data_ptr() if hasattr(value, "data_ptr") else value.ctypes.data
    return ctypes.c_void_p(address)
