"""Several kernel languages in one run: one of them measures, keeps the cache and names it; the others add families."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gemm_tuner.core.language import Artifact, Compiles, CompileTask, Language, language_of
from gemm_tuner.core.records import CompileResult, Target


def named(names: Sequence[str]) -> Language:
    """The language of the first name, with the others."""
    main, *others = map(language_of, names)
    return Together(main, tuple(others)) if others else main


def names_of(language: Language) -> tuple[str, ...]:
    """What ``named`` makes the same language of."""
    others = language.others if isinstance(language, Together) else ()
    return (language.name, *(one.name for one in others))


class Together:
    """``main`` with what ``others`` add: their variables and versions. Each compiles in workers of its own."""

    def __init__(self, main: Language, others: tuple[Language, ...]) -> None:
        self.main, self.others = main, others
        self.name, self.backends, self.test_command = main.name, main.backends, main.test_command
        self.removed_variables = tuple(dict.fromkeys(name for one in (main, *others) for name in one.removed_variables))

    def launch_options(self, target: Target) -> tuple[str, ...]:
        return self.main.launch_options(target)

    def identity(self, environ: Mapping[str, str]) -> dict[str, str]:
        return {key: value for one in (*self.others, self.main) for key, value in one.identity(environ).items()}

    def code_variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        return {key: value for one in (*self.others, self.main) for key, value in one.code_variables(environ).items()}

    def environment(self, cache: Path) -> dict[str, str]:
        return {key: value for one in (*self.others, self.main) for key, value in one.environment(cache).items()}

    def interpreter_environment(self) -> dict[str, str] | None:
        return self.main.interpreter_environment()

    def require_interpreter(self) -> None:
        self.main.require_interpreter()

    def cache_name(self, *templates_dirs: Path) -> str:
        return self.main.cache_name(*templates_dirs)

    def adopt_cache(self, cache: Path) -> None:
        self.main.adopt_cache(cache)

    def pack(self, cache: Path, entry: str) -> Artifact:
        """By the language whose entry it is: the others raise ValueError."""
        for one in (self.main, *self.others[:-1]):
            with suppress(ValueError):
                return one.pack(cache, entry)
        return self.others[-1].pack(cache, entry)

    def unpack(self, artifact: Artifact, cache: Path) -> None:
        for one in (self.main, *self.others[:-1]):
            with suppress(ValueError):
                one.unpack(artifact, cache)
                return
        self.others[-1].unpack(artifact, cache)

    def worker_imports(self, target: Target | None) -> tuple[str, dict[str, str]]:
        return self.main.worker_imports(target)

    def worker_argument(self, folder: Path) -> str:
        return self.main.worker_argument(folder)

    def start_worker(self, target: Target, argument: str) -> None:
        self.main.start_worker(target, argument)

    def find(self, task: CompileTask, target: Target, scripts_dir: str) -> CompileResult | None:
        return self.main.find(task, target, scripts_dir)

    def compile(self, task: CompileTask, target: Target, scripts_dir: str) -> CompileResult:
        return self.main.compile(task, target, scripts_dir)

    def start_launcher(self, device: str) -> Compiles:
        return self.main.start_launcher(device)

    def support_calls(self, flush_bytes: int, device: str) -> dict[str, Callable[..., None]]:
        return self.main.support_calls(flush_bytes, device)
