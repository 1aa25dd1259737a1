"""``tune_gemm.py kernel --host`` without a GPU: captured, compiled, pruned, checked in the interpreter, written."""

from __future__ import annotations

from pathlib import Path

import yaml
from command import tune_gemm
from fault_runs import statuses_of_run

from gemm_tuner.core.records import Verified
from gemm_tuner.store import results

SAMPLE = Path(__file__).with_name("host_sample.py")


def test_what_a_host_function_launches_is_compiled_checked_and_written(tmp_path: Path) -> None:
    """One configuration does not compile and another is wrong, by the second kernel's block that the host function
    takes: a program of 4 of 16 elements leaves some as they were."""
    source = SAMPLE.read_text()
    broken = "triton.cdiv(n, SHIFT_BLOCK) if SHIFT_BLOCK != 4 else 1"
    source = source.replace("shifted[(triton.cdiv(n, SHIFT_BLOCK),)]", f"shifted[({broken},)]")
    (tmp_path / "mine.py").write_text(source)
    spec = {"cases": {"n": 16}, "params": {"BLOCK": [8], "SHIFT_BLOCK": [3, 4, 8]}, "reference": "mine.py:reference"}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**spec, "check_cases": {"n": 13}}))
    words = ["kernel", "mine.py:doubled", "--host", "mine.py:three_launches", "--spec", "spec.yaml", "--arch", "sm_90"]
    done = tune_gemm(tmp_path, *words, "--compare", "all", "-o", "tuned.yaml", "--num_threads", "1")
    assert done.returncode == 0, done.stderr
    assert "three_launches" in done.stderr.splitlines()[0], "nothing is shown while the host function is tried"
    (row,) = results.read(tmp_path / "tuned.yaml").rows
    assert row.config is not None and row.config.options() == {"BLOCK": 8, "SHIFT_BLOCK": 8}
    assert row.verified is Verified.INTERPRETED
    (statuses,) = statuses_of_run(next((tmp_path / "results").glob("*-*"))).values()
    assert {name.rpartition("SHIFT_")[2]: status for name, status in statuses.items()} == {
        "BLOCK3": "compile_error", "BLOCK4": "wrong", "BLOCK8": "ok",
    }  # fmt: skip
