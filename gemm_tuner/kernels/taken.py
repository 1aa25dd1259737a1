"""Extracts a kernel from the text of a server's source, without importing it: its function, with the constants and
@triton.jit functions of the same file that it uses."""

from __future__ import annotations

import ast
import builtins
import copy
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.system.documents import show
from gemm_tuner.system.input_files import printable

NAME = "NAME"  # an additional constant parameter of the kernel, for its symbol
GIVEN = ("tl", "triton")  # names that every script defines


@dataclass(frozen=True, slots=True)
class TakenKernel:
    """An extracted kernel.

    file:      name of the source file. function: its name.
    helpers:   source of the constants and functions that it uses.
    text:      source of the function from ``def`` on, with NAME as an additional first argument.
    arguments: its original arguments, in order. optional: those with a default.
    sha:       12 hex digits over the extracted source as in the file.
    """

    file: str
    function: str
    helpers: str
    text: str
    arguments: tuple[str, ...]
    optional: tuple[str, ...]
    sha: str

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> TakenKernel:
        """The inverse of ``dataclasses.asdict``, also after conversion to JSON."""
        fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        return cls(**fields)

    @property
    def label(self) -> str:
        """The kernel's name for display."""
        return f"{self.file} sha256:{self.sha}"


def parsed(source: str, file: Path) -> ast.Module:
    """Parses a source. Raises UserError if it is not valid Python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"is no Python source: {error}", where=printable(file), accepted="a .py file") from None


def taken(source: str, module: ast.Module, kernel: ast.FunctionDef, file: Path, hint: str) -> TakenKernel:
    """Extracts a kernel. Raises UserError if it uses names that cannot be extracted with it."""
    if not is_jit(kernel, with_options=False):
        what = f"{kernel.name} is decorated in another way"
        raise UserError(what, where=printable(file), accepted="@triton.jit and nothing else")
    used = used_by(kernel, module, file, hint)
    texts = [ast.get_source_segment(source, node) or "" for node in (*used, kernel)]
    arguments = tuple(one.arg for one in kernel.args.args)
    optional = arguments[len(arguments) - len(kernel.args.defaults) :]
    helpers = "\n\n".join(map(ast.unparse, used))
    sha = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
    return TakenKernel(file.name, kernel.name, helpers, text_of(kernel), arguments, optional, sha)


def functions_of(module: ast.Module) -> dict[str, ast.FunctionDef]:
    """The functions of a module by name; of several with the same name the last one, as in execution."""
    return {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}


def is_jit(function: ast.FunctionDef, *, with_options: bool) -> bool:
    """Whether a function's only decorator is triton.jit. with_options: it may have arguments."""
    if len(function.decorator_list) != 1:
        return False
    (decorator,) = function.decorator_list
    if isinstance(decorator, ast.Call):
        if (decorator.args or decorator.keywords) and not with_options:
            return False
        decorator = decorator.func
    return ast.unparse(decorator) in ("triton.jit", "jit")


Used = ast.FunctionDef | ast.Assign | ast.AnnAssign


def used_by(kernel: ast.FunctionDef, module: ast.Module, file: Path, hint: str) -> list[Used]:
    """The constants and @triton.jit functions of the module that a kernel uses, directly or indirectly, in their
    order there. Raises UserError, with the hint, for a name that is neither."""
    functions, constants = functions_of(module), constants_of(module)
    found: dict[str, Used] = {}
    wanted = [*free_names(kernel)]
    while wanted:
        name = wanted.pop()
        if name in found or name in GIVEN or hasattr(builtins, name):
            continue
        node = functions.get(name) or constants.get(name)
        if node is None or (isinstance(node, ast.FunctionDef) and not is_jit(node, with_options=True)):
            what = f"{kernel.name} uses {show(name)}, which is no constant and no @triton.jit function of the file"
            raise UserError(what, where=printable(file), hint=hint)
        found[name] = node
        wanted += free_names(node) if isinstance(node, ast.FunctionDef) else ()
    return sorted(found.values(), key=lambda node: node.lineno)


def free_names(function: ast.FunctionDef) -> Iterator[str]:
    """The names that a function reads and does not set itself."""
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    own = {one.arg for one in function.args.args} | {one.id for one in names if not isinstance(one.ctx, ast.Load)}
    decorators = {id(node) for decorator in function.decorator_list for node in ast.walk(decorator)}
    return (one.id for one in names if one.id not in own and id(one) not in decorators)


def constants_of(module: ast.Module) -> dict[str, ast.Assign | ast.AnnAssign]:
    """The assignments of a literal, or of a tl.constexpr of a literal, to a name, by name."""
    found: dict[str, ast.Assign | ast.AnnAssign] = {}
    for node in module.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None or not is_literal(node.value):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if len(targets) == 1 and isinstance(targets[0], ast.Name):
            found[targets[0].id] = node
    return found


def is_literal(value: ast.expr) -> bool:
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "tl.constexpr" and len(value.args) == 1:
        value = value.args[0]
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


def text_of(kernel: ast.FunctionDef) -> str:
    """The source of the kernel's function without its decorator, with NAME as an additional first argument."""
    name = ast.arg(NAME, annotation=ast.parse("tl.constexpr", mode="eval").body)
    args = ast.arguments([], [name, *kernel.args.args], None, [], [], None, kernel.args.defaults)
    renamed = copy.copy(kernel)
    renamed.args, renamed.decorator_list, renamed.returns = args, [], None
    return ast.unparse(ast.fix_missing_locations(renamed))
