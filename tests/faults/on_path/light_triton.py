"""In the launcher of a generated script, something light in triton's place: it launches nothing. Elsewhere: nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def jit(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    return function if function is not None else lambda kernel: kernel


if "--plan" in sys.argv:
    triton, language = ModuleType("triton"), ModuleType("triton.language")
    vars(triton).update(jit=jit, language=language)
    vars(language).update(constexpr=object)
    sys.modules.update({"triton": triton, "triton.language": language})
