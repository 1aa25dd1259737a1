"""A type that an architecture lacks: refused before its space is looked at, with what it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from rule_cases import thin_space
from samples import ROOT

from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import EXIT_INPUT, UserError
from gemm_tuner.core.records import Device
from gemm_tuner.gemm.combinations import type_fault
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.prepare import require_a_type
from gemm_tuner.space import space
from gemm_tuner.space.prune import apply, columns_of, load_rules

ARCHS = space.known_archs(ROOT / "rules")


def device(arch: str) -> Device:
    return space.load(space.space_path(ROOT / "rules", arch), arch).device


def problem(dtype_a: str, dtype_b: str = "", precision: str = "ieee") -> GemmProblem:
    dtype_c = "int32" if dtype_a == "int8" else "bf16"
    return GemmProblem(512, 512, 512, dtype_a, dtype_b or dtype_a, dtype_c, precision=precision)


FAULTS = {
    "OCP's on MI300": ("gfx942", problem("fp8_e4m3"), ["gfx942 does not multiply fp8_e4m3", "has fp8_e4m3_fnuz"]),
    "MI300's on Hopper": (
        "sm_90",
        problem("fp8_e5m2_fnuz"),
        ["not multiply fp8_e5m2_fnuz", "has fp8_e5m2 instead"],
    ),
    "on Ampere": ("sm_80", problem("fp8_e4m3"), ["sm_80 has no fp8", "fp16, bf16, fp32, int8"]),
    "tf32": ("gfx90a", problem("fp32", precision="tf32"), ["does not multiply tf32", "precision ieee"]),
    "of B": ("gfx942", problem("fp8_e4m3_fnuz", "fp8_e5m2"), ["does not multiply fp8_e5m2", "has fp8_e5m2_fnuz"]),
}


@pytest.mark.parametrize(("arch", "asked", "words"), FAULTS.values(), ids=list(FAULTS))
def test_the_fault_names_what_the_architecture_has(arch: str, asked: GemmProblem, words: list[str]) -> None:
    fault = type_fault(asked, device(arch))
    assert fault is not None
    assert [word for word in words if word not in fault.one_line()] == []


@pytest.mark.parametrize("arch", ARCHS)
def test_what_is_refused_is_what_the_rules_cut_wholly(arch: str) -> None:
    """By the rule of the same subject: nothing is refused that could have been tuned, and nothing is missed."""
    rules = tuple(rule for rule in load_rules(ROOT / "rules") if rule.name == "type_has_matrix_instruction")
    columns = columns_of(thin_space(arch).configs.head(1))
    problems = [problem(one) for one in ("fp16", "bf16", "fp32", "int8", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3_fnuz")]
    problems += [problem("fp32", precision="tf32"), problem("fp8_e4m3", "fp8_e5m2")]
    for one in problems:
        assert (type_fault(one, device(arch)) is None) == bool(len(apply(columns, one, device(arch), rules).kept)), one


def test_one_size_that_can_be_multiplied_is_enough() -> None:
    ampere = device("sm_80")
    require_a_type([problem("fp8_e4m3"), problem("fp16")], ampere)
    with pytest.raises(UserError, match="has no fp8"):
        require_a_type([problem("fp8_e4m3"), problem("fp8_e5m2")], ampere)


@pytest.mark.parametrize("doing", [[], ["--dry_run"]])
def test_it_is_refused_before_the_space_is_built(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, doing: list[str]
) -> None:
    def built(*_: object) -> None:
        raise AssertionError("the space was built")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prepare, "load_space", built)
    size = ["-m", "512", "-n", "512", "-k", "512", "--dtype", "fp8_e4m3", "--arch", "sm_80"]
    assert main([*size, *doing]) == EXIT_INPUT
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "sm_80 has no fp8" in printed.err
    assert list(tmp_path.iterdir()) == []
