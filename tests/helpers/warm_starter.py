"""``python warm_starter.py PID FD FDKIND ...``: begins a server (warm_server.py) for each listening socket when
somebody connects to it, in the state in which this process was started; see warm_python.py. It ends when PID does."""

from __future__ import annotations

import os
import selectors
import sys
from pathlib import Path

from warm_python import ROOM


def main(owner: int, sockets: list[str]) -> None:
    script = str(Path(__file__).with_name("warm_server.py"))
    with selectors.DefaultSelector() as events:
        events.register(os.pidfd_open(owner), selectors.EVENT_READ)
        for one in sockets:
            kind = one.lstrip("0123456789")
            fd = int(one.removesuffix(kind))
            os.set_inheritable(fd, False)
            events.register(fd, selectors.EVENT_READ, kind)
        while len(events.get_map()) > 1:
            for key, _ in events.select():
                if key.data is None:
                    return
                events.unregister(key.fd)
                env = {**os.environ, **({key.data: "1"} if key.data else {})}
                words = [sys.executable, script, str(owner), "x" * ROOM[0]]
                listening = [(os.POSIX_SPAWN_DUP2, key.fd, 0)]
                os.posix_spawn(sys.executable, words, env, file_actions=listening, setpgroup=0)
                os.close(key.fd)  # who connects is turned away once the server is gone


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
