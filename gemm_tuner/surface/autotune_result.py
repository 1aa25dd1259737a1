"""The result of tuning a function, which can be saved to a folder of readable files (no pickle)."""

from __future__ import annotations

import ast
import csv
import functools
import hashlib
import importlib
import io
import json
import os
import secrets
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.surface import fingerprints, used_globals
from gemm_tuner.surface.configurations import Candidate
from gemm_tuner.surface.profile_args import CompileArgs
from gemm_tuner.surface.tunables import Arguments, Function, Kernel, is_jit
from gemm_tuner.system.json_records import load_json

BEST_CONFIG, LATENCY, TABLE, ORIGIN = "best_config.json", "latency.json", "table.csv", "origin.json"
SOURCE, GENERATED = "source.py", "device_kernel.cu"
# The parts of a compiled Triton kernel that are saved.
BINARIES = ("ptx", "cubin", "amdgcn", "hsaco")
SCALARS = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class AutotuneResult:
    """The result of tuning one call. latency, ref_latency: milliseconds per call; None if not timed.

    func:     the program for TileLang kernels, else the tuned function.
    libcode:  generated source; "" if unavailable. binaries: compiled code, by file ending.
    table:    one row per configuration.
    origin:   how another process can import and call the function: module, qualname, args, kwargs.
    """

    latency: float | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    ref_latency: float | None = None
    libcode: str = ""
    func: Any = None
    kernel: Any = None
    table: Sequence[Mapping[str, Any]] = ()
    source: str = ""
    origin: Mapping[str, Any] = field(default_factory=dict)
    binaries: Mapping[str, bytes] = field(default_factory=dict)

    def save_to_disk(self, path: Path | str, verbose: bool = False) -> None:
        """Writes a folder atomically, replacing an existing one. verbose: prints the files, and ``not_kept``.

        Raises EnvironmentFault if it cannot be written.
        """
        target = Path(path)
        staging = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
        try:
            staging.mkdir(parents=True)
            for name, content in self._files().items():
                (staging / name).write_bytes(content)
                if verbose:
                    print(target / name)
            for one in self.not_kept() if verbose else ():
                print(f"not kept: {one}")
            if target.exists():
                os.replace(target, staging.with_suffix(".old"))
            os.replace(staging, target)
        except OSError as error:
            raise EnvironmentFault(f"cannot be written: {error.strerror or error}", where=str(target)) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            shutil.rmtree(staging.with_suffix(".old"), ignore_errors=True)

    def not_kept(self) -> tuple[str, ...]:
        """What no folder holds of this result, with what another process does about it."""
        module, name = self.origin.get("module", ""), str(self.origin.get("qualname", ""))
        code = "compiled code, load_from_disk builds the kernel again" if self.kernel and not self.binaries else ""
        is_found = bool(name) and "<locals>" not in name and module != "__main__"
        function = "" if is_found else f"{name or 'the function'}, which no import finds: load_from_disk(function=...)"
        args = self.origin.get("args", ()) is not None
        values = "" if args else "arguments that are no plain values: load_from_disk(function=functools.partial(...))"
        return tuple(filter(None, (code, function, values)))

    def _files(self) -> dict[str, bytes]:
        hashes = {ending: hashlib.sha256(content).hexdigest() for ending, content in self.binaries.items()}
        latency = {"latency": self.latency, "ref_latency": self.ref_latency, "unit": "ms", "sha256": hashes}
        texts = {
            BEST_CONFIG: _json(dict(self.config)),
            LATENCY: _json(latency),
            ORIGIN: _json(dict(self.origin)),
            TABLE: _csv(self.table),
            **({SOURCE: self.source} if self.source else {}),
            **({GENERATED: self.libcode} if self.libcode else {}),
        }
        coded = {f"kernel.{ending}": content for ending, content in self.binaries.items()}
        return {**{name: text.encode() for name, text in texts.items()}, **coded}

    @classmethod
    def load_from_disk(
        cls, path: Path | str, compile_args: CompileArgs | None = None, *, function: Callable[..., Any] | None = None
    ) -> AutotuneResult:
        """Reads what ``save_to_disk`` wrote, and builds the kernel again for the best configuration.

        function: the tuned function; by default it is imported by module name. Nothing in the folder is executed. If it
        cannot be imported, ``kernel`` is None, with a warning that says why. Raises UserError for another folder.
        """
        result = cls.read(Path(path))
        try:
            return result.built(function or _imported(result.origin), compile_args)
        except UserError as error:
            warnings.warn(f"{path}: no kernel: {error.one_line()}", stacklevel=2)
            return result

    @classmethod
    def read(cls, folder: Path) -> AutotuneResult:
        """Reads a folder without building the kernel. Raises UserError."""
        origin, latency = load_json(folder / ORIGIN, "result"), load_json(folder / LATENCY, "result")
        hashes = latency.get("sha256", {})
        return cls(
            latency=latency.get("latency"),
            config=_with_tuples(load_json(folder / BEST_CONFIG, "result")),
            ref_latency=latency.get("ref_latency"),
            libcode=_text(folder / GENERATED),
            table=[
                {title: cell if title == "reason" else _value(cell) for title, cell in row.items()}
                for row in csv.DictReader(io.StringIO(_text(folder / TABLE)))
            ],
            source=_text(folder / SOURCE),
            origin=origin,
            binaries={ending: _binary(folder / f"kernel.{ending}", sha) for ending, sha in hashes.items()},
        )

    def built(self, function: Callable[..., Any], compile_args: CompileArgs | None = None) -> AutotuneResult:
        """The result with the kernel built for the best configuration.

        Raises UserError for a function other than the tuned one, or if its arguments were not saved."""
        name = self.origin.get("qualname", "the function")
        if self.source and fingerprints.source_of(function) not in ("", self.source):
            raise UserError(f"{name} is another one now", hint="tune it again")
        if is_jit(function):
            kernel = Kernel(function, None, Arguments()).build(Candidate(self.config)).kernel
            return replace(self, func=function, kernel=kernel)
        if self.origin.get("args") is None and not isinstance(function, functools.partial):
            raise UserError(f"the arguments of {name} are no plain values", hint="give function= a functools.partial")
        is_bound = isinstance(function, functools.partial)
        call = Arguments() if is_bound else Arguments(tuple(self.origin["args"]), self.origin.get("kwargs", {}))
        built = Function(function, call, compile_args).build(Candidate(self.config))
        return replace(self, func=getattr(built.kernel, "prim_func", function), kernel=built.kernel)


def origin_of(function: Any, call: Arguments) -> dict[str, Any]:
    """The ``origin`` of a function: where it can be imported, and its arguments (including those of partials) if these
    are plain values."""
    while isinstance(function, functools.partial):
        call = Arguments((*function.args, *call.args), {**function.keywords, **call.kwargs})
        function = function.func
    under = used_globals.function_under(function)
    found: dict[str, Any] = {"module": getattr(under, "__module__", ""), "qualname": getattr(under, "__qualname__", "")}
    values = [*call.args, *call.kwargs.values()]
    plain = all(isinstance(one, SCALARS) for one in values)
    return {**found, "args": list(call.args) if plain else None, "kwargs": dict(call.kwargs) if plain else {}}


def binaries_of(compiled: Any) -> dict[str, bytes]:
    """The parts of a compiled Triton kernel by file ending; empty for others."""
    asm = getattr(compiled, "asm", None)
    found = {ending: asm[ending] for ending in BINARIES if ending in asm} if isinstance(asm, Mapping) else {}
    return {ending: one.encode() if isinstance(one, str) else bytes(one) for ending, one in found.items()}


def _imported(origin: Mapping[str, Any]) -> Callable[..., Any]:
    """Imports the function of an ``origin``. Raises UserError."""
    module, qualname = str(origin.get("module", "")), str(origin.get("qualname", ""))
    where, hint = f"{module}.{qualname}", "give it: load_from_disk(path, function=...)"
    if not qualname or "<locals>" in qualname:
        raise UserError("is defined inside a function", where=where, hint=hint)
    if module == "__main__" and not hasattr(sys.modules[module], qualname.partition(".")[0]):
        raise UserError("was defined in another script", where=where, hint=hint)
    try:
        found: Any = importlib.import_module(module)
        for name in qualname.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"cannot be imported: {error}", where=where, hint=hint) from error
    function: Callable[..., Any] = found.__wrapped__ if getattr(found, "autotuned", False) is True else found
    return function


def _with_tuples(config: Any) -> dict[str, Any]:
    return {name: tuple(one) if isinstance(one, list) else one for name, one in dict(config).items()}


def _value(cell: str) -> Any:
    """A cell of the table: a number, bool or tuple as it was before it was written, else its text, such as 128_4."""
    try:
        found = ast.literal_eval(cell)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return cell
    return found if isinstance(found, (bool, int, float, tuple)) and str(found) == cell else cell


def _binary(path: Path, sha256: str) -> bytes:
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != sha256:
        raise UserError("was changed or is gone", where=str(path))
    return content


def _text(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str) + "\n"


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    titles = list(dict.fromkeys(title for row in rows for title in row))
    writer = csv.DictWriter(text, titles, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
