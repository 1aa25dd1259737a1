"""What a finished run remembers of its machine, and when that does not count any more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nvml_recording import h200, install
from samples import TEMPLATES, gpu, problem
from tuning import run_options

from gemm_tuner.languages.triton.symbol_naming import naming
from gemm_tuner.measure import probe
from gemm_tuner.measure.device import Machine
from gemm_tuner.pipeline import finished_machine
from gemm_tuner.pipeline.run_identity import job_key
from gemm_tuner.store import run_folder
from gemm_tuner.store.store import STORE_FILE

SIZE = problem(512, 512, 512)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a finished run on one H200."""
    monkeypatch.chdir(tmp_path)
    for name in finished_machine.HIDING_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    install(monkeypatch, h200("GPU-1"))
    folder = run_folder.create(
        tmp_path / "results", job_key(run_options(tmp_path, SIZE), "measured", "tune"), naming(TEMPLATES)
    )
    (folder.root / STORE_FILE).touch()
    finished_machine.keep(folder.root, machine())
    return folder.root


def machine() -> Machine:
    return Machine((gpu(0),), probe.versions(), "580.159.04")


def test_it_is_recalled_while_nothing_changes(run: Path, tmp_path: Path) -> None:
    assert finished_machine.recall(run_options(tmp_path, SIZE)) == machine()


def test_other_sizes_and_a_fresh_run_have_none(run: Path, tmp_path: Path) -> None:
    assert finished_machine.recall(run_options(tmp_path, problem(64, 64, 64))) is None
    assert finished_machine.recall(run_options(tmp_path, SIZE, fresh=True)) is None


def test_another_gpu_driver_variable_or_version_is_looked_at_anew(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = run_options(tmp_path, SIZE)
    with monkeypatch.context() as patch:
        install(patch, h200("GPU-2"))
        assert finished_machine.recall(asked) is None
    with monkeypatch.context() as patch:
        install(patch, init_error="Driver Not Loaded")
        assert finished_machine.recall(asked) is None
    with monkeypatch.context() as patch:
        patch.setattr(install(patch, h200("GPU-1")), "nvmlSystemGetDriverVersion", lambda: "590.1", raising=False)
        assert finished_machine.recall(asked) is None
    with monkeypatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "1")
        assert finished_machine.recall(asked) is None
    with monkeypatch.context() as patch:
        patch.setattr(probe, "package_version", lambda name: "9.9")
        assert finished_machine.recall(asked) is None
    assert finished_machine.recall(asked) == machine()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"machine": {}}', '{"machine": {"gpus": 1, "versions": 2}}'])
def test_a_file_that_says_nothing_is_none(text: str, run: Path, tmp_path: Path) -> None:
    (run / finished_machine.FILE).write_text(text)
    assert finished_machine.recall(run_options(tmp_path, SIZE)) is None


def test_amds_gpus_are_those_of_its_driver(tmp_path: Path) -> None:
    for number, text in enumerate(("0\n", "51234\n", "4711\n")):
        node = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{number}"
        node.mkdir(parents=True)
        (node / "gpu_id").write_text(text)
    assert finished_machine.amd_ids(tmp_path) == ["51234", "4711"]


def test_what_is_kept_is_json(run: Path) -> None:
    assert json.loads((run / finished_machine.FILE).read_text())["machine"]["gpus"][0]["name"] == "NVIDIA H200"
