"""Which rows of a results file an exported module takes: unchecked, predicted, measured, without configuration."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import samples
from exported_modules import HEADER, PLAIN, choice, loaded, written

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.records import Verified
from gemm_tuner.export.gemm.module import ModuleFile, write_module
from gemm_tuner.export.trust import Trust
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.store.results_file import ResultsFile


def test_a_size_tuned_with_a_bias_serves_both_and_each_comes_first_for_its_own(tmp_path: Path) -> None:
    small, large = samples.config(BLOCK_SIZE_M=64), samples.config(BLOCK_SIZE_M=256)
    biased = replace(PLAIN, bias=True)
    other = replace(PLAIN, m=64, bias=True)
    path = written(tmp_path, choice(PLAIN, small), choice(biased, large), choice(other, large))
    assert write_module(path, tmp_path / "bias.py").num_sizes == 3
    module = loaded(tmp_path / "bias.py")
    assert module.choose("bf16_nn", 512, 512, 512) == small.name
    assert module.choose("bf16_nn", 512, 512, 512, "bias") == large.name
    assert module.choose("bf16_nn", 64, 512, 512) == large.name


def test_every_kind_of_size_that_can_be_tuned_is_taken(tmp_path: Path) -> None:
    fp8 = {"dtype_a": "fp8_e4m3", "dtype_b": "fp8_e4m3"}
    kinds: list[dict[str, Any]] = [
        {"batch": 4},
        {**fp8, "scaling": "tensor"},
        {**fp8, "scaling": "row_col"},
        {**fp8, "scaling": "block"},
        {"activation": "relu", "beta": 1.0},
        {"alpha": 0.5},
        {"dtype_c": "fp32"},
    ]
    rows = [choice(replace(PLAIN, **kind)) for kind in kinds]
    made = write_module(written(tmp_path, *rows), tmp_path / "some.py")
    assert (made.num_sizes, made.left_out) == (len(kinds), ())
    module = loaded(tmp_path / "some.py")
    assert {one.scaling for one in module.CLASSES.values()} == {"none", "tensor", "row_col", "block"}
    assert {one.batched for one in module.CLASSES.values()} == {False, True}
    assert {"beta_relu", "beta_bias_relu", "alpha", "alpha_bias"} <= set(module.EPILOGUES["bf16_nn"])


def test_what_was_not_checked_on_a_gpu_is_taken_only_when_asked_for_and_named(tmp_path: Path) -> None:
    predicted = replace(choice(replace(PLAIN, m=2), verified=Verified.INTERPRETED), source="predicted")
    agreed = choice(replace(PLAIN, m=3), verified=Verified.AGREED)
    path = written(tmp_path, choice(PLAIN), choice(replace(PLAIN, m=1), verified=Verified.FALSE), predicted, agreed)
    sizes = {
        Trust(): {512, 3},
        Trust(predicted=True): {512, 2, 3},
        Trust(unverified=True): {512, 1, 3},
        Trust(predicted=True, unverified=True): {512, 1, 2, 3},
    }
    for trust, expected in sizes.items():
        made = write_module(path, tmp_path / "some.py", trust=trust)
        module = loaded(tmp_path / "some.py")
        assert {row[0] for row in module.TUNED["bf16_nn"]} == expected
        assert {problem.m for problem, _ in made.remarks} == expected - {512}
        assert {one.size for one in made.left_out} == {replace(PLAIN, m=m).key for m in {512, 1, 2, 3} - expected}
        assert all(problem.key in module.__doc__ for problem, _ in made.remarks)


def test_a_module_of_predicted_rows_says_so(tmp_path: Path) -> None:
    row = replace(choice(PLAIN, verified=Verified.INTERPRETED), source="predicted")
    path = written(tmp_path, row, source="predicted")
    write_module(path, tmp_path / "gemm.py", trust=Trust(predicted=True))
    said = loaded(tmp_path / "gemm.py").__doc__ or ""
    assert "predicted for NVIDIA H200" in said and "tuned for" not in said


def test_a_module_of_timed_and_predicted_rows_says_which_is_which(tmp_path: Path) -> None:
    guesses = [
        replace(choice(replace(PLAIN, m=m), verified=Verified.INTERPRETED), source="predicted", median_us=1.0 * m)
        for m in (2, 3)
    ]
    path = written(tmp_path, choice(PLAIN), *guesses)
    write_module(path, tmp_path / "gemm.py", trust=Trust(predicted=True))
    module, text = loaded(tmp_path / "gemm.py"), (tmp_path / "gemm.py").read_text()
    said = module.__doc__ or ""
    assert "3 sizes, 1 timed, 2 predicted" in said.splitlines()[0]
    named = said.partition("PREDICTED:")[2].partition("Generated")[0]
    assert all(row.problem.key in named for row in guesses) and PLAIN.key not in named
    table = text.partition("TUNED = {")[2].partition("}")[0].splitlines()
    assert [line.partition("# ")[2] for line in table if "gemm_tile" in line] == ["measured", "predicted", "predicted"]
    assert module.HEADER["source"] == "measured, predicted"


def guess(problem: GemmProblem, config: KernelConfig | None = None) -> Choice:
    return replace(choice(problem, config, Verified.INTERPRETED), source="predicted")


def test_predictions_replace_no_module_with_sizes_that_were_measured_unless_asked_to(tmp_path: Path) -> None:
    one, two, three = (replace(PLAIN, m=m) for m in (1, 2, 3))
    other, out, trust = samples.config(num_warps=8), tmp_path / "gemm.py", Trust(predicted=True)

    def exported(*rows: Choice, **how: Any) -> ModuleFile:
        return write_module(written(tmp_path, *rows), out, trust=trust, **how)

    exported(choice(one), guess(two))
    assert exported(choice(one), guess(two, other), guess(three)).num_sizes == 3  # only a prediction has gone
    before = out.read_text()
    for rows in ([guess(one)], [guess(three)]):
        made = exported(*rows)
        assert (made.num_sizes, out.read_text()) == (0, before)
        assert "has 1 size measured" in made.left_out[0].reason and "--overwrite" in made.left_out[0].reason
    assert exported(guess(three), overwrite=True).num_sizes == 1
    assert exported(guess(two)).num_sizes == 1
    out.write_text("mine = 1\n")
    assert "unknown origin" in exported(guess(three)).left_out[0].reason and out.read_text() == "mine = 1\n"
    assert exported(choice(one)).num_sizes == 1


def test_rows_of_an_earlier_run_are_what_that_run_says(tmp_path: Path) -> None:
    """A predicted run wrote the file last; its own row does not leave."""
    path = written(tmp_path, choice(PLAIN))
    later = replace(HEADER, date="2026-02-28T12:00:00Z", triton="3.9.0", source="predicted")
    size = replace(PLAIN, m=2)
    file = ResultsFile(path, [size])
    file.record_outcome(size, replace(choice(size, verified=Verified.INTERPRETED), source="predicted"))
    file.write(later)
    write_module(path, tmp_path / "timed.py")
    timed = loaded(tmp_path / "timed.py")
    assert "tuned for" in (timed.__doc__ or "") and "PREDICTED" not in (timed.__doc__ or "")
    assert asdict(HEADER) == timed.HEADER
    assert "us, measured)" in (tmp_path / "timed.py").read_text()
    write_module(path, tmp_path / "both.py", trust=Trust(predicted=True))
    both = loaded(tmp_path / "both.py").HEADER
    assert (both["triton"], both["num_sms"]) == ("3.6.0, 3.9.0", 132)


def test_a_size_without_a_configuration_is_left_out_with_its_reason(tmp_path: Path) -> None:
    failed = (replace(PLAIN, m=2), 'no "config"\nran')
    made = write_module(written(tmp_path, choice(PLAIN), failures=[failed]), tmp_path / "more.py")
    assert [one.size for one in made.left_out] == [failed[0].key]
    assert "was not tuned: no 'config' ran" in (loaded(tmp_path / "more.py").__doc__ or "")


def test_a_file_without_a_row_for_a_module_writes_none(tmp_path: Path) -> None:
    made = write_module(written(tmp_path, choice(PLAIN, verified=Verified.FALSE)), tmp_path / "none.py")
    assert made.num_sizes == 0 and [(one.size, "--unverified" in one.reason) for one in made.left_out] == [
        (PLAIN.key, True)
    ]
    with pytest.raises(UserError, match="holds no sizes"):
        write_module(written(tmp_path), tmp_path / "none.py")
    with pytest.raises(UserError, match="names no architecture"):
        write_module(written(tmp_path, choice(PLAIN), arch=""), tmp_path / "none.py")
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(EnvironmentFault, match="cannot write"):
        write_module(written(tmp_path, choice(PLAIN)), tmp_path / "folder.py")
    assert not (tmp_path / "none.py").exists()
