"""What a host function's file and spec say, and how bad ones are refused; the user's files are not run here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from samples import ROOT

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.workload import problem_from_dict
from gemm_tuner.export.kernels.choose import TunedKernel
from gemm_tuner.export.kernels.module import module_text
from gemm_tuner.hosts import host_spec_file
from gemm_tuner.hosts.host_spec import HostProblem
from gemm_tuner.hosts.module_loader import UserModules
from gemm_tuner.hosts.module_sources import module_sources
from gemm_tuner.kernels.keys import key_of

SAMPLE = Path(__file__).with_name("host_sample.py")


def read(folder: Path, text: str, kernel: str = "doubled", host: str = "three_launches") -> HostProblem:
    (folder / "spec.yaml").write_text(text)
    spec, cases = host_spec_file.read(f"{SAMPLE}:{kernel}", f"{SAMPLE}:{host}", folder / "spec.yaml")
    return HostProblem.of(spec, cases[0])


def test_a_problem_comes_back_from_json_as_it_was(tmp_path: Path) -> None:
    problem = read(tmp_path, "cases: {n: [20, 30]}\nparams: {BLOCK: [16, 32]}\n")
    again = problem_from_dict(json.loads(json.dumps(problem.to_dict())))
    assert isinstance(again, HostProblem) and again == problem and again.spec == problem.spec
    assert problem_from_dict(problem.row()) == problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cases: {m: 20}\nparams: {BLOCK: [16]}", "m, a value of a case, is no parameter of three_launches"),
        ("params: {BLOCK: [16]}", "n, a parameter of three_launches, gets no value"),
        ("cases: {n: 20}\nparams: {BLOK: [16]}", "did you mean BLOCK?"),
        ("cases: {n: 20}\ngrid: [n]", "has grid, which the host function makes"),
        ("cases: {n: 20}\nparams: {BLOCK: []}", "No configurations to tune"),
        ("cases: {n: 20}\nparams: {BLOCK: [16]}\nreset: outt", "outt is no parameter of doubled"),
        ("cases: {n: 20}\nparam: {BLOCK: [16]}", "did you mean params?"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, text)
    assert words in caught.value.one_line() and "\n" not in caught.value.one_line()


@pytest.mark.parametrize(
    ("kernel", "host", "words"),
    [("doubledd", "copy", "did you mean doubled?"), ("doubled", "three_lunches", "did you mean three_launches?")],
)
def test_a_function_that_is_not_there_is_named(tmp_path: Path, kernel: str, host: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, "{}", kernel, host)
    assert words in caught.value.one_line()


def test_arguments_that_neither_a_case_nor_the_kernels_own_configurations_give_are_named() -> None:
    file = ROOT / "examples" / "kernels" / "layer_norm.py"
    spec, cases = host_spec_file.read(f"{file}:layer_norm_rows", f"{file}:run", None)
    with pytest.raises(UserError, match=r"--host: rows, a parameter of run, gets no value; accepted: cases: {rows: "):
        host_spec_file.require_values(spec, cases)
    host_spec_file.require_values(spec, ((("rows", 1), ("cols", 2)),))


def test_cases_share_a_key_and_a_module_is_not_exported(tmp_path: Path) -> None:
    problem = read(tmp_path, "cases: {n: [900, 1000]}\nparams: {BLOCK: [16]}\nkey: pow2(n)\n")
    assert key_of(problem.spec_there, (("n", 900),)) == key_of(problem.spec_there, (("n", 1000),)) == (1024,)
    with pytest.raises(UserError, match="is launched by a host function"):
        module_text(TunedKernel(problem.spec_there, ()), {}, tmp_path)


def test_a_kernel_that_is_defined_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text("def k(n): ...\ndef run(): ...\ndef k(m): ...\n")
    with pytest.raises(UserError, match="defines k 2 times, at lines 1, 3"):
        host_spec_file.read(f"{tmp_path}/two.py:k", f"{tmp_path}/two.py:run", None)


def test_files_of_the_folder_come_with_what_imports_them(tmp_path: Path) -> None:
    """Definitions only; and a module of the same name elsewhere stays what it is."""
    (tmp_path / "json.py").write_text("raise SystemExit\ndef one(): return 1\n")
    (tmp_path / "sizes").mkdir()
    (tmp_path / "sizes" / "small.py").write_text(
        "from json import one\ndef two(): return one() + 1\nraise SystemExit\n"
    )
    text = "import sizes.small\nimport sizes.small as s\ndef run(): return sizes.small.two(), s.two()\n"
    (tmp_path / "host.py").write_text(f"{text}def other(): ...\n")
    sources = dict(module_sources([(tmp_path / "host.py", "run")]))
    assert sorted(sources) == ["host", "json", "sizes.small"]
    assert "SystemExit" not in "".join(sources.values()) and "other" not in sources["host"]
    modules = UserModules(sources)
    assert modules.load("host").run() == (2, 2)
    import json as ours

    assert ours.loads("1") == 1


def test_a_spec_file_may_name_both_functions_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / SAMPLE.name).write_text(SAMPLE.read_text())
    spec = tmp_path / "spec.yaml"
    spec.write_text("cases: {n: 20}\nparams: {BLOCK: [16]}\n")
    assert not host_spec_file.names_host(spec)
    given, _ = host_spec_file.read(
        f"{tmp_path / SAMPLE.name}:doubled", f"{tmp_path / SAMPLE.name}:three_launches", spec
    )
    spec.write_text(f"kernel: {SAMPLE.name}:doubled\nhost: {SAMPLE.name}:three_launches\n" + spec.read_text())
    assert host_spec_file.names_host(spec) and host_spec_file.read("", "", spec)[0] == given
    spec.write_text(spec.read_text().replace("three_launches", "three_lunches"))
    with pytest.raises(UserError) as caught:
        host_spec_file.read("", "", spec)
    assert "did you mean three_launches?" in caught.value.one_line()
