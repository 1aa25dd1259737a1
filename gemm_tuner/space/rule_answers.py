"""Evaluates a rule, and says which rule failed and how."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import numpy.typing as npt

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device, Problem
from gemm_tuner.space.rule import Rule


def evaluate(rule: Rule, columns: Any, problem: Problem, device: Device) -> npt.NDArray[np.bool_]:
    """Evaluates a rule: True for rows to keep, shape (configurations,). Raises UserError if the rule raises or returns
    another type or shape."""
    code = getattr(inspect.unwrap(rule.keep), "__code__", None)
    where = f"{code.co_filename}, rule {rule.name}" if code else f"rule {rule.name}"
    try:
        answer = np.asarray(rule.keep(columns, problem, device))
    except UserError:
        raise  # raised by an expression of a spec, whose message already has the place
    except Exception as error:
        raise UserError(
            f"fails on {problem.key}: {type(error).__name__}: {error}", where=where, hint="mend it, or see --rules"
        ) from error
    shape = columns.family.codes.shape
    if answer.dtype != np.bool_ or answer.shape not in ((), shape):
        raise UserError(
            f"gives {answer.dtype} of shape {answer.shape}",
            where=where,
            accepted=f"True for what is kept and False for the rest, of shape {shape} or one for all",
        )
    return np.broadcast_to(answer, shape)
