"""A session of tests is the same whether it was started in the background of a shell or not."""

from __future__ import annotations

import signal


def take_interrupts() -> None:
    """Undoes what the background of a shell does: SIGINT is ignored there. The tuner takes it, so what the tuner starts
    would be in another state than the servers of warm processes, and start cold."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
