"""Executes the definitions of ``module_sources``: the user's files as modules that can import each other."""

from __future__ import annotations

import builtins
import hashlib
import linecache
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any


class UserModules:
    """The user's modules by import name; each is executed at its first import.

    They are not visible to other modules of the process, so two specs may each have a softmax.py.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources, self._loaded = dict(sources), dict[str, ModuleType]()
        self._prefix = f"user_{hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest()[:12]}"

    def load(self, name: str) -> ModuleType:
        """The module ``name``. Raises whatever the user's definitions raise."""
        if name not in self._loaded:
            source, file = self._sources[name], f"<{name}.py>"
            module = ModuleType(f"{self._prefix}.{name}")
            module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._import}
            # Triton reads sources through linecache, and dataclasses look up their module by name.
            linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
            self._loaded[name] = sys.modules[module.__name__] = module
            try:
                exec(compile(source, file, "exec"), module.__dict__)  # noqa: S102
            except BaseException:
                del self._loaded[name]
                raise
        return self._loaded[name]

    def _import(self, name: str, given: Any = None, local: Any = None, wanted: Any = (), level: int = 0) -> ModuleType:
        """Replaces ``__import__``: returns a for ``import a.b``, and a.b for ``from a.b import c``."""
        if level == 0 and name in self._sources:
            module = self.load(name)
            first, _, rest = name.partition(".")
            if wanted or not rest:
                return module
            for part in reversed(rest.split(".")):
                holder = ModuleType(first)
                setattr(holder, part, module)
                module = holder
            return module
        return builtins.__import__(name, given, local, wanted, level)
