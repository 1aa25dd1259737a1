"""Fills ``templates/module.py.j2``: the tuned table, the configurations, the kernels, the rule's constants."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2

from gemm_tuner import codegen
from gemm_tuner.descriptors import DESCRIPTOR_FAMILIES, TMA_ARCHS
from gemm_tuner.dtypes import DTYPES
from gemm_tuner.errors import UserError
from gemm_tuner.module_export import sections
from gemm_tuner.module_export.fallback import general_configs, pointer_twin
from gemm_tuner.module_export.rows import LeftOut, Tuned
from gemm_tuner.records import UNUSED, GemmProblem, KernelConfig, Layout, Target

MODULE_TEMPLATE = "module.py.j2"
# What the template itself imports.
KNOWN_IMPORTS = (
    *("import triton", "import triton.language as tl"),
    "from triton.tools.tensor_descriptor import TensorDescriptor",
)
LAYOUT_WORDS = {Layout.ROW: "row-major", Layout.COL: "column-major"}
LAYOUT_LETTERS = {Layout.ROW: "n", Layout.COL: "t"}
# Programs a multiprocessor beyond which K is not split; partial sums of tiles of 128 x 128 then take 69 MB on an H200.
MOST_WAVES = 8
# Powers of two: a tuned size that is farther away says less than a plain tile.
GENERAL_DISTANCE = 8
# Rows, columns and blocks are counted in 32 bits, up to a tile beyond the last.
LARGEST_SIDE = 2**30


@dataclass(frozen=True)
class _Kind:
    """A class of plain products, by types and layouts, with its tuned sizes and what takes all other sizes."""

    product: GemmProblem
    tuned: tuple[Tuned, ...]
    general: tuple[KernelConfig, ...]

    @property
    def families(self) -> list[str]:
        """Those of its configurations, and that of general ones and pointer twins."""
        return list(dict.fromkeys((*(one.config.family for one in self.tuned), "gemm_tile")))


def rendered(
    templates: Path,
    tuned: tuple[Tuned, ...],
    left_out: tuple[LeftOut, ...],
    header: dict[str, str | int],
    target: Target,
) -> str:
    """The module's text. Raises UserError for a template that is missing or does not render."""
    kinds = [
        _Kind(product, tuple(one for one in tuned if one.product == product), general_configs(product, target))
        for product in dict.fromkeys(one.product for one in tuned)
    ]
    twins = {one.config: twin for one in tuned if (twin := pointer_twin(one.problem, one.config, target)) is not None}
    space = sections.merge(_sections(templates, kinds, target))
    general = (config for kind in kinds for config in kind.general)
    configs = dict.fromkeys((*(one.config for one in tuned), *twins.values(), *general))
    source = header.get("source", "unknown")
    fields: dict[str, Any] = {
        "about": {key: _plain(header.get(key) or "unknown") for key in ("device", "date", "triton", "torch")},
        "header": {"arch": target.arch, "num_sms": 0, **header},
        "num_sizes": len(tuned),
        "kinds": [_kind_fields(kind) for kind in kinds],
        "time_meaning": f"us, {_plain(source)}",
        "unused": UNUSED,
        "configs": {config.name: _config_fields(config) for config in configs},
        "twins": {config.name: twin.name for config, twin in twins.items()},
        "functions": _functions(kinds, space),
        "left_out": _left_out_lines(left_out),
        "descriptor_families": DESCRIPTOR_FAMILIES if target.arch in TMA_ARCHS else (),
        "most_waves": MOST_WAVES,
        "general_distance": GENERAL_DISTANCE,
        "largest_side": LARGEST_SIDE,
    }
    # Operators of one process share a name space: two modules must not share a name.
    sha = hashlib.sha256(repr((fields, space.text)).encode()).hexdigest()
    imports = [line for line in space.imports if line not in KNOWN_IMPORTS]
    fields |= {"imports": imports, "kernels": space.text.rstrip(), "namespace": f"gemm_tuned_{sha[:12]}"}
    try:
        return codegen.environment(templates).get_template(MODULE_TEMPLATE).render(fields)
    except jinja2.TemplateError as error:
        what = f"{MODULE_TEMPLATE} does not render: {error}"
        raise UserError(what, where=str(templates), hint="mend the template") from error


def _with_bias(product: GemmProblem, bias: bool) -> GemmProblem:
    return replace(product, bias=bias)


def _sections(templates: Path, kinds: list[_Kind], target: Target) -> list[sections.Section]:
    """The script of every family of every class, without and with a bias."""
    return [
        sections.Section(family, problem.class_key, codegen.render(templates, family, problem, (), target, ""))
        for kind in kinds
        for bias in (False, True)
        for family in kind.families
        for problem in (_with_bias(kind.product, bias),)
    ]


def _functions(kinds: list[_Kind], space: sections.Namespace) -> dict[tuple[str, str, bool], list[str]]:
    """(family, class, bias) -> names of its calls and scratch."""
    return {
        (family, kind.product.class_key, bias): [
            space.names[family, _with_bias(kind.product, bias).class_key, root] for root in sections.ROOTS
        ]
        for kind in kinds
        for bias in (False, True)
        for family in kind.families
    }


def _kind_fields(kind: _Kind) -> dict[str, Any]:
    product = kind.product
    torch_types = [f"torch.{DTYPES[d].torch_name}" for d in (product.dtype_a, product.dtype_b, product.dtype_c)]
    layouts = (product.layout_a, product.layout_b)
    return {
        "key": product.class_key,
        "letters": tuple(LAYOUT_LETTERS[layout] for layout in layouts),
        "types": torch_types,
        "taken": f"a {torch_types[0]}, {LAYOUT_WORDS[layouts[0]]}; b {torch_types[1]}, {LAYOUT_WORDS[layouts[1]]}; "
        f"result {torch_types[2]}" + (", multiplied in tf32" if product.precision == "tf32" else ""),
        "rows": [
            (one.problem.m, one.problem.n, one.problem.k, one.problem.bias, one.config.name, one.time_us)
            for one in kind.tuned
        ],
        "general": tuple(config.name for config in kind.general),
    }


def _config_fields(config: KernelConfig) -> str:
    """The inside of a mapping literal: the kernel's symbol, the family and the fields that it uses."""
    fields = {"binary": config.binary_name, "family": config.family, **config.options()}
    return ", ".join(f'"{key}": {value!r}' for key, value in fields.items())


def _left_out_lines(left_out: tuple[LeftOut, ...]) -> list[str]:
    """One line a reason, with how many sizes it is for."""
    counts = Counter(_plain(one.reason) for one in left_out)
    return [f"{count} {'size' if count == 1 else 'sizes'}: {reason}" for reason, count in counts.items()]


def _plain(text: object) -> str:
    """A text of the results file as a docstring can hold it: one line, without quotes and backslashes."""
    kept = "".join(char if char.isprintable() else " " for char in str(text))
    return kept.replace("\\", "/").replace('"', "'")[:200]
