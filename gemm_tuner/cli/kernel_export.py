"""``tune_gemm.py export`` for users' kernels: JSON by key, triton.Config, a decorator, a module, files of servers."""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path

from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.shared_flags import wait_s
from gemm_tuner.consumers.vllm_kernels import KERNEL_FILES
from gemm_tuner.core.errors import EXIT_OK, EXIT_UNVERIFIED, UserError
from gemm_tuner.export.kernels import choose, files, from_python, module, rows, server_files, source
from gemm_tuner.export.kernels.checks import checks
from gemm_tuner.export.kernels.choose import TunedKernel
from gemm_tuner.export.offers import LeftOut, remark
from gemm_tuner.export.trust import Trust
from gemm_tuner.kernels.keys import text_of
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.store.results import Results
from gemm_tuner.system.documents import write_text_atomically
from gemm_tuner.system.installation import data_folder
from gemm_tuner.system.terminal_table import print_line

SOURCE = "source"
NOTHING = "nothing could be exported"
FORMS = ("json", "triton", "module", SOURCE, *KERNEL_FILES)


def export(arguments: argparse.Namespace, found: Results, shown: Consoles) -> int:
    """Runs the command. Raises UserError for an unsupported format, and for flags that do not apply to kernels."""
    if arguments.to not in FORMS:
        what = f"{arguments.to} takes GEMMs, and {arguments.results} holds kernels of specs"
        raise UserError(what, where="--to", accepted=", ".join(FORMS))
    for flag, given in (("--for", arguments.devices), ("--overwrite", arguments.overwrite and arguments.to == SOURCE)):
        if given:
            of = "" if flag == "--for" else f", exported to {arguments.to}"
            raise UserError(f"says nothing about kernels of specs{of}", where=flag, hint=f"leave {flag} out")
    trust = Trust(predicted=arguments.predicted, unverified=arguments.unverified)
    arch = str(found.header.get("arch", ""))
    if arguments.to == SOURCE and (folder := from_python.folder_of(found, arguments.results)):
        texts, left_out = from_python.sources(found, folder, trust)
        return _print_sources(texts, left_out, shown, as_json=arguments.json)
    cases, left_out = rows.select(found, arguments.results, trust, arguments.spec)
    with tempfile.TemporaryDirectory(prefix="gemm_tuner_check_") as work:
        say = shown.log
        check = checks(arch, trust, Path(work), lambda text: print_line(say, text), wait_s(arguments))
        kernels, unserved = choose.chosen(cases, check)
    left_out += unserved
    if arguments.to in KERNEL_FILES:
        return _export_for_server(arguments, found, kernels, left_out, shown)
    for kernel in kernels:
        _require_triton(kernel, arguments.to)
    if arguments.to == SOURCE:
        texts = {kernel.spec.name: source.source_text(kernel, found.header) for kernel in kernels}
        return _print_sources(texts, left_out, shown, as_json=arguments.json)
    written, whole, kernels = [], kernels, ()
    for kernel in whole:
        path, text, yielding = _file(kernel, arguments, found, arch)
        written.append((path, text))
        left_out += yielding
        gone = {one.size for one in yielding}
        entries = tuple(one for one in kernel.entries if one.cases[0].problem.key not in gone)
        kernels = (*kernels, replace(kernel, entries=entries))
    changed = [(path, text) for path, text in written if not path.is_file() or path.read_text() != text]
    if not arguments.check:
        for path, text in changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomically(path, text)
    _show(arguments, shown, kernels, [path for path, _ in written], {path for path, _ in changed}, left_out)
    return EXIT_UNVERIFIED if left_out or (arguments.check and changed) else EXIT_OK


def _export_for_server(
    arguments: argparse.Namespace,
    found: Results,
    kernels: tuple[TunedKernel, ...],
    left_out: list[LeftOut],
    shown: Consoles,
) -> int:
    """Writes the files of a server for kernels of its own."""
    device = arguments.device_name or str(found.header.get("device", ""))
    form, triton = KERNEL_FILES[arguments.to], str(found.header.get("triton", ""))
    made, twice = server_files.files_of(
        form, kernels, arguments.output_dir, device, triton, overwrite=arguments.overwrite
    )
    left_out += twice
    changed = {one.path for one in made if not one.path.is_file() or one.path.read_text() != one.text}
    for one in made:
        if one.path in changed and not arguments.check:
            one.path.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomically(one.path, one.text)
    _name_left_out(left_out, shown)
    if arguments.json:
        entries: list[dict[str, object]] = [
            {"path": str(one.path), "key": key, "config": entry.params, "note": entry.note,
             "verified": entry.verified.value, "cases": [case.problem.key for case in entry.cases]}
            for one in made for key, entry in one.entries.items()
        ]  # fmt: skip
        _print_document(arguments, entries, left_out, shown, differs=bool(changed))
        return EXIT_UNVERIFIED if left_out or (arguments.check and changed) else EXIT_OK
    for one in made:
        print_line(shown.out, f"{one.path}: {_state(one.path in changed, arguments)}, {len(one.entries)} keys")
        for key, entry in one.entries.items():
            if said := "; ".join(filter(None, (entry.note, remark(entry.verified)))):
                print_line(shown.out, f"  {key} {entry.config.name}: {said}")
        if one.remark:
            print_line(shown.log, f"{one.path.name}: {one.remark}")
    if not made:
        print_line(shown.out, NOTHING)
    return EXIT_UNVERIFIED if left_out or (arguments.check and changed) else EXIT_OK


def _state(is_changed: bool, arguments: argparse.Namespace) -> str:
    return "unchanged" if not is_changed else "would change" if arguments.check else "written"


def _print_document(
    arguments: argparse.Namespace, entries: list[dict[str, object]], left_out: list[LeftOut], shown: Consoles, *,
    differs: bool,
) -> None:  # fmt: skip
    document = {
        "consumer": arguments.to,
        "written": differs and not arguments.check,
        "differs": differs,
        "entries": entries,
        "left_out": [{"size": one.size, "reason": one.reason} for one in left_out],
    }
    shown.out.print(json.dumps(document), markup=False, highlight=False, soft_wrap=True)


def _require_triton(kernel: TunedKernel, form: str) -> None:
    """Raises UserError for a format that requires a Triton kernel whose spec has a grid."""
    name, problem = kernel.spec.name, kernel.entries[0].cases[0].problem
    if form == "module" and problem.kind != KernelProblem.kind:
        what = f"{name} is launched by host code of yours, and a module has none"
        raise UserError(what, where="--to", accepted="json" if problem.kind == "cute" else "json, triton, source")
    if form in ("triton", SOURCE) and kernel.spec.language != "triton":
        raise UserError(f"{name} is written in {kernel.spec.language}", where="--to", accepted="json")


def _print_sources(texts: dict[str, str], left_out: list[LeftOut], shown: Consoles, *, as_json: bool) -> int:
    """Prints the decorator of each kernel, or what stands in its place; nothing is written."""
    _name_left_out(left_out, shown)
    if as_json:
        unserved = [{"size": one.size, "reason": one.reason} for one in left_out]
        text = json.dumps({"consumer": SOURCE, "written": False, "sources": texts, "left_out": unserved})
    else:
        text = "\n".join(texts.values()).rstrip() or NOTHING
    shown.out.print(text, markup=False, highlight=False, soft_wrap=True)
    return EXIT_UNVERIFIED if left_out else EXIT_OK


def _file(
    kernel: TunedKernel, arguments: argparse.Namespace, found: Results, arch: str
) -> tuple[Path, str, list[LeftOut]]:
    """(path, content, cases whose entries yield to what is there)."""
    folder: Path = arguments.output_dir
    if arguments.to == "json":
        path = folder / files.json_name(kernel, arguments.device_name or arch)
        return path, *files.json_text(kernel, path, overwrite=arguments.overwrite)
    if arguments.to == "triton":
        path = folder / files.triton_name(kernel)
        return path, *files.triton_text(kernel, path, overwrite=arguments.overwrite)
    path = folder / module.module_name(kernel)
    yielding = [] if arguments.overwrite else module.yielding(kernel, path)
    text = path.read_text() if yielding else module.module_text(kernel, found.header, data_folder("templates"))
    return path, text, yielding


def _show(
    arguments: argparse.Namespace,
    shown: Consoles,
    kernels: tuple[TunedKernel, ...],
    paths: list[Path],
    changed: set[Path],
    left_out: list[LeftOut],
) -> None:
    """Prints a line per file, and below it one per key that was chosen among several cases or was not checked on a GPU
    against a reference."""
    _name_left_out(left_out, shown)
    if arguments.json:
        entries: list[dict[str, object]] = [
            {"path": str(path), "key": text_of(entry.key), "config": entry.params, "note": entry.note,
             "verified": entry.verified.value, "cases": [case.problem.key for case in entry.cases]}
            for kernel, path in zip(kernels, paths, strict=True) for entry in kernel.entries
        ]  # fmt: skip
        _print_document(arguments, entries, left_out, shown, differs=bool(changed))
        return
    for kernel, path in zip(kernels, paths, strict=True):
        print_line(shown.out, f"{path}: {_state(path in changed, arguments)}, {len(kernel.entries)} keys")
        for entry in kernel.entries:
            said = "; ".join(filter(None, (entry.note, remark(entry.verified))))
            if said:
                print_line(shown.out, f"  {text_of(entry.key)} {entry.config.name}: {said}")
    if not kernels:
        print_line(shown.out, NOTHING)


def _name_left_out(left_out: list[LeftOut], shown: Consoles) -> None:
    for one in left_out:
        print_line(shown.log, f"left out, {one.size}: {one.reason}")
