"""The result of reading a source: problems with their origins, and remarks about entries that were changed or left
out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.problem_keys import Defaults, problem_of

USUAL_M = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """Values from the command line; an empty text means that the file decides.

    m_values: values of M, for sources that have N and K only.
    fp8:      name of the e4m3 type, for sources that only say fp8.
    op:       AITER's operator, if a CSV of AITER does not name it.
    dtype:    type of A and B, overriding a model's config.json, or if a CSV of AITER does not name it.
    scaling:  overrides a model's config.json.
    tp:       tensor-parallel ranks over which a model's layers are split.
    lm_head:  include the output layer.
    experts:  include the layers of one expert, at an even share of the tokens.
    moe:      the layers of experts are wanted as fused MoE layers, which are read apart.
    """

    m_values: tuple[int, ...] = USUAL_M
    fp8: str = ""
    op: str = ""
    dtype: str = ""
    scaling: str = ""
    tp: int = 1
    lm_head: bool = False
    experts: bool = False
    moe: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A problem and its origin: the name of a layer, or a line."""

    problem: GemmProblem
    origin: str


@dataclass(frozen=True, slots=True)
class Remark:
    """An entry of the file that was changed or left out.

    line: counted from 1; 0 if the file has no meaningful lines.
    kept: the size is included, changed as ``why`` says; otherwise it is left out.
    """

    line: int
    text: str
    why: str
    kept: bool = False

    def one_line(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.text}: {'taken, but ' if self.kept else ''}{self.why}"


@dataclass(frozen=True, slots=True)
class Read:
    """Everything that was read from one file."""

    found: tuple[Found, ...]
    remarks: tuple[Remark, ...]


class CannotExpress(Exception):
    """An entry cannot be expressed as a problem of this tuner; the message says why."""


def expressed(entry: dict[str, Any]) -> GemmProblem:
    """The problem of an entry that uses the keys of a size file. Raises CannotExpress."""
    try:
        return problem_of(entry, "", Defaults())
    except UserError as error:
        raise CannotExpress(error.what) from None
