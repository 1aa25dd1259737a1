"""``tune_gemm.py export``: writes tuned configurations in the formats of vLLM, SGLang, AITER, Triton and others."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gemm_tuner.cli import kernel_export
from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.flag_types import one_of, output_folder
from gemm_tuner.cli.parser import Parser
from gemm_tuner.cli.shared_flags import OUTPUT, add_wait_flags, wait_s
from gemm_tuner.consumers import CONSUMERS
from gemm_tuner.consumers.sidecar import DEFAULT, FAR, MEASURED_KINDS, STAND_IN, TABLE, TUNED
from gemm_tuner.consumers.vllm_kernels import KERNEL_FILES
from gemm_tuner.core.errors import EXIT_OK, EXIT_UNVERIFIED, UserError
from gemm_tuner.core.labels import NAMED, some
from gemm_tuner.export import devices, job
from gemm_tuner.export.kernels.rows import has_kernels
from gemm_tuner.export.offers import CHECKED_HOW, LeftOut
from gemm_tuner.export.plan import Change, FilePlan
from gemm_tuner.export.trust import Trust
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.store import results, run_place
from gemm_tuner.system.installation import data_folder
from gemm_tuner.system.terminal_table import print_line

if TYPE_CHECKING:
    from gemm_tuner.export.gemm.module import Cost

DESCRIPTION = """\
Writes the configs of a results file as the files that a consumer reads, under the names that it asks for.
What a consumer cannot launch is left out and named: docs/exports.md says what each can. Where it cannot launch a
size's own config, the fastest one of the run's table that it can launch takes its place, after a check on the GPU;
for triton, where that cannot be, what the row has beside its winner.
Files that are there are merged into, key by key.

Kernels of specs go to json (AITER's files, by the spec's key), triton (triton.Config), module (the kernel and
launch(...)) and source (printed: the kernel's triton.autotune with the one configuration). A key of several cases gets
the configuration with the least total of their times. vllm-ssu and vllm-lora are vLLM's files of its kernels for Mamba
states and LoRA, tuned by examples/kernels/vllm_*.yaml.
"""
EXAMPLES = """\
examples:
  files below out/vllm/model_executor/...
    tune_gemm.py export tuned.yaml --to vllm -o out
  would it change what is installed?
    tune_gemm.py export tuned.yaml --to vllm -o "$SITE_PACKAGES" --dry_run
  for a GPU that the consumer names in another way, and for smaller ones
    tune_gemm.py export tuned.yaml --to sglang --device_name "NVIDIA H20"
    tune_gemm.py export tuned.yaml --to sglang --for H20,L40S
  into the package that is installed
    tune_gemm.py export tuned.yaml --to aiter -o "$SITE_PACKAGES"
  everything, in one table
    tune_gemm.py export tuned.yaml --to csv -o out
  out/tuned_gemm.py, with matmul(a, b, bias=None)
    tune_gemm.py export tuned.yaml --to module -o out

exit status: 0 written, or nothing to change; 1 --dry_run found something to change, or a size is not in the
files; 2 the command line or a file is wrong; 3 a file cannot be written, or a GPU is in use.
"""
MODULE, MODULE_FILE = "module", "tuned_gemm.py"
FORMS = (*CONSUMERS, MODULE, kernel_export.SOURCE, *KERNEL_FILES)
NOTHING = "no size could be exported"
PREDICTED = "predicted"
KINDS = {  # of entries, in words
    TUNED: "tuned",
    TABLE: "from the run's table or row",
    PREDICTED: "predicted",
    STAND_IN: "stand-ins",
    FAR: "far stand-ins",
    DEFAULT: "the default",
}
FAR_HINT = "filled from an M far off; tune sizes near by, or export into the consumer's own folder, whose default fills"


def add_flags(parser: Parser) -> None:
    parser.add_argument(
        "results", metavar="RESULTS", type=Path, help="a results file of tune_gemm.py, or a run's folder"
    )
    parser.add_argument("--to", metavar="CONSUMER", type=one_of(FORMS), required=True,
                        help=f"whom the files are for: {', '.join(FORMS)}; module is one Python file with the kernels "
                        "and matmul(a, b); source prints a decorator, for kernels of specs")  # fmt: skip
    parser.add_argument(*OUTPUT, metavar="DIR", dest="output_dir", type=output_folder, default=Path("export"),
                        help="the files go below it, to where the consumer's package has them: give site-packages "
                        "to install them (default: %(default)s)")  # fmt: skip
    parser.add_argument("--device_name", metavar="NAME", default="",
                        help="the GPU as the consumer names it (default: the results' device; for aiter their "
                        "architecture)")  # fmt: skip
    parser.add_argument("--for", metavar="GPU,GPU", dest="devices", default=(),
                        type=lambda text: devices.named(text, data_folder("rules")),
                        help="leave out what does not fit into the shared memory of each of these, such as "
                        "MI300X,H20; an unknown name is answered with the list")  # fmt: skip
    parser.add_argument("--spec", metavar="SPEC.yaml", type=Path, help="of a kernel of yours: its spec, for another "
                        "key or other buckets (default: the one that the run kept)")  # fmt: skip
    parser.add_argument("--dry_run", "--check", dest="check", action="store_true", help="write nothing; say what "
                        "would change, and exit 1 if anything would")  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="replace entries of which nothing is known, "
                        "and by predictions what was measured (default: keep them)")  # fmt: skip
    parser.add_argument("--predicted", action="store_true", help="export rows that were never run, and those that only "
                        "the interpreter checked; the provenance says so")  # fmt: skip
    parser.add_argument("--unverified", action="store_true", help="export rows whose result was not checked; the "
                        "provenance says so")  # fmt: skip
    add_wait_flags(parser)
    parser.add_argument("--verbose", action="store_true", help="name every size that is left out, with its config")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")


def main(arguments: argparse.Namespace, shown: Consoles) -> int:
    arguments.results = run_place.results_file(arguments.results)
    found = results.read(arguments.results)
    if has_kernels(found):
        return kernel_export.export(arguments, found, shown)
    if arguments.spec:
        raise UserError("says nothing about GEMMs", where="--spec", hint="leave --spec out")
    if arguments.to == MODULE:
        return module(arguments, shown)
    if arguments.to not in CONSUMERS:
        accepted = ", ".join((*CONSUMERS, MODULE))
        raise UserError(f"{arguments.to} is for kernels of specs", where="--to", accepted=accepted)
    if arguments.devices and CONSUMERS[arguments.to].kind != GemmProblem.kind:
        raise UserError("is for GEMMs only", where="--for", hint="leave --for out")
    export = job.prepare(
        arguments.results,
        CONSUMERS[arguments.to],
        arguments.output_dir,
        device=arguments.device_name,
        fits=devices.fits(arguments.devices, data_folder("rules")),
        trust=Trust(predicted=arguments.predicted, unverified=arguments.unverified),
        overwrite=arguments.overwrite,
        say=lambda text: print_line(shown.log, text),
        gpu_wait_s=wait_s(arguments),
    )
    if not arguments.check and export.plans:
        export.write()
    for line in left_out_lines(export.left_out, verbose=arguments.verbose):
        print_line(shown.log, line)
    for plan in export.plans:
        far = [change.key for change in plan.changes if change.kind == FAR]
        if far:
            print_line(shown.log, f"{plan.place.name}: {', '.join(far)}: {FAR_HINT}")
    if arguments.json:
        shown.out.print(json.dumps(document(export, arguments)), markup=False, highlight=False, soft_wrap=True)
    else:
        for line in lines(export, checked=arguments.check):
            print_line(shown.out, line)
    status = closed(shown, export.missing, export.num_sizes, differs=arguments.check and export.differs)
    return status if export.plans else EXIT_UNVERIFIED


def closed(shown: Consoles, missing: Sequence[str], num_sizes: int, *, differs: bool) -> int:
    """Prints the last line, which names the sizes that are not in the files, and returns the exit status.

    differs: --check found changes.
    """
    if missing:
        line = f"{len(missing)} of {num_sizes} sizes are NOT in the files: {some(missing)}"
        print_line(shown.log, line)
    return EXIT_UNVERIFIED if missing or differs else EXIT_OK


def left_out_lines(left_out: Iterable[LeftOut], *, verbose: bool) -> list[str]:
    """A line per reason, with some of its sizes; with ``verbose`` all of them, with their configurations."""
    by_reason: dict[str, list[LeftOut]] = {}
    for one in left_out:
        reason = one.reason.replace(one.size, "<size>")
        by_reason.setdefault(reason.replace(one.config, "<config>") if one.config else reason, []).append(one)
    found = []
    for reason, of_it in by_reason.items():
        named = [f"{one.size} {one.config}".strip() if verbose else one.size for one in of_it]
        found.append(f"left out, {reason}: {some(named, len(named) if verbose else NAMED)}")
    return found


def module(arguments: argparse.Namespace, shown: Consoles) -> int:
    """``--to module``: rewrites the file. Raises UserError for flags that have no effect on modules."""
    from gemm_tuner.export.gemm.module import write_module

    for flag, given in (("--device_name", arguments.device_name), ("--for", arguments.devices),
                        ("--wait", arguments.wait), ("--no_wait", arguments.no_wait)):  # fmt: skip
        if given:
            raise UserError("says nothing about a module", where=flag, hint=f"leave {flag} out with --to module")
    path = arguments.output_dir / MODULE_FILE
    trust = Trust(predicted=arguments.predicted, unverified=arguments.unverified)
    made = write_module(arguments.results, path, trust=trust, dry_run=arguments.check, overwrite=arguments.overwrite)
    for line in left_out_lines(made.left_out, verbose=arguments.verbose):
        print_line(shown.log, line)
    for line in cost_lines(made.costs, verbose=arguments.verbose):
        print_line(shown.log, line)
    for problem, text in made.remarks:
        print_line(shown.log, f"{problem.key}: {text}")
    missing = [one.size for one in made.left_out if not one.served]
    if arguments.json:
        document = {
            "consumer": MODULE,
            "written": made.differs and not arguments.check,
            "differs": made.differs,
            "path": str(path),
            "sizes": made.num_sizes,
            "left_out": [{"size": one.size, "reason": one.reason} for one in made.left_out],
            "in_cute": made.num_cute,
            "in_triton_instead": [{"size": one.problem.key, "reason": f"{one.text}: {one.why}"} for one in made.costs],
            "not_checked_on_gpu": [{"size": problem.key, "verified": text} for problem, text in made.remarks],
        }
        shown.out.print(json.dumps(document), markup=False, highlight=False, soft_wrap=True)
    else:
        state = "unchanged" if not made.differs else "would change" if arguments.check else "written"
        in_cute = f", {made.num_cute} of them in CuTe DSL" if made.num_cute else ""
        line = f"{path}: {state}, {made.num_sizes} sizes{in_cute}" if made.num_sizes else NOTHING
        print_line(shown.out, line)
    return closed(shown, missing, made.num_sizes + len(missing), differs=arguments.check and made.differs)


def cost_lines(costs: Sequence[Cost], *, verbose: bool) -> list[str]:
    """A line per reason why sizes run in Triton instead, and by how much slower; with ``verbose`` one more per size."""
    by_reason: dict[str, list[Cost]] = {}
    for one in costs:
        by_reason.setdefault(one.why, []).append(one)
    found = [f"{one.problem.key}: {one.text}" for one in costs] if verbose else []
    for why, of_it in by_reason.items():
        least, most = (f"{pick(one.times for one in of_it):.2f}" for pick in (min, max))
        times = f"{least} to {most}" if least != most else least
        named = some([one.problem.key for one in of_it])
        found.append(f"in Triton, {times} times the time of their winners in CuTe DSL: {named}; {why}")
    return found


def lines(export: job.Export, *, checked: bool) -> list[str]:
    """One line per file, one per key that was not checked on a GPU and, with --check, one per change.

    If no size is missing, the last line has the numbers of sizes and files.
    """
    found, checks = [], {how.value: text for how, text in CHECKED_HOW.items()}
    for plan in export.plans:
        text = "; ".join(changed(plan, checked=checked))
        weak = {key: note for key, note in plan.notes.items() if note.kind in MEASURED_KINDS and note.check}
        if weak:
            text += f"; {len(weak)} not checked on a GPU"
        found.append(f"{export.root / plan.place}: {text}")
        found += [f"  {key} {note.name}: {checks.get(note.check, note.check)}" for key, note in weak.items()]
        shown_kinds = ("add", "replace", "keep") if checked else ("keep",)
        for change in plan.changes:
            if change.what in shown_kinds:
                found.append("  " + " ".join(filter(None, (change.what, change.key, change.kind, change.why))))
    if found and not export.missing:
        files = f"{len(export.plans)} file{'s' if len(export.plans) > 1 else ''}"
        found.append(f"{export.num_sizes} of {export.num_sizes} sizes in {files}")
    return found or [NOTHING]


def changed(plan: FilePlan, *, checked: bool) -> list[str]:
    """The numbers of keys by change, such as ``18 added: 1 tuned, 4 stand-ins, 13 the default``."""
    words = {"add": "added", "replace": "replaced", "keep": "kept", "same": "unchanged"}
    if checked:
        words |= {"add": "to add", "replace": "to replace"}
    parts = []
    for what, word in words.items():
        kinds = Counter(kind_of(change, plan) for change in plan.changes if change.what == what)
        if kinds:
            named = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS.values() if kind in kinds)
            parts.append(f"{kinds.total()} {word}" + (f": {named}" if named else ""))
    return parts


def kind_of(change: Change, plan: FilePlan) -> str:
    """The kind of an entry in words; "" if unknown."""
    note = plan.notes.get(change.key)
    if change.kind in MEASURED_KINDS and note is not None and note.source == PREDICTED:
        return KINDS[PREDICTED]
    return KINDS.get(change.kind, "")


def document(export: job.Export, arguments: argparse.Namespace) -> dict[str, object]:
    files = [
        {"path": str(export.root / p.place), "changes": [asdict(change) for change in p.changes]} for p in export.plans
    ]
    return {
        "consumer": arguments.to,
        "written": not arguments.check and bool(export.plans),
        "differs": export.differs,
        "files": files,
        "left_out": [asdict(one) for one in export.left_out],
    }
