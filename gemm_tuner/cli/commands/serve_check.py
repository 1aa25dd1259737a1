"""``tune_gemm.py serve-check``: shows which configuration a consumer gets from its files, for each M."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.flag_types import number_list, one_of
from gemm_tuner.cli.parser import Parser
from gemm_tuner.cli.shared_flags import add_document_flags, put_document
from gemm_tuner.consumers import SERVED
from gemm_tuner.consumers.sidecar import MEASURED_KINDS
from gemm_tuner.core.errors import EXIT_OK, EXIT_UNVERIFIED
from gemm_tuner.export import serve
from gemm_tuner.gemm.short_forms import short_entry
from gemm_tuner.pipeline.show import say_left_out
from gemm_tuner.system.terminal_table import Column, print_line, print_table

DESCRIPTION = """\
Reads config files as their consumer does, and prints for each M which entry serves it and where that is from.
Where the provenance beside the files knows the times, it prints that of the entry (us), that of the best config of
any kernel family, which the consumer may not be able to launch (best us), and the consumer's default over the
entry's. The files may be this tool's or anybody's: a key that the loader stops at is found as well.
"""
EXAMPLES = """\
examples:
  what export -o out wrote, over the usual sizes
    tune_gemm.py serve-check out --as vllm
  for these sizes
    tune_gemm.py serve-check out --as vllm --m 1,20,3000
  what is installed
    tune_gemm.py serve-check "$SITE_PACKAGES" --as sglang

exit status: 0 every file can be read and every M gets a config; 1 the consumer would stop at a file, or never
opens it; 2 the command line or the folder is wrong.
"""


def add_flags(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="what was given to export by -o, site-packages, or a "
                        "folder with the files themselves")  # fmt: skip
    parser.add_argument("--as", metavar="CONSUMER", dest="consumer", type=one_of(SERVED), required=True,
                        help=f"whose look-up: {', '.join(SERVED)}")  # fmt: skip
    parser.add_argument("--m", metavar="M,M", type=number_list, default=(),
                        help="the sizes to ask for (default: the usual grid, and what was tuned)")  # fmt: skip
    add_document_flags(parser)


def main(arguments: argparse.Namespace, shown: Consoles) -> int:
    answers, remarks = serve.check(SERVED[arguments.consumer], arguments.folder, arguments.m)
    put_document(document(answers, remarks), arguments)
    if not arguments.json:
        for answer in answers:
            print_answer(shown.out, answer)
            for note, style in ((answer.file.remark, ""), (answer.fault, "red")):
                if note:
                    print_line(shown.out, note, style)
        for remark in remarks:
            print_line(shown.out, remark)
    return EXIT_UNVERIFIED if remarks or any(answer.fault for answer in answers) else EXIT_OK


def print_answer(console: Console, answer: serve.Answer) -> None:
    """Prints one row per M: its configuration and time, the time of the best of any family, and the default's ratio."""
    columns = (
        Column("M", is_number=True),
        Column("key", is_number=True),
        Column("config", wraps=True),
        Column("from"),
        Column("us", is_number=True),
        Column("best us", is_number=True, rank=2),
        Column("default / us", is_number=True, rank=1),
    )
    rows = []
    for one in answer.servings:
        ratio = f"{one.default_us / one.time_us:.3f}" if one.default_us and one.time_us else ""
        config = short_entry(one.config) if console.is_terminal else words_of(one.config)
        rows.append((str(one.m), one.key, config, origin(one), us_text(one.time_us), us_text(one.tuned_us), ratio))
    left_out = print_table(console, answer.file.label, columns, rows)
    say_left_out(console, left_out, "a wider terminal")


def words_of(config: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in config.items())


def us_text(time_us: float | None) -> str:
    return "" if time_us is None else f"{time_us:.2f}"


def origin(one: serve.Serving) -> str:
    """The origin of an entry in words; an entry that was never measured is called predicted, not tuned."""
    if not one.is_predicted:
        return one.kind or "unknown"
    return "predicted" if one.kind in MEASURED_KINDS else f"{one.kind}, predicted"


def document(answers: list[serve.Answer], remarks: list[str]) -> dict[str, object]:
    files = [
        {
            "path": str(answer.file.path),
            "label": answer.file.label,
            "remark": answer.file.remark,
            "fault": answer.fault,
            "servings": [{**asdict(one), "cost_pct": one.cost_pct} for one in answer.servings],
        }
        for answer in answers
    ]
    return {"files": files, "not_read": remarks}
