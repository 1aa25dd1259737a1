"""A second kind of problem goes through the whole tuner: softmax of rows, brought by a package of its own.

``tests/helpers/softmax_kind`` is that package: an entry point names its workload, and nothing of gemm_tuner knows it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import softmax_kind
from fault_runs import MEASURED, ON_PATH, ROOT, Machine, require_complete_states, statuses_of, with_stand_in_gpu
from softmax_kind.problem import SoftmaxProblem

from gemm_tuner.core.plain_config import PlainConfig
from gemm_tuner.core.records import Verified
from gemm_tuner.core.workload import problem_from_dict, workload_of
from gemm_tuner.store import results

KIND = Path(softmax_kind.__file__).parent
RECORDING = Path(__file__).resolve().parents[1] / "data" / "h200_softmax_recording"
SIZES = "- {kind: softmax, rows: 64, columns: 100}\n- {kind: softmax, rows: 8, columns: 128, dtype: fp16}\n"
CACHE = Path(os.environ["GEMM_TUNER_CACHE_DIR"])  # of all tests
PROBLEMS = [SoftmaxProblem(64, 100), SoftmaxProblem(8, 128, "fp16")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return prepared(with_stand_in_gpu(tmp_path / "run", CACHE), f"{ON_PATH}{os.pathsep}{KIND.parent}")


def prepared(made: Machine, path: str) -> Machine:
    whole = (KIND / "rules" / "space_sm_90.yaml").read_text()
    assert "[128, 256, 1024]" in whole
    (made.folder / "space.yaml").write_text(whole.replace("[128, 256, 1024]", "[128]"))
    (made.folder / "sizes.yaml").write_text(SIZES)
    made.env["PYTHONPATH"] = path
    return made


def rows(machine: Machine) -> list[results.Row]:
    return list(results.read(machine.run_folder() / "tuned.yaml").rows)


def test_a_problem_and_its_configurations_come_back_as_they_were() -> None:
    for problem in PROBLEMS:
        assert problem_from_dict(problem.to_dict()) == problem
    config = PlainConfig("row_softmax", (("BLOCK_SIZE", 128), ("EXACT", True), ("order", (1, 0)), ("mode", "fast")))
    assert workload_of("softmax").config_from_dict({**config.to_dict(), "order": [1, 0]}) == config
    assert config.name == "row_softmax_BLOCK_SIZE128_EXACT1_order1x0_modefast"


@pytest.mark.parametrize("kind", ["sortmax", "../gemm", "core", 7])
def test_a_kind_that_nobody_brings_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match="kind"):
        problem_from_dict({"kind": kind, "rows": 1, "columns": 1})


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """After a run without a GPU, with a fault in the template: a row is not divided by its sum where one warp computes
    it."""
    folder = tmp_path_factory.mktemp("interpreted")
    machine = prepared(Machine(folder / "run", CACHE), "")
    kind = folder / "kinds"
    for name in ("softmax_kind", "softmax_kind-1.0.dist-info"):
        shutil.copytree(KIND.parent / name, kind / name, ignore=shutil.ignore_patterns("__pycache__"))
    template = kind / "softmax_kind" / "templates" / "row_softmax.py.j2"
    text = template.read_text()
    assert "    y = y / tl.sum(y, 0)\n" in text
    text = text.replace("    y = y / tl.sum(y, 0)\n", "    y = y / tl.sum(y, 0) if WARPS > 1 else y\n")
    text = text.replace("EXACT: tl.constexpr):", "EXACT: tl.constexpr, WARPS: tl.constexpr):")
    template.write_text(text.replace('config["EXACT"])', 'config["EXACT"], config["num_warps"])'))
    machine.env["PYTHONPATH"] = str(kind)
    done = machine.run("--arch", "sm_90", "--compare", "all")
    assert done.status == 0, done.err
    return machine


def test_without_a_gpu_it_is_compiled_checked_and_written(interpreted: Machine) -> None:
    found = rows(interpreted)
    assert [row.problem for row in found] == PROBLEMS
    assert [row.verified for row in found] == [Verified.INTERPRETED] * 2
    for row in found:
        assert isinstance(row.config, PlainConfig) and row.config.options()["BLOCK_SIZE"] >= row.problem.columns
    require_complete_states(interpreted)
    assert [size.problem for size in interpreted.record().sizes] == PROBLEMS


def test_a_wrong_kernel_is_found_and_another_taken(interpreted: Machine) -> None:
    assert [row.config.options()["num_warps"] for row in rows(interpreted) if row.config] == [4, 4]
    assert any("wrong" in statuses.values() for statuses in statuses_of(interpreted).values())


def test_the_timed_way_screens_decides_and_checks(machine: Machine) -> None:
    """With stand-ins for GPU and profiler: the trace is joined with the journal of softmax kernels."""
    (machine.folder / "sizes.yaml").write_text(SIZES.replace(", dtype: fp16", ""))  # the stand-in runs one script
    done = machine.run(*MEASURED)
    assert done.status == 0, done.err
    found = rows(machine)
    assert [row.problem for row in found] == [SoftmaxProblem(64, 100), SoftmaxProblem(8, 128)]
    assert all(row.verified is Verified.TRUE and row.facts["vendor_us"] > 0 for row in found)
    require_complete_states(machine)
    # The stand-in's times follow from names alone: the fastest of all that ran must have been chosen.
    tables = statuses_of(machine)
    assert all(tables[row.problem.key][row.facts["name"]] == "ok" for row in found)


def test_what_an_h200_timed_gives_the_rows_that_it_gave(tmp_path: Path) -> None:
    """Recorded under nsys, with every process of finals and the checks: the timed way without a GPU."""
    machine = Machine(tmp_path / "run", CACHE, script=ROOT / "tune_gemm.py")
    machine.env["PYTHONPATH"] = str(KIND.parent)
    shutil.copyfile(RECORDING / "sizes.yaml", machine.folder / "sizes.yaml")
    shutil.copyfile(KIND / "rules" / "space_sm_90.yaml", machine.folder / "space.yaml")
    done = machine.run("--profiler", "replay", "--replay", str(RECORDING / "raw"))
    assert done.status == 0, done.err
    recorded = results.read(RECORDING / "tuned.yaml").rows
    assert [row.verified for row in recorded] == [Verified.TRUE] * 2
    for old, new in zip(recorded, rows(machine), strict=True):
        assert (new.problem, new.config) == (old.problem, old.config)
        assert {**new.facts, "source": ""} == {**old.facts, "source": ""}
    require_complete_states(machine)


def test_kinds_do_not_mix_in_one_run(machine: Machine) -> None:
    (machine.folder / "sizes.yaml").write_text(SIZES + "- {M: 64, N: 64, K: 64}\n")
    done = machine.run(*MEASURED)
    assert done.status == 2 and "gemm, softmax" in done.last_line()
