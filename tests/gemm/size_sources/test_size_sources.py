"""Size lists out of other tools' files: each source's convention, what is left out, and that they read back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from samples import load_sizes
from sources_of_sizes import COL, DATA, FEW, ROW, sizes_of, written

from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import EXIT_INPUT, EXIT_OK, UserError
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.gemm.size_sources.collect import SOURCES, collect, size_file
from gemm_tuner.gemm.size_sources.found import USUAL_M, CollectOptions

FILES = sorted(path.name for path in DATA.iterdir() if path.name != "README.md")


def problems_of(name: str, asked: CollectOptions = FEW) -> list[GemmProblem]:
    return list(sizes_of(name, asked).problems)


@pytest.mark.parametrize("name", FILES)
def test_the_size_file_of_every_source_reads_back_as_the_same_problems(name: str, tmp_path: Path) -> None:
    sizes = sizes_of(name)
    path = written(tmp_path, "sizes.yaml", size_file(sizes, DATA / name))
    # The command line must not be able to change what the source says.
    foreign = Defaults("int8", "int8", "int32", COL, ROW, bias=True)
    back = load_sizes(path, foreign)
    assert [entry.problem for entry in back.entries] == list(sizes.problems)
    assert back.duplicates == 0


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("tunableop_untuned0.csv", "tunableop"),
        ("tunableop_results0.csv", "tunableop"),
        ("bf16_untuned_gemm.csv", "aiter"),
        ("a8w8_blockscale_untuned_gemm.csv", "aiter"),
        ("vllm.log", "log"),
        ("sglang.log", "log"),
        ("aiter.log", "log"),
        ("deepseek_v3_config.json", "huggingface"),
    ],
)
def test_a_file_is_known_by_its_content(name: str, source: str, tmp_path: Path) -> None:
    renamed = written(tmp_path, "a8w8_blockscale", (DATA / name).read_text())
    assert collect(renamed, FEW).source == source


@pytest.mark.parametrize(
    ("letters", "layout_a", "layout_b"), [("tn", ROW, COL), ("nn", ROW, ROW), ("nt", COL, ROW), ("tt", COL, COL)]
)
def test_tunableops_letters_are_blas_column_major_ones(
    letters: str, layout_a: Layout, layout_b: Layout, tmp_path: Path
) -> None:
    """The same bytes, multiplied as BLAS does and as the problem that the line becomes does."""
    m, n, k = 3, 5, 7  # BLAS'
    rng = np.random.default_rng(0)
    memory_a, memory_b = rng.random(m * k), rng.random(k * n)
    stored_a, stored_b = ((m, k) if letters[0] == "n" else (k, m)), ((k, n) if letters[1] == "n" else (n, k))
    blas_a, blas_b = memory_a.reshape(stored_a, order="F"), memory_b.reshape(stored_b, order="F")
    blas_c = (blas_a if letters[0] == "n" else blas_a.T) @ (blas_b if letters[1] == "n" else blas_b.T)

    line = f"GemmTunableOp_Half_{letters.upper()},{letters}_{m}_{n}_{k}\n"
    (problem,) = collect(written(tmp_path, "t.csv", line), FEW).problems
    assert problem == GemmProblem(n, m, k, "fp16", "fp16", "fp16", layout_a, layout_b)
    a = memory_b.reshape((problem.m, k), order="C" if layout_a == ROW else "F")
    b = memory_a.reshape((k, problem.n), order="C" if layout_b == ROW else "F")
    assert np.allclose((a @ b).ravel(), blas_c.ravel(order="F"))


def test_tunableops_operators_and_types() -> None:
    found = problems_of("tunableop_untuned0.csv")
    bf16, fp16, fp32 = (("bf16",) * 3, ("fp16",) * 3, ("fp32",) * 3)
    assert found == [
        GemmProblem(16, 6144, 4096, *bf16, ROW, COL),
        GemmProblem(128, 4096, 1024, *fp16, ROW, ROW),
        GemmProblem(4096, 25088, 64, *fp32, COL, ROW),
        GemmProblem(256, 512, 1024, *fp32, COL, COL, precision="tf32"),
        GemmProblem(32, 1152, 896, *bf16, ROW, COL, bias=True),
        GemmProblem(128, 64, 32, *fp16, ROW, ROW, batch=12),
        GemmProblem(64, 4096, 8192, "fp8_e4m3", "fp8_e5m2", "bf16", ROW, COL, scaling="row_col"),
        GemmProblem(64, 4096, 8192, "fp8_e4m3_fnuz", "fp8_e4m3_fnuz", "fp16", ROW, COL, bias=True, scaling="tensor"),
        GemmProblem(16, 4096, 4096, *bf16, ROW, COL),
    ]


def test_what_tunableop_says_and_no_kernel_does_is_named_with_its_line() -> None:
    sizes = sizes_of("tunableop_untuned0.csv")
    assert sizes.duplicates == 1
    assert [(r.line, r.kept) for r in sizes.remarks] == [(10, False), (11, False), (12, True), (13, False)]
    assert "double" in sizes.remarks[0].why and "complex" in sizes.remarks[1].why
    assert sizes.remarks[2].why == "as packed matrices: B has a leading dimension of 8192, not 4096"
    assert "dtype_c" in sizes.remarks[3].why


def test_tunableops_line_of_a_tuned_file_without_leading_dimensions() -> None:
    found = problems_of("tunableop_results0.csv")
    assert [(p.m, p.n, p.k) for p in found] == [(4096, 25088, 64), (4096, 4096, 64)]


def test_letters_that_contradict_the_operator_are_left_out(tmp_path: Path) -> None:
    lines = "GemmTunableOp_Half_TN,nn_4_8_16\nGemmTunableOp_Half_TN,tn_4_8_16\nGemmTunableOp_Half_TN,tn_0_8_16\n"
    sizes = collect(written(tmp_path, "t.csv", lines), FEW)
    assert [r.line for r in sizes.remarks] == [1, 3] and len(sizes.problems) == 1


def test_aiters_bf16_file_names_its_types_in_each_row() -> None:
    sizes = sizes_of("bf16_untuned_gemm.csv")
    assert list(sizes.problems) == [
        GemmProblem(1, 7168, 512, layout_b=COL),
        GemmProblem(64, 256, 5120, dtype_c="fp32", layout_b=COL, bias=True),
        GemmProblem(16, 1536, 7168, "fp8_e4m3_fnuz", "fp8_e4m3_fnuz", "bf16", ROW, COL, scaling="tensor"),
    ]
    assert sizes.duplicates == 1
    assert [r.line for r in sizes.remarks] == [6, 7, 8, 9]
    for remark, word in zip(sizes.remarks, ("shuffled", "float4", "M is 'garbage'", "3 columns"), strict=True):
        assert word in remark.why


def test_aiters_other_files_say_by_their_name_what_they_are_for(tmp_path: Path) -> None:
    assert problems_of("a8w8_untuned_gemm.csv") == [
        GemmProblem(16, 1536, 7168, "fp8_e4m3_fnuz", "fp8_e4m3_fnuz", "bf16", ROW, COL, scaling="row_col"),
        GemmProblem(1, 1280, 8192, "int8", "int8", "bf16", ROW, COL, scaling="row_col"),
    ]
    block = GemmProblem(1024, 24576, 1536, "fp8_e4m3", "fp8_e4m3", "bf16", ROW, COL, scaling="block")
    assert problems_of("a8w8_blockscale_untuned_gemm.csv")[0] == block
    text = "M,N,K\n1024,24576,1536\n"
    nameless = written(tmp_path, "shapes.csv", text)
    with pytest.raises(UserError, match="--aiter_op"):
        collect(nameless, FEW)
    assert list(collect(nameless, CollectOptions(op="a8w8_blockscale")).problems) == [block]
    for name, words in (
        ("a8w8_blockscale_bpreshuffle_untuned_gemm.csv", "shuffled"),
        ("a4w4_blockscale_untuned_gemm.csv", "fp4"),
        ("a8w8_untuned_gemm.csv", "--dtype"),
    ):
        with pytest.raises(UserError, match=words):
            collect(written(tmp_path, name, text), FEW)
    assert [p.dtype_a for p in collect(tmp_path / "a8w8_untuned_gemm.csv", CollectOptions(dtype="int8")).problems] == [
        "int8"
    ]


def test_a_log_names_n_and_k_once_for_all_ranks_and_m_is_asked_for() -> None:
    sizes = sizes_of("vllm.log")
    fp8 = ("fp8_e4m3", "fp8_e4m3", "bf16", ROW, COL)
    assert list(sizes.problems) == [GemmProblem(m, 2112, 7168, *fp8, scaling="block") for m in (1, 64)]
    assert [(r.line, word in r.why) for r, word in zip(sizes.remarks, ("experts", "int8"), strict=True)] == [
        (4, True),
        (5, True),
    ]
    assert len(sizes_of("vllm.log", CollectOptions()).problems) == len(USUAL_M)


def test_the_device_in_a_log_says_which_fp8_unless_the_command_line_does() -> None:
    assert {p.dtype_a for p in problems_of("sglang.log")} == {"fp8_e4m3_fnuz"}
    assert {p.dtype_b for p in problems_of("sglang.log", CollectOptions(fp8="fp8_e4m3"))} == {"fp8_e4m3"}
    assert [r.text for r in sizes_of("sglang.log").remarks] == ["'E=128,N=192,device_name=NVIDIA_H200.json'"]


def test_aiters_log_says_m_and_the_csv_that_lacks_it() -> None:
    assert problems_of("aiter.log") == [
        GemmProblem(8192, 1024, 3072, "fp8_e4m3", "fp8_e4m3", "bf16", ROW, COL, scaling="block"),
        GemmProblem(64, 256, 5120, dtype_c="fp32", layout_b=COL, bias=True),
    ]


def test_files_of_no_known_kind_and_without_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing that is known here.*tunableop"):
        collect(written(tmp_path, "x", "hello\n"), FEW)
    with pytest.raises(UserError, match=r"no size that can be tuned: line 1: .*double"):
        collect(written(tmp_path, "x", "GemmTunableOp_double_NN,nn_8_8_8\n"), FEW)
    for source in SOURCES:
        for text in ("hello\n", "", "{}", "N,K\n1,2\n"):
            with pytest.raises(UserError):
                collect(written(tmp_path, "a8w8_blockscale", text), FEW, source)


def test_lines_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    """A log may hold a character that only Python takes for the end of a line; a file of Windows ends lines by two."""
    aiter = written(tmp_path, "a8w8_blockscale.csv", "M,N,K\r\n1,2,3\r\n\r\nx,2,3\r\n")
    assert [remark.line for remark in collect(aiter, FEW).remarks] == [4]
    log = written(tmp_path, "log", "a\x0b\u2028b\n" + (DATA / "vllm.log").read_text())
    assert [remark.line for remark in collect(log, FEW).remarks] == [5, 6]


def test_the_command_writes_a_size_file_and_names_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sizes.yaml"
    assert main(["sizes", "--from", str(DATA / "tunableop_untuned0.csv"), "-o", str(out)]) == EXIT_OK
    shown = capsys.readouterr()
    assert shown.out == "" and "9 sizes" in shown.err and "3 left out" in shown.err and "1 said more than" in shown.err
    assert "line 10: 'GemmTunableOp_double_NN" in shown.err
    assert len(load_sizes(out, Defaults()).entries) == 9
    assert main(["sizes", "--from", str(DATA / "llama_config.json"), "--m", "1, 2,2", "--tp", "2"]) == EXIT_OK
    printed = capsys.readouterr().out
    assert len(load_sizes(written(tmp_path, "p.yaml", printed), Defaults()).entries) == 8
    assert printed.count("# qkv\n") == 1


def test_the_commands_json_and_its_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sizes", "--from", str(DATA / "vllm.log"), "--m", "16", "--json"]) == EXIT_OK
    document = json.loads(capsys.readouterr().out)
    assert document["source"] == "log" and document["sizes"][0]["M"] == 16
    assert [remark["line"] for remark in document["remarks"]] == [4, 5]
    assert main(["sizes", "--from", str(tmp_path / "none")]) == EXIT_INPUT
    assert main(["sizes", "--from", str(DATA / "vllm.log"), "--format", "csv"]) == EXIT_INPUT
    assert main(["sizes", "--from", str(DATA / "vllm.log"), "--m", "0"]) == EXIT_INPUT
    assert main(["sizes"]) == EXIT_INPUT
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4 and "--from" in lines[3]
