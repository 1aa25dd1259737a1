"""Reads YAML documents from users within fixed bounds, and writes text files atomically.

A document is built from the event stream of the YAML parser in one pass without recursion, so that depth, aliases and
the number of values are checked before any value is built.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import secrets
from pathlib import Path
from typing import Any

import yaml

from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.system.input_files import printable, read_text

MAX_FILE_BYTES = 16 * 2**20
MAX_DEPTH = 32
MAX_NODES = 2_000_000
MAX_NUMBER_CHARS = 1000
MAX_KEPT = 10_000
LARGEST_INT = 2**63 - 1

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_PLAIN = yaml.SafeLoader("")  # only to resolve and construct scalars
_CORE = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset(_CORE + name for name in ("null", "bool", "int", "float", "timestamp"))
_NO_KEY = object()


class MarkedDict(dict[Any, Any]):
    """A mapping with the line of the file that it starts on, counted from 1."""

    __slots__ = ("line",)

    def __init__(self, line: int = 0) -> None:
        super().__init__()
        self.line = line


class _Builder:
    """Builds the value of one document, event by event; raises UserError at the first fault."""

    def __init__(self, path: Path) -> None:
        self.where = printable(path)
        self.value: object = None
        self.documents = 0
        self.nodes = 0
        self.open: list[MarkedDict | list[object]] = []
        self.keys: list[object] = []
        self.plain: dict[str, object] = {}

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.NodeEvent) and event.anchor:
            what = f"anchors and aliases (&{event.anchor[:60]}, *{event.anchor[:60]}) are not accepted"
            raise self.fault(line, what, hint="write the values out")
        if isinstance(event, yaml.ScalarEvent):
            self.add(self.scalar(event, line), line)
        elif isinstance(event, yaml.MappingStartEvent):
            self.enter(MarkedDict(line), event.tag, "map", line)
        elif isinstance(event, yaml.SequenceStartEvent):
            self.enter([], event.tag, "seq", line)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.open.pop()
            self.keys.pop()
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise self.fault(line, "a second document starts here", hint="keep one document in a file")

    def enter(self, container: MarkedDict | list[object], tag: str | None, kind: str, line: int) -> None:
        if tag not in (None, "!", _CORE + kind):
            raise self.bad_tag(line, str(tag))
        self.add(container, line)
        self.open.append(container)
        self.keys.append(_NO_KEY)
        if len(self.open) > MAX_DEPTH:
            raise self.fault(line, "the values are nested too deeply", accepted=f"{MAX_DEPTH} levels")

    def add(self, value: object, line: int) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self.fault(
                line, "the file holds too many values", accepted=f"up to {MAX_NODES} values", hint="split it"
            )
        if not self.open:
            self.value = value
            return
        parent = self.open[-1]
        if isinstance(parent, list):
            parent.append(value)
        elif self.keys[-1] is _NO_KEY:
            self.keys[-1] = self.new_key(parent, value, line)
        else:
            parent[self.keys[-1]] = value
            self.keys[-1] = _NO_KEY

    def new_key(self, parent: MarkedDict, key: object, line: int) -> object:
        if isinstance(key, (list, dict)):
            raise self.fault(line, f"{show(key)} is used as a key", accepted="names as keys")
        if key in parent:
            what, entries = f"key {show(key)} is given twice", next((o for o in self.open if isinstance(o, list)), None)
            where = f"{self.where}, " + (f"entry {len(entries)} (line {line})" if entries else f"line {line}")
            raise UserError(what, where=where, hint="delete one of the two")
        return key

    def scalar(self, event: Any, line: int) -> object:
        """The value of a scalar. Values of short plain scalars are cached, because files repeat keys and sizes."""
        if event.tag is not None or not event.implicit[0]:
            return self.resolved(event, line)
        text: str = event.value
        if text in self.plain:
            return self.plain[text]
        value = self.resolved(event, line)
        if len(self.plain) < MAX_KEPT and len(text) < 32:
            self.plain[text] = value
        return value

    def resolved(self, event: Any, line: int) -> object:
        value: str = event.value
        tag = event.tag
        if tag is None or tag == "!":
            tag = _PLAIN.resolve(yaml.ScalarNode, value, event.implicit)  # type: ignore[no-untyped-call]
        if tag == _CORE + "str":
            return value
        if tag not in _SCALAR_TAGS:
            raise self.bad_tag(line, tag)
        if len(value) > MAX_NUMBER_CHARS:
            what = f"a number of {len(value)} characters"
            raise self.fault(line, what, accepted=f"{MAX_NUMBER_CHARS} at most")
        try:
            return yaml.SafeLoader.yaml_constructors[tag](_PLAIN, yaml.ScalarNode(tag, value))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError):
            what = f"{show(value)} does not read as {tag.removeprefix(_CORE)}"
            raise self.fault(line, what, hint="quote it if it is text") from None

    def bad_tag(self, line: int, tag: str) -> UserError:
        name = "the merge key '<<'" if tag == _CORE + "merge" else f"the tag {show(tag.replace(_CORE, '!!'))}"
        accepted = "plain text, numbers, true and false, lists and mappings"
        return self.fault(line, f"{name} is not accepted", accepted=accepted, hint="write the values out")

    def fault(self, line: int, what: str, *, accepted: str = "", hint: str = "") -> UserError:
        return UserError(what, where=f"{self.where}, line {line}", accepted=accepted, hint=hint)


def load_yaml(path: str | os.PathLike[str], what: str = "size file") -> object:
    """Return the one document of a YAML file, as ``yaml.safe_load`` would; mappings are MarkedDict.

    Refused, beyond what safe_load refuses: a key given twice, anchors and aliases, merge keys, the tags of
    sets, ordered maps and binary data, and files beyond the MAX_* bounds of this module.
    what: the role of the file in messages. Raises UserError with the file and, if known, the line.
    """
    return yaml_value(read_text(path, what, "YAML", MAX_FILE_BYTES), path, what)


def yaml_value(text: str, path: str | os.PathLike[str], what: str) -> object:
    """The one document of a YAML text, as ``load_yaml`` returns it. path: the file that messages name."""
    path = Path(path)
    builder = _Builder(path)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        raise _syntax_error(error, text, path, what) from None
    return builder.value


def _syntax_error(error: yaml.YAMLError, text: str, path: Path, what: str) -> UserError:
    line, problem = 1, "not YAML"
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = error.problem or error.context or problem
    elif isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        problem = f"a character that YAML does not allow ({error.reason})"
    return UserError(
        f"the {what} is not valid YAML: {problem}",
        where=f"{printable(path)}, line {line}",
        accepted="a YAML document",
        hint="look at this line and the one before it",
    )


def show(value: object) -> str:
    """A value for a message: short, on one line, without control characters."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:56] + " ..."


def refuse_unknown(entry: dict[Any, Any], known: tuple[str, ...], where: str, accepted: str = "") -> None:
    """Raise UserError for the first key that is not in ``known``, with the most similar known key.

    accepted: listed in the message instead of all of ``known``.
    """
    for key in entry:
        if key in known:
            continue
        folded = {name.casefold(): name for name in known}
        close = difflib.get_close_matches(str(key).casefold()[:60], folded, n=1)
        raise UserError(
            f"unknown key {show(key)}",
            where=where,
            accepted=accepted or ", ".join(known),
            hint=f"did you mean {folded[close[0]]}?" if close else "delete it",
        )


def dump_yaml(obj: object) -> str:
    """Return ``obj`` (plain mappings, lists and scalars) as block-style YAML, keys in their given order."""
    text: str = yaml.dump(
        obj, Dumper=_PlainDumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=110
    )
    return text


class _PlainDumper(_DUMPER):  # type: ignore[misc]
    """Writes repeated values in full instead of as aliases, which ``load_yaml`` refuses."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def represent_text(self, data: str) -> Any:
        """Escapes unpaired surrogates, which come from undecodable output of tools and cannot be encoded."""
        return self.represent_str(data.encode("utf-8", "backslashreplace").decode())


_PlainDumper.add_representer(str, _PlainDumper.represent_text)
_PlainDumper.add_multi_representer(dict, _DUMPER.represent_dict)


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` to ``path`` as UTF-8, as ``write_bytes_atomically``."""
    write_bytes_atomically(path, text.encode("utf-8", errors="backslashreplace"))


def write_bytes_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write ``content`` to ``path``; a reader sees the old file or the new one, never a part.

    Symbolic links are followed. Raises EnvironmentFault when the folder is missing or not writable, the disk is
    full, or ``path`` is not a regular file; then the old file is unchanged and no temporary file is left.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(6)}.tmp")
    try:
        if target.exists() and not target.is_file():
            raise OSError("it is there already and is not a regular file")
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if not isinstance(error, OSError):
            raise
        raise EnvironmentFault(
            f"cannot write this file: {error.strerror or error}",
            where=printable(path),
            hint="check the folder, its permissions and the free disk space",
        ) from None
