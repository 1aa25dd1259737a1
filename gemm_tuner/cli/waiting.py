"""``--wait`` and ``--no_wait``: what a command that times or checks on a GPU does while another process has it."""

from __future__ import annotations

import argparse

from gemm_tuner.cli.flag_types import duration_s


def add_flags(group: argparse._ActionsContainer) -> None:
    one = group.add_mutually_exclusive_group()
    one.add_argument("--wait", metavar="TIME", type=duration_s, help="how long to wait for a GPU that another "
                     "process measures on, such as 10m (default: until it is free)")  # fmt: skip
    one.add_argument("--no_wait", action="store_true", help="end with status 3 when a GPU is in use")


def wait_s(arguments: argparse.Namespace) -> float | None:
    """Seconds to wait; None has no limit."""
    return 0.0 if arguments.no_wait else arguments.wait
