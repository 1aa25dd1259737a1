"""What compile workers are forked from: which modules it imports, and its start ahead of the first worker."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator, Mapping

from gemm_tuner.compile import fork_server
from gemm_tuner.compile.compile_worker import serve
from gemm_tuner.core.language import Language
from gemm_tuner.core.records import Target
from gemm_tuner.core.workload import workload_of
from gemm_tuner.languages.together import Together


@contextlib.contextmanager
def without_main_script() -> Iterator[None]:
    """While the block runs, spawned processes do not import the main script. They do not need it, and a script that
    calls this package without ``if __name__ == "__main__"`` would start everything again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def server_modules(worker_module: str, kind: str) -> tuple[str, ...]:
    """What workers would import one by one."""
    if not worker_module:
        return ()
    workload = (type(workload_of(kind)).__module__,) if kind else ()
    return (worker_module, serve.__module__, *workload)


def imports_of(language: Language, kind: str, target: Target | None) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """(modules, variables) of the server that workers of a language are forked from; no modules: of none."""
    module, variables = language.worker_imports(target)
    return server_modules(module, kind), variables


def begin(language: Language, kind: str, target: Target | None = None) -> None:
    """Lets what workers are forked from import compilers, before there is anything to compile.

    target: None while it is unknown; compilers whose import depends on it are then left for a second call."""
    for one in (language.main, *language.others) if isinstance(language, Together) else (language,):
        modules, variables = imports_of(one, kind, target)
        if modules:
            with without_main_script():
                fork_server.begin(modules, variables)
