"""Templates whose kernels leave out one product of every sum: that of k = ``DROPPED[0]`` of the generated script."""

from __future__ import annotations

import shutil
from pathlib import Path

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
HELPER = """DROPPED = [-1.0]


@triton.jit
def without(values, terms, dropped):
    return tl.where(terms != dropped, values, tl.zeros_like(values))


{% include body"""
TERMS_OF_BLOCK = "(offs_k + block * k_step)[None, :]"
# By file: what is replaced by what. The kernels and their epilogue get one more parameter, a float, which changes no
# specialization; what they load of A (of w in gemv) is zero at that k.
CHANGES = {
    "_macros.j2": (
        ('{% macro extras(p) -%}\n{{ "bias_ptr', '{% macro extras(p) -%}\ndropped, {{ "bias_ptr'),
        ('extra_arguments(p) -%}\n{{ "operands.bias', 'extra_arguments(p) -%}\nDROPPED[0], {{ "operands.bias'),
        ("a = tl.load(a_ptrs)\n", f"a = without(tl.load(a_ptrs), {TERMS_OF_BLOCK}, dropped)\n"),
        (
            "a = tl.load(a_ptrs, mask=offs_k[None, :] < k_left, other=0.0)\n",
            f"a = without(tl.load(a_ptrs, mask=offs_k[None, :] < k_left, other=0.0), {TERMS_OF_BLOCK}, dropped)\n",
        ),
        (
            'a = {{ load_by_descriptor("a", p.layout_a, row, "k") }}\n',
            'a = {{ load_by_descriptor("a", p.layout_a, row, "k") }}\n'
            "a = without(a, (k + tl.arange(0, BLOCK_SIZE_K))[None, :], dropped)\n",
        ),
    ),
    "gemv.py.j2": (
        (
            "        inside_k = offs_k < K - block * (BLOCK_SIZE_K * SPLIT_K)\n",
            "        inside_k = offs_k < K - block * (BLOCK_SIZE_K * SPLIT_K)\n"
            "        terms = (offs_k + block * (BLOCK_SIZE_K * SPLIT_K))[None, :]\n",
        ),
        ("sum_{{ row }} += w * row_of", "sum_{{ row }} += without(w, terms, dropped) * row_of"),
    ),
    "script.py.j2": (("{% include body", HELPER),),
}


def dropping_templates(folder: Path) -> Path:
    """A copy of the templates in a new folder, changed."""
    shutil.copytree(TEMPLATES, folder)
    for name, changes in CHANGES.items():
        text = (folder / name).read_text(encoding="utf-8")
        for right, wrong in changes:
            assert text.count(right) == 1, f"{name} has {right!r} {text.count(right)} times"
            text = text.replace(right, wrong)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def terms_to_drop(k: int, block_k: int, slices: int = 1) -> list[int]:
    """The first, one in the middle, the last, and the first of every block of K and of every slice, in order."""
    boundaries = {*range(0, k, block_k), *(k * each // slices for each in range(slices))}
    return sorted({0, k // 2 + 1, k - 1, *boundaries} & set(range(k)))
