"""Work that is done beside a wait for something else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Background:
    """Does one thing at a time, in a thread of its own that does not keep the process alive."""

    name: str
    _thread: threading.Thread | None = field(default=None, init=False)
    _error: BaseException | None = field(default=None, init=False)

    def begin(self, work: Callable[[], None]) -> None:
        """Begins it, after what was begun before has ended. Raises what that raised."""
        self.end()
        self._thread = threading.Thread(target=self._run, args=(work,), name=self.name, daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # raised again by ``end``
            self._error = error

    def wait(self) -> None:
        """Waits until what was begun has ended, whatever came of it."""
        if self._thread is not None:
            self._thread.join()

    def end(self) -> None:
        """Waits until what was begun has ended. Raises what it raised."""
        self.wait()
        error, self._thread, self._error = self._error, None, None
        if error is not None:
            raise error


def begun_once(work: Callable[[], None], name: str, *, now: bool = False) -> Callable[[], None]:
    """A function that begins the work in a thread, which does not keep the process alive, when any thread first calls
    it. now: it is begun already."""
    begun = threading.Lock()  # once held, for good

    def begin() -> None:
        if begun.acquire(blocking=False):
            threading.Thread(target=work, name=name, daemon=True).start()

    if now:
        begin()
    return begin
