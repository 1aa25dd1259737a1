"""--kernel_from: a server's kernel is taken from the text of a file, which is never imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from consumer_sources import SGLANG, VLLM, write_source

from gemm_tuner.cli import main as cli
from gemm_tuner.consumers import consumer_kernel
from gemm_tuner.core.errors import UserError


def test_the_kernel_and_what_it_uses_are_taken_without_an_import(tmp_path: Path) -> None:
    kernel = consumer_kernel.read("vllm", write_source(tmp_path / "fp8_utils.py"))
    assert (kernel.family, kernel.function, kernel.file) == ("vllm_block_fp8", VLLM, "fp8_utils.py")
    assert kernel.arguments == (*consumer_kernel.ARGUMENTS, *consumer_kernel.CONSTANTS)
    assert "def scaled(" in kernel.helpers and "ZERO" in kernel.helpers
    for other in ("raise", "of_others", "UNUSED", "import"):
        assert other not in kernel.helpers + kernel.text


def test_the_hash_follows_what_is_taken_and_nothing_else(tmp_path: Path) -> None:
    def sha(**replaced: str) -> str:
        return consumer_kernel.read("vllm", write_source(tmp_path / "a.py", **replaced)).sha

    first = sha()
    assert sha(old="return x + UNUSED", new="return x") == first
    assert sha(old="return part * of_rows", new="return 2 * part * of_rows") != first
    assert sha(old="tl.constexpr(0.0)", new="tl.constexpr(1.0)") != first
    assert sha(old="(rows[:, None] < M) & (columns", new="(rows[:, None] <= M) & (columns") != first


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("stride_am, stride_ak", "stride_a, stride_ak", ("lacks stride_am", "has stride_a")),
        ("GROUP_SIZE_M: tl.constexpr,", "GROUP_SIZE_M,", ("lacks GROUP_SIZE_M", "has GROUP_SIZE_M")),
        ("GROUP_SIZE_M: tl.constexpr,", "GROUP_SIZE_M: tl.constexpr, SWAP_AB: tl.constexpr,", ("has SWAP_AB",)),
        ("group_n, group_k,\n", "group_n,\n", ("lacks group_k",)),
        ("stride_As_m, stride_As_k, stride_Bs_k,", "*more,", ("arguments",)),
        ("@triton.jit\ndef _w8a8", "@triton.autotune([])\n@triton.jit\ndef _w8a8", ("decorated",)),
        ("@triton.jit\ndef scaled", "def scaled", ("scaled",)),
        ("ZERO: tl.constexpr = tl.constexpr(0.0)", "ZERO = zero()", ("ZERO",)),
        ("def _w8a8", "def another_w8a8", ("no kernel of vllm", VLLM)),
        ("class Server:", "class:", ("no Python",)),
    ],
)
def test_another_version_is_refused_by_file_and_name(
    old: str, new: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    path = write_source(tmp_path / "fp8_utils.py", old=old, new=new)
    with pytest.raises(UserError) as caught:
        consumer_kernel.read("vllm", path)
    assert all(word in caught.value.one_line() for word in (*words, str(path)))


def test_a_kernel_that_is_not_in_triton_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="aiter"):
        consumer_kernel.read("aiter", write_source(tmp_path / "a.py"))


def test_a_kernel_that_takes_a_flag_for_ragged_k_gets_it(tmp_path: Path) -> None:
    path = write_source(tmp_path / "a.py", SGLANG, "needs_masking: tl.constexpr,")
    assert consumer_kernel.read("sglang", path).arguments[-1] == "needs_masking"


def test_an_installed_package_is_searched(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "sglang"
    (package / "other").mkdir(parents=True)
    (package / "other" / "calls.py").write_text(f"{SGLANG}(1)\n")
    with pytest.raises(UserError, match="no kernel of sglang"):
        consumer_kernel.read("sglang", package)
    moved = write_source(package / "other" / "moved.py", SGLANG)
    assert consumer_kernel.find("sglang", package) == consumer_kernel.find("sglang", package.parent) == moved
    write_source(package / "other" / "copy.py", SGLANG)
    with pytest.raises(UserError, match="2 files"):
        consumer_kernel.find("sglang", package)
    usual = write_source(package / "srt" / "layers" / "quantization" / "fp8_kernel.py", SGLANG)
    assert consumer_kernel.find("sglang", package) == consumer_kernel.find("sglang", package.parent) == usual


def test_each_server_gets_its_kernel(tmp_path: Path) -> None:
    one, other = write_source(tmp_path / "a=1.py"), write_source(tmp_path / "b.py", SGLANG)
    assert list(cli.kernels_of([str(one)], ("vllm",))) == ["vllm"]
    both = cli.kernels_of([f"sglang={other}", f"vllm={one}"], ("vllm", "sglang"))
    assert {name: kernel.file for name, kernel in both.items()} == {"sglang": "b.py", "vllm": "a=1.py"}
    refused: list[tuple[list[str], Any]] = [
        ([str(one)], ()), ([str(one)], ("vllm", "sglang")), ([f"vllm={one}"], ("sglang",)), ([str(one)] * 2, ("vllm",)),
    ]  # fmt: skip
    for asked, served in refused:
        with pytest.raises(UserError) as caught:
            cli.kernels_of(asked, served)
        assert caught.value.where == "--kernel_from"
