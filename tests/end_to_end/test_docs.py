"""What documents and help say can be done: every command in them is run, links lead somewhere, flags exist.

Of those that tune, ``make test`` runs one in four with --dry_run and parses the others, as it does with all but one of
those that share flags which take long; ``make test-all`` runs all.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import moe_kernel_source
import pytest

from gemm_tuner.cli import commands, options
from gemm_tuner.cli import main as cli
from gemm_tuner.cli.commands import SUBCOMMANDS
from gemm_tuner.cli.parser import Parser
from gemm_tuner.core.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_UNVERIFIED
from gemm_tuner.kernels import launch_notes
from gemm_tuner.kernels.launch_notes import LaunchNote
from gemm_tuner.measure import device
from gemm_tuner.measure.device import Machine
from gemm_tuner.moe.servers import SERVERS

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / "benchmarks" / name for name in ("README.md", "kernels.md", "kernels_of_users.md", "tuning_history.md")),
)  # fmt: skip
DATA = ROOT / "tests" / "data"
RECORDING = DATA / "h200_nsys_recording"
EXPORTABLE = ROOT / "tests" / "golden" / "export"
MOE = ROOT / "tests" / "golden" / "export_moe" / "h200.yaml"
NO_GPU = Machine((), {"torch": "2.11.0", "triton": "3.6.0", "python": "3.11.0"}, "")

# How a command is tried. RUN: as it stands. DRY_RUN: tuning takes minutes, so --dry_run is added: command line, sizes,
# space and rules are read and applied. PARSED: needs a GPU or minutes, so all of its flags and files are read and
# checked against each other, and nothing is started.
RUN, DRY_RUN, PARSED = "run", "dry run", "parsed"
WAYS: tuple[tuple[str, Callable[[list[str]], bool]], ...] = (
    (PARSED, lambda words: bool({"--cluster", "--dense"} & set(words))),
    (PARSED, lambda words: words[0] in ("kernel", "moe") and "--benchmark" in words),
    (DRY_RUN, lambda words: words[0] in ("kernel", "moe")),
    (RUN, lambda words: words[0] in SUBCOMMANDS),
    (RUN, lambda words: bool({"--dry_run", "--explain", "--help", "--version"} & set(words))),
    (PARSED, lambda words: bool({"--benchmark", "--compare_wo_tuning", "--ngpus", "--gpu_ids"} & set(words))),
    (DRY_RUN, lambda words: True),
)
# Exit statuses that a command of a document may have here: export --check finds changes, check finds no GPU, and a spec
# of a language that is not installed has nothing that was tuned.
STATUSES = {
    "export": {EXIT_OK, EXIT_UNVERIFIED},
    "check": {EXIT_OK, EXIT_ENVIRONMENT},
    "spec": {EXIT_OK, EXIT_UNVERIFIED},
}
# Flags in the prose that are not ours.
OTHERS_FLAGS = {
    "--stats", "--timeunit", "--plugin", "--plugin-version", "--clock-control", "--update-golden", "--version",
    "--size", "--rate", "--json", "--persistence-mode", "--lock-gpu-clocks", "--help",
    "--disable-shared-experts-fusion",
}  # fmt: skip


def blocks(page: Path) -> list[str]:
    """The lines of fenced and indented blocks, and lines that are one code span, continuations joined."""
    text = re.sub(r" *\\\n\s*", " ", page.read_text(encoding="utf-8"))
    fenced, found = False, []
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    ") or re.fullmatch(r"`[^`]+`", line):
            found.append(line.strip().strip("`"))
    return found


def parsers() -> list[Parser]:
    return [options.build_parser(), *map(commands.build_parser, commands.SUBCOMMANDS)]


def examples(parser: Parser) -> list[str]:
    """The indented lines of a parser's help, continuations joined."""
    text = re.sub(r" *\\\n\s*", " ", f"{parser.description}\n{parser.examples}\n{parser.epilog}")
    return [line.strip() for line in text.splitlines() if line.startswith("  ")]


def words_of(line: str) -> list[str] | None:
    """The words behind tune_gemm.py; None for a line that is another command.

    What stands behind two spaces or '#' explains; what stands behind '>' is the shell's.
    """
    found = re.match(r"(?:python )?tune_gemm\.py (?! )(.*)", line)
    if found is None or found[1] == "SUBCOMMAND ..." or "[flags]" in found[1]:
        return None
    words = shlex.split(re.split(r"\s{2,}", found[1])[0], comments=True)
    return words[: words.index(">")] if ">" in words else words


COMMANDS: dict[str, list[str]] = {}
for source, lines in (
    *((page.name, blocks(page)) for page in PAGES),
    *((f"{parser.prog} --help", examples(parser)) for parser in parsers()),
):
    for line in lines:
        words = words_of(line)
        if words is not None:
            COMMANDS.setdefault(shlex.join(words), []).append(source)


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder: a recording, played back."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        flags = ["--space", str(RECORDING / "space.yaml"), "--rules", str(RECORDING / "rules"), "--search", "full"]
        recorded = ["--profiler", "replay", "--replay", str(RECORDING / "raw")]
        assert cli.main(["--gemm_size_file", str(RECORDING / "sizes.yaml"), *flags, *recorded]) == EXIT_OK
    (run,) = (folder / "results").iterdir()
    return run


def prepare(words: list[str], run: Path) -> None:
    """Puts into the current folder the files that a command names, whatever it calls them."""
    tuned = run / "tuned.yaml"
    # Servers take block-scaled fp8 alone.
    sizes = EXPORTABLE / "h20.yaml" if "--serve" in words else RECORDING / "sizes.yaml"
    given_configs = bool({"--benchmark", "--compare_wo_tuning"} & set(words))
    of_flag = {
        "--gemm_size_file": tuned if given_configs else sizes,
        "--update": tuned,
        "--space": ROOT / "rules" / "space_sm_90.yaml",
        "--rules": ROOT / "rules",
        "--templates": ROOT / "templates",
        "--replay": RECORDING / "raw",
    }
    for flag, file in itertools.pairwise(words):
        if flag in of_flag:
            copy(of_flag[flag], Path(file))
        if flag == "--spec":
            copy(ROOT / "examples" / "kernels", Path(file).parent)
        if flag == "--kernel_from" and words[0] == "moe":
            server, _, place = file.rpartition("=")
            path = Path(place if place.endswith(".py") else SERVERS[place].places[0])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(moe_kernel_source.sglang() if server == "sglang" else moe_kernel_source.VLLM)
        if flag == "--from" and words[0] == "moe":
            copy(DATA / "moe" / "deepseek_v3.json", Path(file))
        elif flag == "--from":
            named = {"server.log": "vllm.log", "config.json": "llama_config.json", "FILE": "tunableop_untuned0.csv"}
            copy(DATA / "size_sources" / named.get(file, file), Path(file))
    if words[0] == "spec":
        copy(ROOT / "examples" / "kernels", Path(words[1]).parent)
    for word in words[1:]:
        if words[0] in SUBCOMMANDS and re.fullmatch(r"results/[^/]+(/tuned\.yaml)?", word):
            copy(run, Path(*Path(word).parts[:2]))
        elif words[0] in ("compare", "compact", "report") and word.endswith("tuned.yaml"):
            copy(run, Path(word).parent / "")
        elif words[0] == "compare" and word.endswith(".yaml"):
            copy(tuned, Path(word))
    if words[0] == "collect":
        note = LaunchNote("softmax", "softmax.py", ["n"], {"n": 8}, {}, ["grid_0"], [8], [{"BLOCK": 8}], [])
        launch_notes.append(Path(words[1]), note)
    if words[0] == "export":
        consumer = words[words.index("--to") + 1]
        ours = {"aiter": EXPORTABLE / "mi300x.yaml", "vllm": EXPORTABLE / "h20.yaml", "sglang": EXPORTABLE / "h20.yaml"}
        copy(MOE if consumer.endswith("-moe") else ours.get(consumer, tuned), Path(words[1]))
    if words[0] == "serve-check":
        consumer = words[words.index("--as") + 1]
        ours = MOE if consumer.endswith("-moe") else EXPORTABLE / "h20.yaml"
        written = cli.main(["export", str(ours), "--to", consumer, "-o", words[1]])
        assert written in STATUSES["export"]


def copy(what: Path, to: Path) -> None:
    if not to.is_absolute():
        to.parent.mkdir(parents=True, exist_ok=True)
        if what.is_dir():
            shutil.copytree(what, to, dirs_exist_ok=True)
        else:
            shutil.copy(what, to)


# Flags whose commands take seconds: one of each set of them is run, as is each of the others.
COSTLY = {"--kernel_from", "--tune", "--explain", "--dry_run"}
# Flags whose commands take the longest, and which tests/hosts and tests/pipeline/test_preview.py try.
TRIED_ELSEWHERE = {"--host", "--serve"}


def subject(words: list[str]) -> tuple[str, ...]:
    """Equal for commands that do the same for costly flags: the subcommand, and these flags."""
    return (words[0] if words[0] in SUBCOMMANDS else "", *sorted(COSTLY & set(words)))


def tries() -> list[Any]:
    """(command, way), the ways of commands that only ``make test-all`` runs last."""
    found, rest, number, met = [], [], 0, set()
    for command, pages in COMMANDS.items():
        words = shlex.split(command)
        way, name = next(way for way, is_it in WAYS if is_it(words)), f"{pages[0]}: {command}"
        number += way == DRY_RUN
        is_one_of_many = way == DRY_RUN and number % 4 and words[0] not in ("kernel", "moe")
        is_known = (bool(COSTLY & set(words)) and subject(words) in met) or bool(TRIED_ELSEWHERE & set(words))
        if way != PARSED and (is_one_of_many or is_known):
            rest.append(pytest.param(command, way, id=f"{name}, run", marks=pytest.mark.grid))
            way = PARSED
        else:
            met.add(subject(words))
        found.append(pytest.param(command, way, id=name))
    return [*found, *rest]


@pytest.mark.parametrize(("command", "way"), tries())
def test_a_command_of_the_documents_does_what_it_says(
    command: str,
    way: str,
    a_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(device, "look", lambda: NO_GPU)
    words = [word.replace("$SITE_PACKAGES", "site-packages") for word in shlex.split(command)]
    prepare(words, a_run)
    if way == PARSED and words[0] in SUBCOMMANDS:
        assert commands.build_parser(words[0]).parse(words[1:])
        return
    if way == PARSED:
        arguments = options.build_parser().parse(words)
        assert cli.run_options_from(arguments, cli.read_sizes(arguments, cli.consoles().log)).entries
        return
    status = cli.main([*words, "--dry_run"] if way == DRY_RUN else words)
    allowed = STATUSES.get(words[0], {EXIT_OK})
    assert status in allowed, f"{COMMANDS[command]}: {capfd.readouterr().err}"


def test_commands_are_found() -> None:
    assert {"check", "check --json"} <= set(COMMANDS)
    assert {words[0] for words in map(shlex.split, COMMANDS)} >= set(SUBCOMMANDS)
    assert sum("README.md" in pages for pages in COMMANDS.values()) >= 5


def test_scripts_that_the_documents_start_are_there() -> None:
    for page in PAGES:
        for line in blocks(page):
            found = re.match(r"(?:python )?((?:benchmarks|docs|tests)/\S+\.(?:py|sh))\b", line)
            assert found is None or (ROOT / found[1]).is_file(), f"{page.name}: {line}"


def all_flags() -> set[str]:
    return {flag for parser in parsers() for action in parser._actions for flag in action.option_strings}


def test_flags_in_the_prose_exist() -> None:
    known, unknown = all_flags() | OTHERS_FLAGS, []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        named = {found[1] for found in re.finditer(r"`(--[a-z][a-z0-9_-]*)[ `=]", text)}
        unknown += [f"{page.name}: {flag}" for flag in sorted(named - known)]
    assert unknown == []


def anchors(page: Path) -> set[str]:
    """The names that a browser of Markdown gives to headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http://", "https://")):
                name, _, anchor = target.partition("#")
                other = (page.parent / name).resolve() if name else page
                assert other.exists(), f"{page.name}: {target} is not there"
                assert not anchor or anchor in anchors(other), f"{page.name}: {target} has no such heading"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {name for name in pages if f"({name})" not in index} == set()
    assert "docs/README.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_of_flags_is_what_the_parsers_have() -> None:
    spec = importlib.util.spec_from_file_location("make_cli", ROOT / "docs" / "make_cli.py")
    assert spec is not None and spec.loader is not None
    make_cli = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_cli)
    written = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert written == make_cli.page(), "python docs/make_cli.py writes it anew"
    named = set(re.findall(r"(?<![\w-])--?[A-Za-z][a-z0-9_-]*", written))
    assert all_flags() - named == set()
