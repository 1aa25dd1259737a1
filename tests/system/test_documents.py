"""Reading YAML within bounds, and writing files whole or not at all."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from any_text import any_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.system import documents
from gemm_tuner.system.documents import MarkedDict, dump_yaml, load_yaml, write_text_atomically

ROOT = Path(__file__).resolve().parents[2]
FUZZ = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "50")) // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "doc.yaml"


def load(path: Path, text: str | bytes) -> object:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_yaml(path)


SAME_AS_SAFE_LOAD = [
    "",
    "# only a comment\n",
    "---\n...\n",
    "- {M: 1, N: 2}\n- [a, 'b', \"c\"]\n",
    "a: |\n  two\n  lines\nb: >\n  folded\n  text\n",
    "[1, -2, 0x1F, 0o17, 017, 0b11, 1_000, 1:30, 4611686018427387904]",
    "[1.5, -2.0e+3, .5, 1e3, .inf, -.INF, 6.8523015e+5]",
    "[yes, No, on, OFF, true, N, T, n, y, ~, null, '', 'null']",
    "d: 2026-01-31\nt: 2026-01-31T12:00:00Z\n",
    "!!str 5: !!int '7'\n? x\n: !!float 1\nz: ! 5\n",
    "outer:\n  inner:\n    - 1\n    - k: v\n1: int key\nnull: null key\n",
    "%YAML 1.1\n---\n{}\n",
    "\ufeff- 1\n",
]


@pytest.mark.parametrize("text", SAME_AS_SAFE_LOAD)
def test_reads_what_safe_load_reads(path: Path, text: str) -> None:
    assert load(path, text) == yaml.safe_load(text)


def test_the_pure_python_parser_gives_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_LOADER", yaml.SafeLoader)
    for text in SAME_AS_SAFE_LOAD:
        assert load(path, text) == yaml.safe_load(text)


def test_types_survive_the_cache_of_plain_scalars(path: Path) -> None:
    value = load(path, "[1, '1', 1, true, 'true', 1.0, 2026-01-31, '2026-01-31', !!str 1]")
    assert [type(item) for item in value] == [  # type: ignore[attr-defined]
        int, str, int, bool, str, float, datetime.date, str, str,
    ]  # fmt: skip


def test_mappings_know_their_line(path: Path) -> None:
    value = load(path, "# c\n- {a: 1}\n\n- b: 2\n  c: {d: 1}\n")
    assert isinstance(value, list)
    assert all(isinstance(item, MarkedDict) for item in value)
    assert [item.line for item in value] == [2, 4]
    assert value[1]["c"].line == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", ["doc.yaml, line 3", "'a'", "given twice"]),
        ("- {z: 1}\n- {x: 1, y: 2,\n   x: 3}\n", ["entry 2 (line 3)", "'x'", "given twice"]),
        ("a: &x [1]\nb: 2\n", ["line 1", "anchors and aliases", "&x", "write the values out"]),
        ("a: 1\nb: *x\n", ["line 2", "anchors and aliases"]),
        ("a: {<<: {b: 1}}\n", ["line 1", "'<<'", "not accepted"]),
        ("- !!python/object/apply:os.system ['true']\n", ["line 1", "python", "not accepted"]),
        ("- !!python/name:os.system\n", ["python", "not accepted"]),
        ("- !!binary aGk=\n", ["!!binary", "not accepted"]),
        ("!!set {a, b}\n", ["!!set", "not accepted"]),
        ("? [a, b]\n: 1\n", ["line 1", "a list is used as a key"]),
        ("? {a: b}\n: 1\n", ["a mapping is used as a key"]),
        ("- 1\n---\n- 2\n", ["line 2", "second document"]),
        ("a: [1, 2\nb: 3\n", ["line 2", "not valid YAML", "the one before it"]),
        ("a: b: c\n", ["line 1", "not valid YAML"]),
        ("a:\n\t- 1\n", ["line 2", "not valid YAML"]),
        ("a: 1\nb: \x01\n", ["line 2", "not valid YAML", "character"]),
        ("- 1\n- 2024-13-45\n", ["line 2", "does not read as timestamp", "quote"]),
        ("- !!int abc\n", ["line 1", "does not read as int"]),
        ("- 0x_\n", ["does not read as int"]),
        ("- " + "9" * 5000 + "\n", ["a number of 5000 characters"]),
        ("- 1\n- " + "[" * 40 + "]" * 40 + "\n", ["line 2", "nested too deeply"]),
        ("[" * 40 + "]" * 40 + "\n", ["line 1", "nested too deeply", "32"]),
        ("".join("  " * i + "a:\n" for i in range(40)), ["line 33", "nested too deeply"]),
        (b"a: 1\nb: \xff\xfe\n", ["line 2", "not UTF-8"]),
        ("a: 1\n".encode("utf-16"), ["line 1", "not UTF-8"]),
    ],
)
@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
def test_refusals_name_file_line_and_fault(
    path: Path, monkeypatch: pytest.MonkeyPatch, loader: str, text: str | bytes, words: list[str]
) -> None:
    monkeypatch.setattr(documents, "_LOADER", getattr(yaml, loader, yaml.SafeLoader))
    with pytest.raises(UserError) as caught:
        load(path, text)
    message = caught.value.one_line()
    assert str(path) in message
    assert "\n" not in message and message.isprintable()
    for word in words:
        assert word in message


def test_depth_32_is_accepted(path: Path) -> None:
    assert load(path, "[" * 32 + "]" * 32) == yaml.safe_load("[" * 32 + "]" * 32)


def test_missing_file_folder_and_odd_names(tmp_path: Path) -> None:
    for name, words in (
        ("none.yaml", "No such file"),
        ("", "directory"),
        ("a\nb", "No such"),
        ("a\0b", "null"),
    ):
        with pytest.raises(UserError, match=words) as caught:
            load_yaml(f"{tmp_path}/{name}", what="rules file")
        assert "cannot read the rules file" in caught.value.one_line()
        assert "check the path" in caught.value.one_line()
        assert caught.value.one_line().isprintable()


def test_too_large_a_file_is_not_read(path: Path) -> None:
    """No machine has the memory for it."""
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(UserError, match="too large; accepted: up to 16 MiB"):
        load_yaml(path)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no /dev/zero")
def test_an_endless_device_is_not_read() -> None:
    with pytest.raises(UserError, match="or a device"):
        load_yaml("/dev/zero")


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(UserError, match="it is a pipe"):
        load_yaml(path)


def test_too_many_values(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_NODES", 10)
    assert load(path, "[1,2,3,4,5,6,7,8,9]") == list(range(1, 10))
    with pytest.raises(UserError, match="too many values; accepted: up to 10 values"):
        load(path, "[1,2,3,4,5,6,7,8,9,10]")


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "[" * 5_000_000,
        "{a: " * 3_000_000,
        "? " * 5_000_000,
        "- " * 5_000_000,
        "1" * 15_000_000,
        '"' * 9_999_999,
    ],
    ids=["bomb", "brackets", "braces", "questions", "dashes", "digits", "quotes"],
)
def test_hostile_files_end_at_once(path: Path, text: str) -> None:
    """Read as others are they would take hours, or all memory: longer than a test may."""
    path.write_text(text)
    with pytest.raises(UserError):
        load_yaml(path)


@FUZZ
@given(any_text(60) | st.binary(max_size=60))
def test_any_bytes_load_or_raise_user_error(tmp_path: Path, text: str | bytes) -> None:
    try:
        load(tmp_path / "fuzz.yaml", text)
    except UserError as error:
        assert "fuzz.yaml" in error.one_line()


@FUZZ
@given(st.text(alphabet="[]{}:,-?&*!|>'\"%@`#~ \n\tab01.<=", max_size=40))
def test_yaml_like_text_loads_as_safe_load_or_raises_user_error(tmp_path: Path, text: str) -> None:
    try:
        value = load(tmp_path / "fuzz.yaml", text)
    except UserError:
        return
    assert repr(value) == repr(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abNTyn1~ ", max_size=3), inner, max_size=4),
    max_leaves=12,
)


@FUZZ
@given(VALUES)
def test_what_is_dumped_loads_again(tmp_path: Path, value: object) -> None:
    assert load(tmp_path / "round.yaml", dump_yaml(value)) == value


def test_dump_keeps_order_and_writes_shared_values_twice(path: Path) -> None:
    shared = [1, 2]
    assert dump_yaml({"z": shared, "a": shared}) == "z:\n- 1\n- 2\na:\n- 1\n- 2\n"
    assert dump_yaml(load(path, "b: {y: 1, x: 2}")) == "b:\n  y: 1\n  x: 2\n"


def test_undecodable_text_is_spelt_and_reads_again(path: Path) -> None:
    assert load(path, dump_yaml({"a": "x\udcff", "b": "\x85\u2028\x1b\0"})) == {
        "a": "x\\udcff",
        "b": "\x85\u2028\x1b\0",
    }


def test_show_is_short_and_plain() -> None:
    values: list[object] = [None, True, False, 1, 1.5, "a\x1b[31m", {}, []]
    shown = [documents.show(value) for value in values]
    assert shown == ["nothing", "true", "false", "1", "1.5", "'a\\x1b[31m'", "a mapping", "a list"]
    assert len(documents.show("x" * 1000)) == 60


def test_write_replaces_whole_file_and_leaves_no_other(tmp_path: Path) -> None:
    target = tmp_path / "out.yaml"
    for text in ("first\n", "zweite Größe\n"):
        write_text_atomically(target, text)
        assert target.read_text(encoding="utf-8") == text
    assert list(tmp_path.iterdir()) == [target]
    plain = tmp_path / "plain"
    plain.touch()
    assert target.stat().st_mode == plain.stat().st_mode


def test_write_follows_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_text("old")
    link.symlink_to(real)
    write_text_atomically(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_write_to_a_missing_folder_a_folder_or_a_device(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, words in (
        (tmp_path / "none" / "out.yaml", "No such file"),
        (tmp_path, "not a regular file"),
        (fifo, "not a regular file"),
        (Path(os.devnull), "not a regular file"),
    ):
        with pytest.raises(EnvironmentFault, match=words) as caught:
            write_text_atomically(path, "text")
        assert str(path) in caught.value.one_line()
        assert "disk space" in caught.value.one_line()
    assert list(tmp_path.iterdir()) == [fifo]


def test_a_full_disk_leaves_the_old_file_whole(tmp_path: Path) -> None:
    """RLIMIT_FSIZE fails the write half way, as a full disk does."""
    pytest.importorskip("resource")
    target = tmp_path / "out.yaml"
    target.write_text("old text\n")
    code = (
        "import resource, signal, sys\n"
        "from gemm_tuner.system.documents import write_text_atomically\n"
        "from gemm_tuner.core.errors import EnvironmentFault\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    write_text_atomically(sys.argv[1], 'x' * 100_000)\n"
        "except EnvironmentFault as fault:\n"
        "    print(fault.one_line())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert "cannot write this file: File too large" in done.stdout
    assert target.read_text() == "old text\n"
    assert list(tmp_path.iterdir()) == [target]


def test_an_interrupt_while_writing_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    target = tmp_path / "out.yaml"
    target.write_text("old")
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text_atomically(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
