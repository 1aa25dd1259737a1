"""What a source gives: problems with what they are for, and what could not be expressed, by line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.problem_keys import Defaults, problem_of

USUAL_M = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line adds to a file; an empty text means that the file decides.

    m_values: rows of A, for the sources that know N and K only.
    fp8:      name of the e4m3 type, where a source says no more than fp8.
    op:       AITER's operator, where a CSV of AITER does not name it.
    dtype:    of A and B, in place of what a model's config.json says, or where a CSV of AITER is silent.
    scaling:  in place of what a model's config.json says.
    tp:       ranks that a model's layers are split over. lm_head: with the output layer.
    experts:  with one expert's layers, at its even share of the tokens.
    """

    m_values: tuple[int, ...] = USUAL_M
    fp8: str = ""
    op: str = ""
    dtype: str = ""
    scaling: str = ""
    tp: int = 1
    lm_head: bool = False
    experts: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A problem and where it is from: a layer's name, or a line."""

    problem: GemmProblem
    origin: str


@dataclass(frozen=True, slots=True)
class Remark:
    """Something in the file that is not as it stands among the sizes.

    line: counted from 1; 0 where a line means nothing.
    kept: the size is among the sizes, in the way that ``why`` says; else it is left out.
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
    """All of a file."""

    found: tuple[Found, ...]
    remarks: tuple[Remark, ...]


class CannotExpress(Exception):
    """An entry that no problem of this tuner is; the message says why."""


def expressed(entry: dict[str, Any]) -> GemmProblem:
    """The problem of an entry in the keys of a size file. Raises CannotExpress."""
    try:
        return problem_of(entry, "", Defaults())
    except UserError as error:
        raise CannotExpress(error.what) from None
