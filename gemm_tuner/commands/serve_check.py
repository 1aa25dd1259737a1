"""``tune_gemm.py serve-check``: which config a consumer really gets from its files, for each M."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from gemm_tuner.commands import Consoles, json_document
from gemm_tuner.errors import EXIT_OK, EXIT_UNVERIFIED
from gemm_tuner.export import SERVED, serve
from gemm_tuner.flag_types import one_of, positive
from gemm_tuner.parser import Parser

DESCRIPTION = """\
Reads config files as their consumer does, and prints for each M which entry serves it and where that is from.
Where the provenance beside the files knows the times, it says what the entry costs against the tuned config of
that M. The files may be this tool's or anybody's: a key that the loader stops at is found as well.
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


def sizes(text: str) -> tuple[int, ...]:
    """An argparse type: sizes, separated by commas."""
    return tuple(positive(word.strip()) for word in text.split(","))


def build_parser() -> Parser:
    parser = Parser("serve-check", DESCRIPTION, EXAMPLES)
    parser.add_argument("folder", metavar="DIR", type=Path, help="what was given to export by -o, site-packages, or a "
                        "folder with the files themselves")  # fmt: skip
    parser.add_argument("--as", metavar="CONSUMER", dest="consumer", type=one_of(SERVED), required=True,
                        help=f"whose look-up: {', '.join(SERVED)}")  # fmt: skip
    parser.add_argument("--m", metavar="M,M", type=sizes, default=(),
                        help="the sizes to ask for (default: the usual grid, and what was tuned)")  # fmt: skip
    json_document.add_flags(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def main(words: list[str], shown: Consoles) -> int:
    arguments = build_parser().parse(words)
    answers, remarks = serve.check(SERVED[arguments.consumer], arguments.folder, arguments.m)
    json_document.put(document(answers, remarks), arguments)
    if not arguments.json:
        for answer in answers:
            shown.out.print(table_of(answer))
            for told in filter(None, (answer.file.remark, answer.fault and f"[red]{escape(answer.fault)}")):
                shown.out.print(told, highlight=False)
        for remark in remarks:
            shown.out.print(escape(remark), highlight=False)
    return EXIT_UNVERIFIED if remarks or any(answer.fault for answer in answers) else EXIT_OK


def table_of(answer: serve.Answer) -> Table:
    """One row an M."""
    table = Table(box=None, pad_edge=False, title=escape(answer.file.label), title_justify="left")
    for name in ("M", "key"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("config", "from"):
        table.add_column(name, overflow="fold")
    for name in ("us", "tuned us", "default us", "slower"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in answer.servings:
        config = " ".join(f"{key}={value}" for key, value in one.config.items())
        times = [f"{us:.2f}" if us is not None else "-" for us in (one.time_us, one.tuned_us, one.default_us)]
        cost = f"{one.cost_pct:+.1f} %" if one.cost_pct is not None else "-"
        table.add_row(f"{one.m}", escape(one.key), escape(config), escape(one.kind or "unknown"), *times, cost)
    return table


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
