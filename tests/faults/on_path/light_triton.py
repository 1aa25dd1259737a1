"""In the launcher of a generated script, something light in triton's place: it launches nothing. Elsewhere: nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any


def jit(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    return function if function is not None else lambda kernel: kernel


if "--plan" in sys.argv:
    modules = {name: ModuleType(name) for name in ("triton", "triton.language", "triton.language.extra.cuda")}
    triton, language, cuda = modules.values()
    knobs = SimpleNamespace(runtime=SimpleNamespace(interpret=False))
    vars(triton).update(jit=jit, language=language, knobs=knobs)
    vars(language).update(constexpr=object)
    vars(cuda).update(gdc_launch_dependents=jit, gdc_wait=jit)
    sys.modules.update(modules)
    sys.modules["triton.language.extra"] = ModuleType("triton.language.extra")
