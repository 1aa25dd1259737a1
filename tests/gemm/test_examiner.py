"""Configurations that are checked in sequence: what they share is made once, and none is judged by what another one
did. Imports torch, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from gemm_tuner.core.records import Verdict
from gemm_tuner.gemm import cases
from gemm_tuner.gemm.cases import kept_bytes
from gemm_tuner.gemm.check import WRITES_OUTSIDE, check, prepare
from gemm_tuner.gemm.check import examiner as examiner_of
from gemm_tuner.gemm.operands import Operands
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.reference import activated

torch = pytest.importorskip("torch")

# In fp32 the interpreter's operands are those that are kept, and no copies of wider types.
PROBLEM = GemmProblem(24, 40, 64, "fp32", "fp32", "fp32")
PROBLEMS = {
    "fp32": PROBLEM,
    "bf16, bias, C_in": GemmProblem(24, 40, 64, bias=True, alpha=0.75, beta=-1.5),
    "fp8, one scale": GemmProblem(24, 40, 320, "fp8_e4m3", "fp8_e4m3", "bf16", scaling="tensor"),
    "fp8, scales of rows": GemmProblem(24, 40, 64, "fp8_e4m3", "fp8_e4m3", "bf16", scaling="row_col"),
    "int8": GemmProblem(24, 40, 64, "int8", "int8", "int32"),
    "relu: two sets": replace(PROBLEM, activation="relu"),
    "gelu": replace(PROBLEM, activation="gelu", bias=True),
    "a batch": replace(PROBLEM, batch=3),
    "many sets": GemmProblem(1, 2, 2**15, "fp8_e4m3", "fp8_e4m3", "bf16"),
}
Effect = Callable[[Operands], None]


class Script(ModuleType):
    """A generated script whose kernels compute C as they should, and then have an effect. Counts its launches."""

    def __init__(self, problem: GemmProblem, **effects: Effect) -> None:
        super().__init__("script")
        self.CONFIGS = {name: {"name": name} for name in effects}
        self.launches = 0
        self.given: list[Any] = []
        self._problem, self._effects = problem, effects

    def scratch(self, config: Any, size: Any, num_sms: int) -> tuple[int, int]:
        return 0, 0

    def calls(self, config: Any, size: Any, operands: Operands, scratch: Any, num_sms: int) -> list[Any]:
        def launch() -> None:
            self.launches += 1
            self.given.append(operands.a)
            if self._effects[config["name"]] is not writes_nothing:
                multiply(self._problem, operands)
            self._effects[config["name"]](operands)

        return [("kernel", {(1,): launch}, (1,), (), {})]


def multiply(problem: GemmProblem, operands: Operands) -> None:
    a, b = (matrix.double() for matrix in operands.logical(problem))
    if operands.scale_a is not None:
        a, b = a * operands.scale_a[:, None].double(), b * operands.scale_b.double()
    x = (a @ b) * operands.alpha
    if operands.c_in is not None:
        x = x + operands.c_in.double() * operands.beta
    if operands.bias is not None:
        x = x + operands.bias.double()
    operands.c.copy_(activated(problem.activation, x))


def nothing_else(operands: Operands) -> None: ...


def writes_nothing(operands: Operands) -> None: ...


def spoils_c(operands: Operands) -> None:
    operands.c.view(-1)[1] += 3


def overwrites_a(operands: Operands) -> None:
    operands.a.view(-1)[5:9] = 1.0


def transposes_b(operands: Operands) -> None:
    operands.b.copy_(operands.b.flip(-1))


def fails(operands: Operands) -> None:
    operands.a.fill_(3.0)
    raise RuntimeError("misaligned address")


def alone(script: Script, problem: GemmProblem, name: str) -> Verdict:
    return check(script, problem, name, 0, "cpu")


@pytest.mark.parametrize("what", PROBLEMS)
def test_verdicts_are_those_of_separate_checks(what: str) -> None:
    problem = PROBLEMS[what]
    right = {"right": nothing_else, "again": nothing_else, "last": nothing_else}
    script = Script(problem, **right, spoilt=spoils_c, idle=writes_nothing, other=overwrites_a)
    examiner = examiner_of(problem, 0, "cpu")
    order = ("right", "idle", "again", "spoilt", "other", "again", "last")
    together = [examiner.verdict(script, name) for name in order]
    each = [alone(script, problem, name) for name in order]
    assert [one for one in together if one.name != "other"] == [one for one in each if one.name != "other"]
    assert [one.ok for one in together if one.name in right] == [True] * 4
    assert not any(one.ok for one in together if one.name in ("idle", "spoilt"))


def test_a_kernel_that_writes_nothing_is_wrong_after_a_right_one() -> None:
    script = Script(PROBLEM, right=nothing_else, idle=writes_nothing)
    examiner = examiner_of(PROBLEM, 0, "cpu")
    assert examiner.verdict(script, "right").ok
    verdict = examiner.verdict(script, "idle")
    assert not verdict.ok and verdict.error_over_bound == math.inf and "C[0, 0] is nan" in verdict.message
    assert examiner.verdict(script, "right").ok


@pytest.mark.parametrize("damage", [overwrites_a, transposes_b])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_kernel_that_damages_its_operands_makes_no_other_one_wrong(damage: Effect, is_first: bool) -> None:
    script = Script(PROBLEM, right=nothing_else, damaging=damage)
    examiner = examiner_of(PROBLEM, 0, "cpu")
    before = alone(script, PROBLEM, "right")
    if not is_first:
        assert examiner.verdict(script, "right") == before
    verdict = examiner.verdict(script, "damaging")  # its C may be the product of what it left
    assert not verdict.ok and (verdict.message == WRITES_OUTSIDE or not alone(script, PROBLEM, "damaging").ok)
    assert examiner.verdict(script, "right") == before and before.ok


def test_a_kernel_that_damages_the_reference_makes_no_other_one_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write outside of C can hit anything."""
    made: list[Any] = []
    original = cases.reference

    def kept(*given: Any) -> Any:
        made.append(original(*given))
        return made[-1]

    def damages(_: Operands) -> None:
        made[-1][0][3, 4] += 1.0

    monkeypatch.setattr(cases, "reference", kept)
    script = Script(PROBLEM, right=nothing_else, damaging=damages, after=nothing_else)
    examiner = examiner_of(PROBLEM, 0, "cpu")
    assert examiner.verdict(script, "right").ok
    examiner.verdict(script, "damaging")
    assert examiner.verdict(script, "after").ok and len(made) == 3


def test_nothing_is_reused_after_a_launch_that_fails() -> None:
    script = Script(PROBLEM, right=nothing_else, failing=fails)
    examiner = examiner_of(PROBLEM, 0, "cpu")
    before = examiner.verdict(script, "right")
    with pytest.raises(RuntimeError, match="misaligned"):
        examiner.verdict(script, "failing")
    assert examiner.verdict(script, "right") == before and before.ok
    assert script.given[1] is not script.given[0] and script.given[3] is not script.given[0]


@pytest.mark.parametrize(("most_bytes", "made"), [(2**32, 1), (0, 5)])
def test_what_configurations_share_is_made_once_while_it_is_small(
    monkeypatch: pytest.MonkeyPatch, most_bytes: int, made: int
) -> None:
    """Five configurations, with the reference and operands of each set counted where they are made."""
    counts = dict.fromkeys(("reference", "make_operands", "make_exact_operands", "exact_limits"), 0)

    def counted(name: str) -> Callable[..., Any]:
        original = getattr(cases, name)

        def call(*given: Any) -> Any:
            counts[name] += 1
            return original(*given)

        return call

    for name in counts:
        monkeypatch.setattr(cases, name, counted(name))
    monkeypatch.setattr("gemm_tuner.gemm.check.KEPT_BYTES", most_bytes)
    names = "abcde"
    script = Script(PROBLEM, **dict.fromkeys(names, nothing_else))
    examiner = examiner_of(PROBLEM, 0, "cpu")
    assert all(examiner.verdict(script, name).ok for name in names)
    assert counts == dict.fromkeys(counts, made) and script.launches == 2 * len(names)


@pytest.mark.parametrize("what", PROBLEMS)
def test_no_more_is_kept_than_is_reckoned(what: str) -> None:
    problem = PROBLEMS[what]
    examiner = examiner_of(problem, 0, "cpu")
    examiner.verdict(Script(problem, right=nothing_else), "right")
    found = examiner._shared
    assert found is not None
    tensors = {}
    for case in found._cases.values():
        tensors.update({id(one): one for seal in case.seals() for one in seal._tensors})
        tensors[id(case._operands.c)] = case._operands.c
    held_bytes = sum(one.numel() * one.element_size() for one in tensors.values())
    assert 0.5 * kept_bytes(problem) < held_bytes <= kept_bytes(problem)


def test_the_largest_problem_of_which_anything_is_kept() -> None:
    side = 8192
    assert kept_bytes(GemmProblem(side, side, side)) <= cases.KEPT_BYTES < kept_bytes(GemmProblem(side, side, 8 * side))


@pytest.mark.parametrize("what", PROBLEMS)
def test_preparing_a_check_takes_little_of_any_size(what: str) -> None:
    """One operand of what is given would have 128 TiB."""
    prepare(replace(PROBLEMS[what], m=2**23, n=2**23, k=2**23), "cpu")
