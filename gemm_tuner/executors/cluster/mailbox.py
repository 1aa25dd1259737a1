"""What a station has to say, until it is asked for it."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Mailbox:
    """Filled in one thread, emptied in another."""

    _waiting: deque[Any] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def put(self, message: Any) -> None:
        with self._changed:
            self._waiting.append(message)
            self._changed.notify_all()

    def take(self, wait_s: float) -> list[Any]:
        """All messages in their order, as soon as there is one; none when ``wait_s`` is over."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting), wait_s)
            messages = list(self._waiting)
            self._waiting.clear()
            return messages
