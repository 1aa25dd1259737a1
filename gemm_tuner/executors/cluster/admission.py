"""Whether a Ray cluster answers at an address, and lets this process in; asked before Ray is imported here."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from enum import Enum

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.system.child_output import run_child
from gemm_tuner.system.installation import IMPORT_ROOT

FLAG = "--cluster"
# For a connection to a cluster's head.
REACH_LIMIT_S = 10.0
# Asks a cluster's head who it is. What Ray then names, if it is its token that is wrong.
ASK = """
import sys
try:
    from ray._raylet import GcsClient
except ImportError:
    sys.exit()  # another version: what cannot be asked is tried
GcsClient(address=sys.argv[1])
"""
ASK_LIMIT_S = 20.0
BY_TOKEN = ("AuthenticationError", "authentication_token")
AUTH_MODE = "RAY_AUTH_MODE"
TOKEN = "it is ~/.ray/auth_token of the head: copy it to this machine, and leave RAY_AUTH_MODE unset"
IS_IT_RUNNING = "is it running (ray status), and this machine one of its own (ray start --address=ADDRESS)?"


def be_let_in(address: str, text: str) -> None:
    """Sets RAY_AUTH_MODE where a cluster at HOST:PORT asks for a token; Ray reads it when it is imported. text: of the
    flag.

    Raises EnvironmentFault where no cluster answers, or one that does not let this process in: Ray would try for
    minutes, with a warning each second, or abort.
    """
    host, colon, port = address.rpartition(":")
    if not colon or "/" in host or not port.isdecimal():
        return
    where = f"{FLAG} {text}"
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_LIMIT_S).close()
    except (OSError, OverflowError) as error:
        raise EnvironmentFault(f"nothing answers there: {error}", where=where, hint=IS_IT_RUNNING) from error
    answer = ask(address, {})
    if answer == Answer.ASKS_FOR_TOKEN and AUTH_MODE not in os.environ:
        # Only then: in a cluster without tokens Ray ends the actors of a process that asks for one.
        answer = ask(address, {AUTH_MODE: "token"})
        os.environ[AUTH_MODE] = "token"
    if answer == Answer.ASKS_FOR_TOKEN:
        raise EnvironmentFault("Ray's token is missing here, or is not the cluster's", where=where, hint=TOKEN)
    if answer == Answer.NONE:
        what = "what answers there is no Ray cluster, or one of another version"
        raise EnvironmentFault(what, where=where, hint=IS_IT_RUNNING)


class Answer(Enum):
    """Of what listens at an address."""

    CLUSTER, ASKS_FOR_TOKEN, NONE = range(3)


def ask(address: str, variables: Mapping[str, str]) -> Answer:
    """Asks in a process of its own, which has these variables."""
    said = run_child([sys.executable, "-c", ASK, address], {**os.environ, **variables}, IMPORT_ROOT, ASK_LIMIT_S)
    if any(word in said.stderr for word in BY_TOKEN):
        return Answer.ASKS_FOR_TOKEN
    return Answer.NONE if said.timed_out or said.exit_status else Answer.CLUSTER
