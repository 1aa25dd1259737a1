"""Configurations of a family that nothing knows, where they are to run or to be rendered."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from run_samples import TILES, choice, write_results
from samples import device, problem

from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import EXIT_INPUT, UserError
from gemm_tuner.gemm.config import KERNEL_FAMILIES
from gemm_tuner.gemm.families.family import known_families, require_known
from gemm_tuner.source import codegen
from gemm_tuner.system.installation import data_folder

SIZE = problem(512, 512, 512)


@pytest.fixture
def misspelt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results file whose second row is of the family gemm_tlie."""
    monkeypatch.chdir(tmp_path)
    path = write_results(
        tmp_path / "old.yaml", [choice(problem(64, 64, 64), TILES["a"], 1.0), choice(SIZE, TILES["b"], 2.0)]
    )
    before, found, after = path.read_text().rpartition("family: gemm_tile")
    assert found
    path.write_text(f"{before}family: gemm_tlie{after}")
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("export", "old.yaml", "--to", "module"),
        ("--gemm_size_file", "old.yaml", "--compare_wo_tuning"),
        ("--gemm_size_file", "old.yaml", "--benchmark"),
        ("-m", "512", "-n", "512", "-k", "512", "--update", "old.yaml"),
    ],
    ids=lambda words: words[-1].strip("-"),
)
def test_an_unknown_family_is_named_with_its_row(
    misspelt: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert main([*words]) == EXIT_INPUT
    line = capsys.readouterr().err.splitlines()[-1]
    assert "gemm_tlie" in line and "gemm_tile" in line and "template of" not in line
    at = next(n for n, text in enumerate(misspelt.read_text().splitlines(), 1) if text == "- M: 512")
    assert f"old.yaml, configs entry 2 (line {at})" in line or ("--update" in words and SIZE.key in line)


def test_a_file_with_an_unknown_family_is_still_a_list_of_sizes(misspelt: Path) -> None:
    assert main(["--gemm_size_file", str(misspelt), "--dry_run", "--arch", "sm_90"]) == 0
    flags = ["--update", str(misspelt), "--dry_run", "--arch", "sm_90"]
    assert main(["-m", "64", "-n", "64", "-k", "64", *flags]) == 0  # that row's is known


def test_families_of_servers_and_of_a_folder_of_templates_are_known(tmp_path: Path) -> None:
    for name in (*known_families(), *KERNEL_FAMILIES.values()):
        require_known(name, tmp_path, "row 1")
    with pytest.raises(UserError, match="gemm_mine"):
        require_known("gemm_mine", tmp_path, "row 1")
    (tmp_path / "gemm_mine.py.j2").touch()
    require_known("gemm_mine", tmp_path, "row 1")


def test_a_template_that_is_missing_is_named_as_what_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "templates"
    shutil.copytree(data_folder("templates"), folder)

    def refused() -> UserError:
        with pytest.raises(UserError) as caught:
            codegen.render(folder, "gemm_mine", SIZE, (), device("sm_90").target)
        return caught.value

    assert "gemm_mine" in refused().what and refused().accepted  # the family's own: its name is wrong
    (folder / "gemm_mine.py.j2").write_text('{% include "_mine.j2" %}\n')
    assert "_mine.j2" in refused().what and not refused().accepted  # one that it includes
