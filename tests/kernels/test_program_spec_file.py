"""ProgramSpec files: the product of the parameters, and one line for what is wrong."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from gemm_tuner.cli.commands.spec import DESCRIPTION
from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.command_lines import lines_of
from gemm_tuner.kernels.program_spec import instances
from gemm_tuner.kernels.program_spec_file import read_spec

# The example of Modular's text, as it stands there.
MODULAR = """\
name: multistage_gemm
file: sample.mojo
params:
    DTYPE: DType.float16
    M: [1024,512]
    N: [1024,512,256,64]
    STAGES: [4,8,12]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "test.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def test_modulars_file_expands_to_24_specs_in_the_order_given(tmp_path: Path) -> None:
    (tmp_path / "sample.mojo").touch()
    found = list(instances(read_spec(write(tmp_path, MODULAR))))
    assert len(found) == 24 and [one.mesh_idx for one in found] == list(range(24))
    assert list(found[0].values.items()) == [("DTYPE", "DType.float16"), ("M", 1024), ("N", 1024), ("STAGES", 4)]
    assert [one.values["STAGES"] for one in found[:4]] == [4, 8, 12, 4]
    assert list(found[-1].values.values()) == ["DType.float16", 512, 64, 12]


def test_the_spec_in_the_help_is_one(tmp_path: Path) -> None:
    shown = "\n".join(line for line in DESCRIPTION.splitlines() if line.startswith("  "))
    spec = read_spec(write(tmp_path, shown))
    assert (spec.name, spec.count, len(spec.rules), spec.metric.kind) == ("matmul", 3, 1, "regex")


def test_values_are_put_into_words_and_not_into_a_shells_text(tmp_path: Path) -> None:
    text = r"""
    name: words
    command: "prog --a={A} '{B} x' {{not}}"
    params: {A: "1; rm -rf /", B: "it's"}
    """
    spec = read_spec(write(tmp_path, text))
    (one,) = instances(spec)
    assert lines_of(spec, one, tmp_path).run == ("prog", "--a=1; rm -rf /", "it's x", "{not}")


def test_a_shell_gets_quoted_values(tmp_path: Path) -> None:
    spec = read_spec(write(tmp_path, "command: echo {A} | cat\nshell: true\nparams: {A: '1; echo $HOME'}\n"))
    (one,) = instances(spec)
    done = subprocess.run(lines_of(spec, one, tmp_path).run, capture_output=True, text=True, check=True)
    assert done.stdout == "1; echo $HOME\n"


def test_builds_of_one_text_share_a_file_and_others_do_not(tmp_path: Path) -> None:
    spec = read_spec(write(tmp_path, """
    name: built
    build: "cc -DT={T} x.c -o {out}"
    command: "{out} {N}"
    params: {T: [1, 2], $N: [5, 6]}
    """))  # fmt: skip
    lines = [lines_of(spec, one, tmp_path) for one in instances(spec)]
    assert lines[0].build == lines[1].build != lines[2].build
    assert lines[0].run == (lines[0].out, "5") and lines[1].run == (lines[0].out, "6")
    assert lines[0].out in lines[0].build and lines[0].out != lines[2].out


GOOD = {"name": "x", "command": "./b {A}", "params": "{A: [1, 2]}"}
BAD = {
    "an unknown key": ({"parms": "{}"}, ["unknown key 'parms'", "did you mean params?"]),
    "the spec of a kernel": ({"kernel": "x.py:f"}, ["tune_gemm.py kernel --spec"]),
    "no program": ({"command": None}, ["neither file nor command"]),
    "two programs": ({"file": "x.mojo"}, ["file and command are given"]),
    "another kind of file": ({"command": None, "file": "x.c"}, ["'x.c'", ".mojo", "command:"]),
    "a file that is not there": ({"command": None, "file": "x.mojo"}, ["there is no", "x.mojo"]),
    "a placeholder that is no parameter": ({"command": "./b {B}"}, ["{B} is no parameter", "{A}"]),
    "braces of another language": ({"command": "'awk {print}'"}, ["{print}", "{{ and }}"]),
    "an open brace": ({"command": "'./b {A'"}, ["{{ and }}"]),
    "a format": ({"command": "'./b {A:>5}'"}, ["{A:>5}"]),
    "an open quote": ({"command": '"./b \'{A}"'}, ["close the quotes"]),
    "params no mapping": ({"params": "[1]"}, ["params", "a list"]),
    "no values": ({"params": "{A: []}"}, ["A has no values"]),
    "nested values": ({"params": "{A: [[1, 2]]}"}, ["a value of A is a list"]),
    "a bad name": ({"params": "{A: 1, 'a b': 1}"}, ["'a b' is no name"]),
    "a name twice": ({"params": "{A: 1, $A: 2}"}, ["A is given twice"]),
    "too many": ({"params": f"{{A: {list(range(1000))}, B: {list(range(101))}}}"}, ["too many"]),
    "a rule of unknown names": ({"rules": '["B < 1"]'}, ["rules, entry 1", "names B", "accepted: A"]),
    "a rule that is a number": ({"rules": "[1]"}, ["rules, entry 1"]),
    "a rule with another key": ({"rules": "[{keep: 'A < 1', because: x}]"}, ["unknown key 'because'"]),
    "a time limit of 0": ({"timeout_s": "0"}, ["timeout_s is 0"]),
    "select": ({"select": "first"}, ["select is 'first'", "median, last"]),
    "repeat": ({"repeat": "0"}, ["repeat is 0"]),
    "no such folder": ({"cwd": "nowhere"}, ["nowhere is no folder"]),
    "shell": ({"shell": "maybe"}, ["shell is 'maybe'"]),
    "two metrics": ({"metric": "{regex: '(a)', json: b}"}, ["regex and json"]),
    "a metric of no place": ({"metric": "{unit: us}"}, ["no place"]),
    "a regex without a group": ({"metric": "{regex: 'a+'}"}, ["0 groups"]),
    "a wrong regex": ({"metric": "{regex: '(a'}"}, ["regex is wrong"]),
    "better": ({"metric": "{regex: '(a)', better: more}"}, ["better is 'more'", "lower, higher"]),
    "mojo of a command": ({"mojo": "mojo"}, ["mojo says"]),
    "env": ({"env": "[A]"}, ["env"]),
    "expect_name": ({"expect_name": "'{B}'"}, ["expect_name", "{B}"]),
    "a build of a value of run time": ({"build": "make {R}", "params": "{A: 1, $R: 2}"}, ["$R is a value of run time"]),
    "best": ({"best": "fast"}, ["best"]),
}


@pytest.mark.parametrize(("change", "says"), BAD.values(), ids=list(BAD))
def test_a_wrong_spec_is_one_line_that_names_file_and_place(
    tmp_path: Path, change: dict[str, str | None], says: list[str]
) -> None:
    entries = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    path = write(tmp_path, "".join(f"{key}: {value}\n" for key, value in entries.items()))
    with pytest.raises(UserError) as raised:
        read_spec(path)
    line = raised.value.one_line()
    assert "\n" not in line and line.startswith(str(path))
    assert [word for word in says if word not in line] == [], line
