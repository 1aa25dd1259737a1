"""Begins to compile while the rules still cut sizes: what the search will ask for first for the first of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType

from gemm_tuner.compile.compile_tasks import interleaved
from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.pipeline.round_parts import by_compile_work, view_of
from gemm_tuner.pipeline.serving_space import searched_apart
from gemm_tuner.pipeline.session import Scripts, Session
from gemm_tuner.search import make_search
from gemm_tuner.space.size_state import Named, SizeState

# The search is asked for so many sizes first, and then each time there are twice as many, until half of them are cut:
# longer it would take more time than compiling gains.
FIRST_SIZES = 4


@dataclass
class FirstKernels:
    """The scripts of a run and its compile stage, which begins with the first sizes. Use it as a context manager around
    ``add`` and ``stage``.

    The guided search goes through the sizes in order, and its first proposals for one depend on no later one: what it
    asks for here, it asks for again, unless candidates are added after the rules (--update, a default configuration).
    What is compiled without being asked for later is not timed.

    expected: how many sizes there will be; 0 if the stage is to begin when it is used.
    """

    session: Session
    expected: int = 0
    scripts: Scripts = field(default_factory=dict)
    _sizes: list[SizeState] = field(default_factory=list)
    _next: int = FIRST_SIZES
    _begun: CompileStage | None = None
    _ends: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> FirstKernels:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.__exit__(kind, error, trace)

    def add(self, size: SizeState) -> None:
        """Takes the next size that the rules have cut."""
        self._sizes.append(size)
        if len(self._sizes) == self._next <= self.expected // 2:
            self._next *= 2
            self.session.log.passed("apply the rules")
            self._prefetch(self._sizes)

    def _prefetch(self, sizes: list[SizeState]) -> None:
        """Lets idle workers compile what the search asks for first for these sizes, in the order in which a round has
        them compiled."""
        asked = self._proposed(sizes)
        groups = by_compile_work(asked, self.session.device.target)
        wanted = [one for group in groups for one in interleaved(group)]
        self.scripts.update(self.session.write_scripts(wanted))
        self._open().prefetch(wanted)

    def _proposed(self, sizes: list[SizeState]) -> Named:
        options = self.session.options
        with self.session.log.stage("search"):
            search = make_search(options.search, seed=options.seed, jobs=options.compile_workers)
            views = [view_of(size) for size in sizes]
            proposed = searched_apart(search, (), sizes).propose(views, self.session.device)
        return [(size, list(proposed.get(size.problem, ()))) for size in sizes]

    def _open(self) -> CompileStage:
        if self._begun is None:
            self._begun = self._ends.enter_context(self.session.compile_stage(self.scripts))
        return self._begun

    @contextmanager
    def stage(self) -> Iterator[CompileStage | None]:
        """The compile stage while the block runs, by whose end it ends; None for a run that compiles nothing before it
        is timed."""
        with self._ends:
            yield self._open() if self.session.options.compile_stage else None
