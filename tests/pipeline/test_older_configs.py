"""The configurations of --update, where the rules leave nothing of a size."""

from __future__ import annotations

from pathlib import Path

from samples import config, device, problem
from tuning import run_options

from gemm_tuner.core.errors import UserError
from gemm_tuner.pipeline import serving_space
from gemm_tuner.space.size_state import SizeState

TINY, H200 = problem(16, 16, 16), device("sm_90")
OLDER = config(BLOCK_SIZE_M=16, BLOCK_SIZE_N=16, BLOCK_SIZE_K=16)


def test_an_older_configuration_is_timed_where_rules_leave_nothing(tmp_path: Path) -> None:
    asked = run_options(tmp_path, TINY, families=("gemm_packed",), older={TINY: OLDER})
    (cut,) = serving_space.cut_sizes(asked, H200, ())[1]
    assert isinstance(cut.left, SizeState)
    assert list(cut.left.kept) == [OLDER.name] and cut.left.predicted_us[OLDER.name] > 0
    assert cut.funnel[-1].remain == 0


def test_without_one_the_size_says_which_rule_left_nothing(tmp_path: Path) -> None:
    asked = run_options(tmp_path, TINY, families=("gemm_packed",))
    (cut,) = serving_space.cut_sizes(asked, H200, ())[1]
    assert isinstance(cut.left, UserError) and "no configuration is left" in cut.left.what
