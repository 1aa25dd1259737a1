"""Versions of Triton and NumPy with which the interpreter runs no kernels."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from launcher_runs import ONE, plan

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.languages.triton.interpreter_fault import check_versions
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.launch.plan import VERIFY
from gemm_tuner.measure.launcher_process import InterpreterLauncher


@pytest.mark.parametrize(
    ("triton", "numpy", "runs"),
    [("3.6.0", "2.3.5", True), ("3.6.0+git1", "2.10.0rc1", False), ("3.7.0", "2.5.5", True), ("3.10", "2.4", True)],
)
def test_versions_that_do_not_go_together_are_named_with_what_does(triton: str, numpy: str, runs: bool) -> None:
    versions = {"triton": triton, "numpy": numpy}
    if runs:
        check_versions(versions.get)
        return
    with pytest.raises(EnvironmentFault) as raised:
        check_versions(versions.get)
    assert {triton, numpy} <= set(raised.value.what.split()) and raised.value.accepted and raised.value.hint


def test_what_is_not_installed_is_not_judged() -> None:
    check_versions({"numpy": "2.5.5"}.get)


def test_nothing_is_started_in_an_interpreter_that_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions as folders of metadata in front of those of the installed packages tell them."""
    for name, version in (("triton", "3.6.0"), ("numpy", "2.4.0")):
        folder = tmp_path / "front" / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path / "front")
    launcher = InterpreterLauncher(LANGUAGE, tmp_path / "cache", tmp_path)
    with pytest.raises(EnvironmentFault, match=r"2\.4\.0"):
        launcher.prepare()
    with pytest.raises(EnvironmentFault, match=r"2\.4\.0"):
        launcher.verdicts(plan((ONE, ["good_1"]), stage=VERIFY), tmp_path / "verify")
    assert not (tmp_path / "verify").exists()


def test_that_there_is_an_interpreter_is_known_without_reading_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for every configuration, and to read the version of a package takes a millisecond."""

    def read(name: str) -> str:
        raise AssertionError(f"the version of {name} is read")

    monkeypatch.setattr(metadata, "version", read)
    assert LANGUAGE.interpreter_environment()
