"""Finds the grid of a launch as expressions of the kernel's parameters, by calling the grid function with symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

CONSTANT = "grid_"


class Untraceable(Exception):
    """The grid function does something other than arithmetic with a parameter."""


@dataclass(frozen=True)
class Grid:
    """A traced grid. texts: expressions of parameters and of grid_0, grid_1 ..., whose values are ``constants``."""

    texts: tuple[str, ...]
    constants: tuple[int, ...]


def traced(grid: Any, named: Mapping[str, Any], params: frozenset[str]) -> Grid | None:
    """Traces a grid: a tuple, or a function of the arguments by name. None if it cannot be expressed."""
    constants: list[int] = []
    symbols = {name: Symbol(name, constants) for name in params}
    try:
        sizes = grid({**named, **symbols}) if callable(grid) else grid
        sizes = sizes if isinstance(sizes, (tuple, list)) else (sizes,)
        texts = tuple(one.text if isinstance(one, Symbol) else _constant(one, constants) for one in sizes)
    except Exception:  # a user's function may raise anything for a symbol
        return None
    return Grid(texts, tuple(constants))


def _constant(value: Any, constants: list[int]) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Untraceable(type(value).__name__)
    constants.append(value)
    return f"{CONSTANT}{len(constants) - 1}"


class Symbol:
    """A parameter, or an arithmetic expression of parameters and integers."""

    def __init__(self, text: str, constants: list[int]) -> None:
        self.text, self._constants = text, constants

    def _join(self, sign: str, other: Any, swapped: bool = False) -> Symbol:
        text = other.text if isinstance(other, Symbol) else _constant(other, self._constants)
        first, second = (text, self.text) if swapped else (self.text, text)
        return Symbol(f"({first} {sign} {second})", self._constants)

    def __neg__(self) -> Symbol:
        return Symbol(f"(-{self.text})", self._constants)

    def __bool__(self) -> bool:
        raise Untraceable("a choice")

    __int__ = __index__ = __float__ = __len__ = __bool__
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise Untraceable("a comparison")


def _operator(sign: str, swapped: bool) -> Callable[[Symbol, Any], Symbol]:
    return lambda self, other: self._join(sign, other, swapped)


for _name, _sign in {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}.items():
    setattr(Symbol, f"__{_name}__", _operator(_sign, False))
    setattr(Symbol, f"__r{_name}__", _operator(_sign, True))
