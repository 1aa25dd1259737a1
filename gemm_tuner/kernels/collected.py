"""Makes specs for ``tune_gemm.py kernel`` (cases, tensors, parameters, grid) from recorded launches."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.expressions import MAX_CHARACTERS, Expression
from gemm_tuner.kernels.kernel_spec import LAUNCH_OPTIONS, Scalar
from gemm_tuner.kernels.launch_notes import LaunchNote
from gemm_tuner.kernels.stores import stored_parameters
from gemm_tuner.system.input_files import read_text

MAX_SOURCE_BYTES = 4 * 2**20
CONSTANT = "grid_"


@dataclass(frozen=True)
class Collected:
    """A kernel's spec.

    launches: number of recorded launches. cases: number of different ones.
    left_out: a sentence for each launch that a spec cannot express, and for everything that the user must complete.
    """

    name: str
    spec: dict[str, Any]
    launches: int
    cases: int
    left_out: tuple[str, ...]


def collected(notes: Iterable[LaunchNote], folder: Path) -> list[Collected]:
    """A spec for each kernel, in the order of the notes. folder: where the specs will be written; paths are relative to
    it."""
    by_kernel: dict[tuple[str, str], list[LaunchNote]] = {}
    for note in notes:
        by_kernel.setdefault((note.file, note.kernel), []).append(note)
    return [_of_kernel(found, folder) for found in by_kernel.values()]


def _of_kernel(notes: Sequence[LaunchNote], folder: Path) -> Collected:
    """The spec of one kernel, from the newest note of each key. Notes whose parameters differ from the newest note are
    ignored, because the kernel has been changed since."""
    sayable = [_names(note) for note in notes if not note.unsaid]
    current = [note for note in notes if note.unsaid or _names(note) == sayable[-1]]
    newest = {note.chooses: note for note in current}
    changed = len(notes) - len(current)
    left_out = [f"{note.kernel}: {note.unsaid[0]}, which no spec holds" for note in newest.values() if note.unsaid]
    if changed:
        text = f"{changed} of {len(notes)} notes left out, for the newest has other parameters"
        left_out.append(f"{notes[0].kernel}: {text}")
    kept = [note for note in newest.values() if not note.unsaid]
    grids = Counter(tuple(note.grid) for note in kept if note.grid)
    if any(not note.grid for note in kept):
        left_out.append(f"{notes[0].kernel}: its grid does more than arithmetic: write grid: in the spec")
    if len(grids) > 1:
        left_out.append(f"{notes[0].kernel}: {len(grids)} kinds of grids; the commonest is taken")
    grid = grids.most_common(1)[0][0] if grids else ()
    kept = [note for note in kept if not grid or tuple(note.grid) == grid]
    if not kept:
        return Collected(notes[0].kernel, {}, len(notes), 0, _each_once(left_out))
    spec = _spec(kept, grid, folder)
    if spec.get("tensors") and not any("output" in one for one in spec["tensors"].values()):
        left_out.append(f"{notes[0].kernel}: no store is seen in its source: write output: true beside its outputs")
    return Collected(notes[0].kernel, spec, len(notes), len(kept), _each_once(left_out))


def _names(note: LaunchNote) -> tuple[frozenset[str], ...]:
    """The names of a kernel's parameters by role: arguments, tensors, and parameters of configurations (without launch
    options)."""
    of_configs = frozenset(itertools.chain.from_iterable(note.configs)) - {*LAUNCH_OPTIONS}
    return frozenset(note.scalars), frozenset(note.tensors), of_configs


def _spec(notes: Sequence[LaunchNote], grid: Sequence[str], folder: Path) -> dict[str, Any]:
    last = notes[-1]
    stored = _stored(last)
    texts, constants, said = _without_repeats(notes, grid)
    shapes = {name: tuple(said.get(one, one) for one in _shape(notes, name)) for name in last.tensors}
    cases = [{**_case(note, shapes), **row} for note, row in zip(notes, constants, strict=True)]
    params = _params(notes)
    spec: dict[str, Any] = {
        "name": last.kernel,
        "kernel": f"{os.path.relpath(last.file, folder)}:{last.kernel}",
        "cases": cases,
        "tensors": {
            name: {
                "shape": list(shapes[name]) or [f"{name}_elements"],
                "dtype": f"{name}_dtype",
                **({"output": True} if name in stored else {}),
            }
            for name in last.tensors
        },
        "params": params,
        "grid": list(texts),
        "check_cases": [cases[0]],
    }
    rule = _rule(notes, params)
    return {**spec, **({"rules": [{"keep": rule, "why": "no configuration of the kernel's own"}]} if rule else {})}


def _case(note: LaunchNote, shapes: Mapping[str, Sequence[str]]) -> dict[str, Scalar]:
    """The values of a case. Sizes of tensors that do not follow from arguments are stored as floats, so that a check at
    a smaller size does not reduce them: too large a tensor does no harm."""
    unsaid = {name: one for name, one in note.tensors.items() if not shapes[name]}
    return {**note.case, **{f"{name}_elements": float(one.elements) for name, one in unsaid.items()}}


def _shape(notes: Sequence[LaunchNote], name: str) -> tuple[str, ...]:
    """One or two arguments whose product is the tensor's size in all cases, or with one of the grid's constants, such
    as the rows of which each program has one; empty if there are none."""
    sizes = [note.tensors[name].elements for note in notes]
    arguments = [one for one, value in notes[0].scalars.items() if type(value) is int and value != 1]
    several = [*itertools.combinations(arguments, 1), *itertools.combinations(arguments, 2)]
    constants = [f"{CONSTANT}{place}" for place, value in enumerate(notes[0].constants) if value != 1]
    for names in (*several, *((one, *names) for names in several for one in constants)):
        if all(_product(note, names) == size for note, size in _pairs(notes, sizes)):
            return names
    return ()


def _product(note: LaunchNote, names: Sequence[str]) -> float:
    known = {**note.scalars, **{f"{CONSTANT}{place}": value for place, value in enumerate(note.constants)}}
    return math.prod(value for name in names if isinstance(value := known[name], (int, float)))


def _stored(note: LaunchNote) -> tuple[str, ...]:
    try:
        source = read_text(Path(note.file), "Python file", "UTF-8 text", MAX_SOURCE_BYTES)
        return stored_parameters(source, note.kernel)
    except (UserError, SyntaxError, ValueError):
        return ()


def _without_repeats(
    notes: Sequence[LaunchNote], grid: Sequence[str]
) -> tuple[list[str], list[dict[str, Scalar]], dict[str, str]]:
    """(the grid, the remaining grid constants of each case, what stands for the others). Constants that are equal in
    all cases become numbers, and those that equal an argument in all cases become its name."""
    renamed, left = dict[str, str](), list[int]()
    for place, values in enumerate(zip(*(note.constants for note in notes), strict=True)):
        name = f"{CONSTANT}{place}"
        same = [
            one
            for one in notes[0].scalars
            if all(_is(note.scalars[one], value) for note, value in _pairs(notes, values))
        ]
        if same:
            renamed[name] = same[0]
        elif len(set(values)) == 1:
            renamed[name] = str(values[0])
        else:
            left.append(place)
    texts = [_renamed(text, renamed) for text in grid]
    return texts, [{f"{CONSTANT}{place}": note.constants[place] for place in left} for note in notes], renamed


def _pairs(notes: Sequence[LaunchNote], values: Sequence[int]) -> list[tuple[LaunchNote, int]]:
    return list(zip(notes, values, strict=True))


def _is(scalar: Scalar, value: int) -> bool:
    """Whether an argument is a grid's constant. 1 is excluded, because it is too common to identify an argument."""
    return type(scalar) is int and scalar == value and value != 1


def _renamed(text: str, names: dict[str, str]) -> str:
    # Longest names first, because grid_1 is a part of grid_10.
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, names[name])
    return text


def _params(notes: Sequence[LaunchNote]) -> dict[str, list[Scalar]]:
    """All values of each parameter, in order."""
    found: dict[str, list[Scalar]] = {}
    for config in itertools.chain(*(note.configs for note in notes)):
        for name, value in config.items():
            if value not in found.setdefault(name, []):
                found[name].append(value)
    return found


def _rule(notes: Sequence[LaunchNote], params: dict[str, list[Scalar]]) -> str:
    """A rule that keeps only the kernel's own configurations out of the product of all values; "" if the product has no
    others, if a configuration lacks a differing parameter, or if the rule would be too long."""
    configs = [dict(items) for items in dict.fromkeys(tuple(one.items()) for note in notes for one in note.configs)]
    if math.prod(map(len, params.values())) == len(configs):
        return ""
    several = [name for name, values in params.items() if len(values) > 1]
    terms = [" and ".join(f"{name} == {one[name]!r}" for name in several if name in one) for one in configs]
    text = " or ".join(f"({term})" for term in terms)
    if not all(terms) or len(text) > MAX_CHARACTERS:
        return ""
    return Expression.parse(text, "rules").text


def _each_once(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sentences))
