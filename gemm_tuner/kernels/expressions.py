"""The expression language of spec files: arithmetic and comparisons of names, for numbers or columns of a space."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from gemm_tuner.core.errors import UserError
from gemm_tuner.system.documents import show
from gemm_tuner.system.values import did_you_mean

MAX_CHARACTERS = 1000
MOST_BITS = 4096.0  # of a power's result


def power(base: Any, exponent: Any) -> Any:
    """base ** exponent. Raises ValueError if the result would exceed MOST_BITS, because it could use all memory."""
    size = np.max(np.abs(np.asarray(exponent, dtype=float))) * np.log2(
        2 + np.max(np.abs(np.asarray(base, dtype=float)))
    )
    if size > MOST_BITS:
        raise ValueError("the power is too large")
    return base**exponent


BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: power,
}  # fmt: skip
COMPARE: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


def cdiv(value: Any, by: Any) -> Any:
    """The quotient, rounded up."""
    return -(-value // by)


def next_power_of_2(value: Any) -> Any:
    """The smallest power of two not below a positive integer."""
    if isinstance(value, np.ndarray):
        return np.array([next_power_of_2(int(one)) for one in value.ravel()]).reshape(value.shape)
    return 1 << max(0, int(value) - 1).bit_length()


def element(value: Any, place: int) -> Any:
    """An element of a list parameter, or of each list in a column. Raises ValueError."""
    if isinstance(value, np.ndarray):
        return np.array([element(one, place) for one in value])
    if not isinstance(value, tuple) or not -len(value) <= place < len(value):
        raise ValueError(f"{show(value)} has no element {place}")
    return value[place]


FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {  # (function, least and largest number of arguments)
    "min": (lambda *values: reduce(np.minimum, values) if _is_column(values) else min(values), 2, 8),
    "max": (lambda *values: reduce(np.maximum, values) if _is_column(values) else max(values), 2, 8),
    "abs": (abs, 1, 1),
    "cdiv": (cdiv, 2, 2),
    "next_power_of_2": (next_power_of_2, 1, 1),
    "pow2": (next_power_of_2, 1, 1),
}
FORM = f"numbers, words in quotes, names, name[0], + - * / // % **, comparisons, and, or, not, {', '.join(FUNCTIONS)}"


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed and validated expression; ``value`` only performs arithmetic.

    names: the names in it; dotted names such as "device.num_sms" count as one.
    """

    text: str
    where: str
    names: frozenset[str]

    @classmethod
    def parse(cls, text: str, where: str) -> Expression:
        """Parses an expression. Raises UserError naming the unsupported part."""
        if len(text) > MAX_CHARACTERS:
            raise UserError(f"is longer than {MAX_CHARACTERS} characters", where=where)
        return cls(text, where, frozenset(_names(_tree(text, where), text, where)))

    def value(self, names: Mapping[str, Any]) -> Any:
        """The value. names: numbers, words or numpy columns. Raises UserError for an unknown name, and if the value is
        undefined, such as a division by zero."""
        for name in sorted(self.names - names.keys()):
            hint = did_you_mean(name, names)
            raise UserError(f"{show(self.text)} takes {name}", where=self.where, accepted=", ".join(names), hint=hint)
        try:
            with np.errstate(divide="raise", invalid="raise"):
                return _value(_tree(self.text, self.where), names)
        except (ArithmeticError, TypeError, ValueError) as error:
            by_zero = isinstance(error, (ZeroDivisionError, FloatingPointError)) and "zero" in str(error)
            hint = "keep a divisor above 0 for every combination, as max(n, 1) does" if by_zero else ""
            raise UserError(f"{show(self.text)} has no value: {error}", where=self.where, hint=hint) from error


@lru_cache(maxsize=512)
def _tree(text: str, where: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        is_split = text.count("(") != text.count(")")
        hint = "put it in quotes: in [...] and {...} YAML splits at commas" if is_split else ""
        raise UserError(f"{show(text)} is no expression", where=where, accepted=FORM, hint=hint) from error


def _names(node: ast.expr, text: str, where: str) -> set[str]:
    """The names in an expression. Raises UserError for an unsupported part."""
    match node:
        case ast.Constant(value=value) if isinstance(value, (bool, int, float, str)):
            return set()
        case ast.Name() | ast.Attribute(value=ast.Name(id="device")):
            return {ast.unparse(node)}
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=place)) if type(place) is int:
            return {name}
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            parts = [left, right]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not(), operand=operand):
            parts = [operand]
        case ast.BoolOp(values=parts):
            pass
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in COMPARE for op in ops):
            parts = [left, *others]
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in FUNCTIONS:
            _, least, most = FUNCTIONS[name]
            if not least <= len(parts) <= most:
                raise UserError(f"{show(text)} gives {name} {len(parts)} arguments", where=where, accepted=str(least))
        case _:
            raise UserError(f"{show(text)} has {show(ast.unparse(node))}", where=where, accepted=FORM)
    return set().union(*(_names(part, text, where) for part in parts))


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name() | ast.Attribute():
            return names[ast.unparse(node)]
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(place))):
            return element(names[name], place)
        case ast.BinOp(left=left, op=op, right=right):
            return BINARY[type(op)](_value(left, names), _value(right, names))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return np.logical_not(_value(operand, names))
        case ast.UnaryOp(op=op, operand=operand):
            return -_value(operand, names) if isinstance(op, ast.USub) else _value(operand, names)
        case ast.BoolOp(op=op, values=values):
            joined = np.logical_and if isinstance(op, ast.And) else np.logical_or
            return reduce(joined, [_value(one, names) for one in values])
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [_value(one, names) for one in (left, *others)]
            found = [COMPARE[type(op)](*pair) for op, pair in zip(ops, itertools.pairwise(sides), strict=True)]
            return reduce(np.logical_and, found) if len(found) > 1 else found[0]
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return FUNCTIONS[name][0](*(_value(one, names) for one in arguments))
    raise AssertionError(ast.dump(node))


def _is_column(values: tuple[Any, ...]) -> bool:
    return any(isinstance(one, np.ndarray) for one in values)


def with_values(text: str, known: Mapping[str, ast.expr]) -> ast.expr:
    """An expression in which other expressions stand in place of their names."""

    class Names(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return known.get(node.id, node)

    found: ast.expr = Names().visit(ast.parse(text.strip(), mode="eval").body)
    return found
