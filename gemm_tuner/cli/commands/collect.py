"""``tune_gemm.py collect``: makes specs for ``tune_gemm.py kernel`` from launches that ``gt.install()`` recorded."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.flag_types import output_folder
from gemm_tuner.cli.parser import Parser
from gemm_tuner.cli.shared_flags import OUTPUT
from gemm_tuner.core.errors import EXIT_OK, UserError
from gemm_tuner.system.documents import dump_yaml, write_text_atomically
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.terminal_table import print_line

DESCRIPTION = """\
Turns the notes that programs leave under gt.install() into a spec for each kernel: a case for each key that had no
tuned configuration, with the kernel's own configurations. The spec is yours to widen; a reference makes its results
verified: true.
"""
EXAMPLES = """\
examples:
  in the program, before the kernels are imported
    import gemm_tuner as gt; gt.install(notes="notes.jsonl")
  tune_gemm.py collect notes.jsonl
  tune_gemm.py kernel --spec softmax.yaml -o tuned.yaml
  and from then on
    gt.install(results="tuned.yaml", notes="notes.jsonl")

exit status: 0 there are specs; 2 the command line or a file is wrong, or no note can be a case; 3 a spec cannot be
written.
"""


def add_flags(parser: Parser) -> None:
    parser.add_argument("notes", metavar="FILE", nargs="+", type=Path, help="files of notes, of any number of programs")
    parser.add_argument(*OUTPUT, metavar="FOLDER", type=output_folder, default=Path(),
                        help="where KERNEL.yaml of each kernel is written (default: here)")  # fmt: skip


def main(arguments: argparse.Namespace, shown: Consoles) -> int:
    from gemm_tuner.kernels import launch_notes
    from gemm_tuner.kernels.collected import collected

    notes = itertools.chain.from_iterable(map(launch_notes.read, arguments.notes))
    found = collected(notes, arguments.output)
    for one in found:
        for sentence in one.left_out:
            print_line(shown.log, sentence)
    written = [one for one in found if one.spec]
    if not written:
        where = ", ".join(map(printable, arguments.notes))
        raise UserError("no note can be a case of a spec", where=where, hint="notes are made by gt.install()")
    names: set[str] = set()
    for one in written:
        number = next(n for n in itertools.count(1) if (one.name if n == 1 else f"{one.name}_{n}") not in names)
        name = one.name if number == 1 else f"{one.name}_{number}"
        names.add(name)
        path = arguments.output / f"{name}.yaml"
        write_text_atomically(path, dump_yaml(one.spec))
        of_cases, of_notes = (
            f"{one.cases} case{'s' * (one.cases > 1)}",
            f"{one.launches} note{'s' * (one.launches > 1)}",
        )
        line = f"{printable(path)}: {of_cases} of {of_notes}"
        print_line(shown.out, f"{line}; tune: tune_gemm.py kernel --spec {printable(path)}")
    return EXIT_OK
