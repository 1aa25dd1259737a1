"""Renders ``templates/module.py.j2``: the table of tuned sizes, the configurations, the kernels, and constants."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Target
from gemm_tuner.export.gemm.module import cute, sections
from gemm_tuner.export.gemm.module.fallback import general_configs, pointer_fallback
from gemm_tuner.export.gemm.module.rows import Tuned, default_outputs, with_bias_toggled
from gemm_tuner.export.offers import LeftOut
from gemm_tuner.gemm.config import UNUSED, KernelConfig
from gemm_tuner.gemm.families.family import names_of
from gemm_tuner.gemm.problem import ACTIVATIONS, SCALE_BLOCK, GemmProblem, Layout
from gemm_tuner.source import codegen

MODULE_TEMPLATE = "module.py.j2"
# The imports of the template itself.
KNOWN_IMPORTS = (
    *("import triton", "import triton.language as tl"),
    "from triton.tools.tensor_descriptor import TensorDescriptor",
)
LAYOUT_WORDS = {Layout.ROW: "row-major", Layout.COL: "column-major"}
LAYOUT_LETTERS = {Layout.ROW: "n", Layout.COL: "t"}
# K is not split if there are more programs per multiprocessor than this. It limits the partial sums of 128 x 128 tiles
# to 69 MB on an H200.
MOST_WAVES = 8
# A size farther than this from all tuned sizes, in factors of two, uses a general tile.
GENERAL_DISTANCE = 8
# Rows, columns and blocks are 32-bit integers, up to one tile beyond the end.
LARGEST_SIDE = 2**30


@dataclass(frozen=True)
class _Kind:
    """A signature of products without epilogue (types, layouts, scales, batch), its tuned sizes, and configurations for
    other sizes."""

    product: GemmProblem
    tuned: tuple[Tuned, ...]
    general: tuple[KernelConfig, ...]

    @property
    def families(self) -> list[str]:
        """The families of its tuned, general and fallback configurations."""
        return list(dict.fromkeys((*(one.config.family for one in self.tuned), "gemm_tile")))

    @property
    def epilogues(self) -> list[str]:
        """The tuned epilogues, each with and without a bias."""
        tuned = [one.epilogue for one in self.tuned]
        return list(dict.fromkeys(name for one in tuned for name in (one, with_bias_toggled(one))))

    def problem(self, epilogue: str) -> GemmProblem:
        """The product with an epilogue."""
        parts = epilogue.split("_")
        activation = next((part for part in parts if part in ACTIVATIONS), "none")
        alpha, beta = 2.0 if "alpha" in parts else 1.0, 1.0 if "beta" in parts else 0.0
        return replace(self.product, bias="bias" in parts, activation=activation, alpha=alpha, beta=beta)


def rendered(
    templates: Path,
    tuned: tuple[Tuned, ...],
    left_out: tuple[LeftOut, ...],
    header: dict[str, str | int],
    target: Target,
    folder: str = "",
) -> str:
    """The module's text. header: of the rows in ``tuned``. folder: the name of that of its kernels in CuTe DSL.

    Raises UserError for a template that is missing or does not render.
    """
    kinds = [
        _Kind(product, tuple(one for one in tuned if one.product == product), general_configs(product, target))
        for product in dict.fromkeys(one.product for one in tuned)
    ]
    fallbacks = {
        one.config: found for one in tuned if (found := pointer_fallback(one.problem, one.config, target)) is not None
    }
    space = sections.merge([*_sections(templates, kinds, target), *cute.sections_of(templates, tuned, target)])
    general = (config for kind in kinds for config in kind.general)
    configs = dict.fromkeys((*(one.config for one in tuned), *fallbacks.values(), *general))
    predicted = [one.problem.key for one in tuned if one.source == "predicted"]
    fields: dict[str, Any] = {
        "about": {key: _plain(header.get(key) or "unknown") for key in ("device", "date", "triton", "torch")},
        "predicted": predicted,
        "num_timed": len(tuned) - len(predicted),
        "header": {"arch": target.arch, "num_sms": 0, **header},
        "num_sizes": len(tuned),
        "kinds": [_kind_fields(kind) for kind in kinds],
        "sources": list(dict.fromkeys(_plain(one.source or "unknown") for one in tuned)),
        "unused": UNUSED,
        "configs": {config.name: _config_fields(config) for config in configs},
        "twins": {config.name: fallback.name for config, fallback in fallbacks.items()},
        "functions": _functions(kinds, space),
        "defaults": _defaults(tuned),
        "scale_block": SCALE_BLOCK,
        "left_out": _left_out_lines(left_out),
        "remarks": _remark_lines(tuned),
        "descriptor_families": names_of(lambda family: family.by_descriptors) if target.facts.tma else (),
        "packing_families": names_of(lambda f: f.packs and f.language == "triton") if target.facts.tma else (),
        "most_waves": MOST_WAVES,
        "general_distance": GENERAL_DISTANCE,
        "largest_side": LARGEST_SIDE,
        "cute": cute.fields(tuned, space, folder, _config_fields),
    }
    # All torch operators of a process share a namespace, so every module needs its own operator names.
    sha = hashlib.sha256(repr((fields, space.text)).encode()).hexdigest()
    imports = [line for line in space.imports if line not in KNOWN_IMPORTS]
    fields |= {"imports": imports, "kernels": space.text.rstrip(), "namespace": f"gemm_tuned_{sha[:12]}"}
    try:
        return codegen.environment(templates).get_template(MODULE_TEMPLATE).render(fields)
    except jinja2.TemplateError as error:
        what = f"{MODULE_TEMPLATE} does not render: {error}"
        raise UserError(what, where=str(templates), hint="mend the template") from error


def _sections(templates: Path, kinds: list[_Kind], target: Target) -> list[sections.Section]:
    """The script of every family for every signature and epilogue."""
    return [
        sections.Section(family, problem.signature, codegen.render(templates, family, problem, (), target))
        for kind in kinds
        for epilogue in kind.epilogues
        for family in kind.families
        for problem in (kind.problem(epilogue),)
    ]


def _functions(kinds: list[_Kind], space: sections.Namespace) -> dict[tuple[str, str, str], list[str]]:
    """(family, signature, epilogue) -> names of its ``calls`` and ``scratch`` functions."""
    return {
        (family, kind.product.signature, epilogue): [
            space.names[family, kind.problem(epilogue).signature, root] for root in sections.ROOTS
        ]
        for kind in kinds
        for epilogue in kind.epilogues
        for family in kind.families
    }


def _defaults(tuned: tuple[Tuned, ...]) -> dict[tuple[str, str], tuple[str, str]]:
    """``default_outputs`` with types as the module writes them."""
    return {
        (_torch_type(dtype_a), _torch_type(dtype_b)): (_torch_type(dtype_c), precision)
        for (dtype_a, dtype_b), (dtype_c, precision) in default_outputs(tuned).items()
    }


def _torch_type(dtype: str) -> str:
    return f"torch.{DTYPES[dtype].torch_name}"


def _kind_fields(kind: _Kind) -> dict[str, Any]:
    product = kind.product
    torch_types = [_torch_type(dtype) for dtype in (product.dtype_a, product.dtype_b, product.dtype_c)]
    layouts = (product.layout_a, product.layout_b)
    return {
        "key": product.signature,
        "letters": tuple(LAYOUT_LETTERS[layout] for layout in layouts),
        "types": torch_types,
        "scaling": product.scaling,
        "precision": product.precision,
        "batched": product.batch > 1,
        "taken": _taken(product, torch_types, [LAYOUT_WORDS[layout] for layout in layouts]),
        "epilogues": kind.epilogues,
        "rows": [_row(one) for one in kind.tuned],
        "general": tuple(config.name for config in kind.general),
    }


def _row(one: Tuned) -> tuple[tuple[int | float | str | None, ...], str]:
    """A line of TUNED, and the source of its time."""
    problem = one.problem
    sizes = (problem.m, problem.n, problem.k, problem.batch)
    return (*sizes, one.epilogue, one.config.name, one.time_us), _plain(one.source or "unknown")


def _taken(product: GemmProblem, torch_types: list[str], layouts: list[str]) -> str:
    """One line that describes the operands of a product."""
    text = f"a {torch_types[0]}, {layouts[0]}; b {torch_types[1]}, {layouts[1]}; result {torch_types[2]}"
    scales = {"none": "", "tensor": "one scale each", "row_col": "a scale a row of a and a column of b"}
    block = f"a scale for 1 x {SCALE_BLOCK} of a and {SCALE_BLOCK} x {SCALE_BLOCK} of b"
    more = {
        "multiplied in tf32": product.precision == "tf32",
        scales.get(product.scaling, block): product.scaling != "none",
        "batched": product.batch > 1,
    }
    return ", ".join([text, *(words for words, there in more.items() if there)])


def _config_fields(config: KernelConfig) -> str:
    """The content of a dict literal: the kernel's symbol, the family and the fields that it uses."""
    fields = {"binary": config.kernel_symbol, "family": config.family, **config.options()}
    return ", ".join(f'"{key}": {value!r}' for key, value in fields.items())


def _left_out_lines(left_out: tuple[LeftOut, ...]) -> list[str]:
    """One line for each reason, with the number of sizes."""
    counts = Counter(_plain(one.reason) for one in left_out)
    return [f"{count} {'size' if count == 1 else 'sizes'}: {reason}" for reason, count in counts.items()]


def _remark_lines(tuned: tuple[Tuned, ...]) -> list[str]:
    """One line for each size that was not checked on a GPU."""
    return [f"{one.problem.key}: {one.remark}" for one in tuned if one.remark]


def _plain(text: object) -> str:
    """A text of the results file made safe for a docstring: one line, without quotes and backslashes."""
    kept = "".join(char if char.isprintable() else " " for char in str(text))
    return kept.replace("\\", "/").replace('"', "'")[:200]
