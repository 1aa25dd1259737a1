"""The configurations of --update, where the rules leave nothing of a size."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import config, device, problem
from tuning import run_options

from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.languages.cute import extra, library
from gemm_tuner.languages.together import names_of
from gemm_tuner.pipeline import prepare, serving_space
from gemm_tuner.space.size_state import SizeState

TINY, H200 = problem(16, 16, 16), device("sm_90")
OLDER = config(BLOCK_SIZE_M=16, BLOCK_SIZE_N=16, BLOCK_SIZE_K=16)


def test_an_older_configuration_is_timed_where_rules_leave_nothing(tmp_path: Path) -> None:
    asked = run_options(tmp_path, TINY, families=("gemm_packed",), older={TINY: OLDER})
    (cut,) = serving_space.cut_sizes(asked, H200, ())[1]
    assert isinstance(cut.left, SizeState)
    assert list(cut.left.kept) == [OLDER.name] and cut.left.predicted_us[OLDER.name] > 0
    assert cut.funnel[-1].remain == 0


def test_one_that_cannot_run_here_is_not_replaced_by_what_it_would_beat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is refused, unless the other sizes are asked for alone."""
    monkeypatch.delenv(library.RUNTIME_VARIABLE, raising=False)
    monkeypatch.setattr(extra, "installed", dict)
    small, other = problem(64, 64, 64), problem(128, 64, 64)
    older = {TINY: OLDER, small: KernelConfig("gemm_cute", 64, 64, 64, 1, 1, 0, 0), other: OLDER}
    with pytest.raises(UserError, match="1 of the 2 configurations to beat are of gemm_cute") as refused:
        prepare.require_families_of_older(run_options(tmp_path, TINY, small, older=older))
    assert refused.value.hint.startswith(extra.BRINGS)
    prepare.require_families_of_older(run_options(tmp_path, TINY, other, older=older))


def test_one_of_another_language_is_compiled_though_families_without_that_are_tuned(tmp_path: Path) -> None:
    """Else it would not compile, and be replaced by what it would beat."""
    for older, languages in (({TINY: OLDER}, ("triton", "cute")), ({}, ("triton",))):
        asked = run_options(tmp_path, TINY, families=("gemm_tile",), older=older)
        assert names_of(asked.language) == languages


def test_without_one_the_size_says_which_rule_left_nothing(tmp_path: Path) -> None:
    asked = run_options(tmp_path, TINY, families=("gemm_packed",))
    (cut,) = serving_space.cut_sizes(asked, H200, ())[1]
    assert isinstance(cut.left, UserError) and "no configuration is left" in cut.left.what


def test_sizes_that_one_rule_left_nothing_of_have_one_reason(tmp_path: Path) -> None:
    """So that the reasons below a table of results take one line."""
    asked = run_options(tmp_path, TINY, problem(16, 16, 32), families=("gemm_packed",))
    reasons = {cut.why_empty for cut in serving_space.cut_sizes(asked, H200, ())[1]}
    assert len(reasons) == 1 and "no configuration is left" in reasons.pop()
