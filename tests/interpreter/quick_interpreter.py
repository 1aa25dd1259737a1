"""Leaves out of Triton's interpreter what takes most of its time and changes no result."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import os
import types
from collections.abc import Callable
from typing import Any


def quicken() -> None:
    """In the interpreting process, before the first launch."""
    put_language_in_once()
    share_types()
    take_equal_types_as_they_are()
    rewrite_quickly()
    from triton.runtime import interpreter

    # Each sum and product of int32 is computed a second time to see whether it overflows, which no offset into matrices
    # of a few hundred rows does: ``make test-all`` has that checked.
    is_checked = "CHECK_OVERFLOW" in os.environ
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=is_checked)
    inspect.getsourcelines = functools.lru_cache(256)(inspect.getsourcelines)  # asked for three times a kernel


def rewrite_quickly() -> None:
    """A kernel's text ends where its indentation does, and is parsed at its lines: no tokens are looked at, and only
    the nodes that Triton puts in are given a place. What stands in two scripts is rewritten once."""
    from triton.runtime import interpreter

    rewriter, block_of = interpreter.FunctionRewriter, inspect.getblock
    whole = rewriter._transform_ast

    def block(lines: list[str]) -> list[str]:
        return kernel_lines(lines) if lines[0].startswith("@triton.jit") else block_of(lines)

    class Transformer(type(rewriter.ast_transformer)):  # type: ignore[misc]
        def visit(self, node: ast.AST) -> Any:
            made = super().visit(node)
            if isinstance(node, ast.stmt) and made is not None:
                call = getattr(made, "value", None)
                for new in ast.walk(call) if isinstance(call, ast.Call) and not hasattr(call, "lineno") else ():
                    if not hasattr(new, "lineno"):
                        ast.copy_location(new, node)
            return made

    codes: dict[tuple[int, str], types.CodeType] = {}

    def transform(self: Any, source: str) -> types.CodeType:
        place = self.def_file_lineno, source
        if place not in codes:
            tree = Transformer().visit(ast.parse("\n" * (self.def_file_lineno - 1) + source))
            try:
                codes[place] = compile(tree, self.filename, "exec")
            except TypeError:  # a node without a place
                codes[place] = compile(whole(self, source), self.filename, "exec")
        return codes[place]

    def compile_tree(tree: Any, *given: Any, **more: Any) -> Any:
        return tree if isinstance(tree, types.CodeType) else compile(tree, *given, **more)

    interpreter.compile = compile_tree
    inspect.getblock, rewriter._transform_ast = block, transform


def kernel_lines(lines: list[str]) -> list[str]:
    """The first kernel of a script: its decorators, its head, and what is indented."""
    body = next(at for at, line in enumerate(lines) if line.startswith("def ")) + 1
    while body < len(lines) and (lines[body][:1].isspace() or lines[body].startswith(")")):
        body += 1
    while not lines[body - 1].strip():
        body -= 1
    return lines[:body]


def take_equal_types_as_they_are() -> None:
    """Two operands of one type and shape are what an operation computes with: Triton goes through all that other types
    and shapes would need. What it computes with for two types is looked up."""
    from triton.language import core, semantic

    of, tensor = semantic.TritonSemantic, core.tensor
    check, promoted, to_type = (
        of.binary_op_type_checking_impl, of.computation_type_impl, of._cast_to_computation_type,
    )  # fmt: skip
    types: dict[Any, Any] = {}

    def check_quickly(
        self: Any, lhs: Any, rhs: Any, allow_lhs_ptr: bool = False, allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True, div_or_mod: bool = False,
    ) -> Any:  # fmt: skip
        if type(lhs) is tensor and type(rhs) is tensor and lhs.type.name == rhs.type.name:
            scalar = lhs.dtype
            if not scalar.is_ptr() and (not div_or_mod or scalar.is_int() or scalar.is_fp32()):
                return lhs, rhs
        return check(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    def promote(self: Any, one: Any, is_scalar: bool, other: Any, other_is_scalar: bool, div_or_mod: bool) -> Any:
        key = one.name, is_scalar, other.name, other_is_scalar, div_or_mod
        if key not in types:
            types[key] = promoted(self, one, is_scalar, other, other_is_scalar, div_or_mod)
        return types[key]

    def cast(self: Any, value: Any, dtype: Any) -> Any:
        return value if type(value) is tensor and value.dtype is dtype else to_type(self, value, dtype)

    of.binary_op_type_checking_impl, of.computation_type_impl, of._cast_to_computation_type = (
        check_quickly,
        promote,
        cast,
    )


def put_language_in_once() -> None:
    """Triton puts interpreted functions into its language at a launch, and again whenever a kernel calls another
    function: here once a launch for each of the modules that hold the language."""
    from triton import language
    from triton.runtime import interpreter

    put_in, scope, done = interpreter._patch_lang, interpreter._LangPatchScope(), set[str]()

    @functools.cache
    def modules_of(function: Callable[..., Any]) -> set[str]:
        return {one.__name__ for one in function.__globals__.values() if one is language or one is language.core}

    def put_in_once(function: Callable[..., Any]) -> Any:
        nonlocal scope
        if not scope._changes:  # taken back when a launch ends
            done.clear()
            done.update(modules_of(function))
            scope = put_in(function)
            return scope
        if modules_of(function) <= done:
            return interpreter._LangPatchScope()
        done.update(modules_of(function))
        return put_in(function)

    interpreter._patch_lang = put_in_once


def share_types() -> None:
    """Types of blocks and shapes of tensors are values, which Triton makes anew for every operation: here equal ones
    share their parts. And the table of numpy's types is not built at each look-up."""
    from triton.language import core
    from triton.runtime import interpreter

    block_type, tensor, constexpr = core.block_type, core.tensor, core.constexpr
    make_block_type, numpy_type = block_type.__init__, interpreter._get_np_dtype
    parts: dict[Any, dict[str, Any]] = {}
    shapes: dict[Any, tuple[Any, Any]] = {}
    numpy_types: dict[str, Any] = {}

    def init_block_type(self: Any, element_ty: Any, shape: Any) -> None:
        values = shape.values if isinstance(shape, core.tuple) else shape
        if not isinstance(values, list) or any(type(extent) is not int for extent in values):
            make_block_type(self, element_ty, shape)
            return
        key = (element_ty.name, *values)
        if key not in parts:
            make_block_type(self, element_ty, shape)
            parts[key] = {name: vars(self)[name] for name in ("shape", "numel", "name")}
        self.element_ty = element_ty
        vars(self).update(parts[key])

    def init_tensor(self: Any, handle: Any, type: Any) -> None:
        values = tuple(type.shape.values) if type.is_block() else ()
        if values not in shapes:
            shapes[values] = core.tuple([constexpr(extent) for extent in values]), constexpr(math.prod(values))
        self.shape, self.numel = shapes[values]
        self.handle, self.type, self.dtype = handle, type, type.scalar

    def np_dtype(of: Any) -> Any:
        scalar = of.element_ty if isinstance(of, block_type) else of
        if scalar.name not in numpy_types:
            numpy_types[scalar.name] = numpy_type(of)
        return numpy_types[scalar.name]

    block_type.__init__, tensor.__init__ = init_block_type, init_tensor
    interpreter._get_np_dtype = np_dtype
