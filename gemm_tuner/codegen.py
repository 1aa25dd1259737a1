"""Writes the scripts that hold the kernels: one a kernel family and problem class."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from gemm_tuner.documents import write_text_atomically
from gemm_tuner.dtypes import DTYPES
from gemm_tuner.errors import UserError
from gemm_tuner.records import CONFIG_FIELDS, GemmProblem, KernelConfig

SCRIPT_TEMPLATE = "script.py.j2"
LAUNCH_OPTIONS = {
    "cuda": ("num_warps", "num_stages"),
    "hip": ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack"),
}


@dataclass(frozen=True, slots=True)
class Script:
    """A generated script. ``kernel_sha`` changes when the kernels' code does, not with the configs."""

    path: Path
    family: str
    class_key: str
    kernel_sha: str


def environment(template_dir: Path) -> jinja2.Environment:
    """StrictUndefined, so that a misspelt name in a template is an error and not empty text."""
    if not (template_dir / SCRIPT_TEMPLATE).is_file():
        raise UserError(
            f"has no {SCRIPT_TEMPLATE}",
            where=str(template_dir),
            accepted="a folder like the project's templates/",
            hint="check --templates",
        )
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template_dir),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    env.filters["python"] = repr
    return env


def render(
    template_dir: Path,
    family: str,
    problem_class: GemmProblem,
    configs: Iterable[KernelConfig],
    backend: str,
    package_root: str,
) -> str:
    """The script's text. Raises UserError for a template that is missing, misspelt or does not parse."""
    rows = [(c.name, *(getattr(c, field) for field in CONFIG_FIELDS)) for c in configs]
    try:
        template = environment(template_dir).get_template(SCRIPT_TEMPLATE)
        return template.render(
            family=family,
            problem_class=problem_class,
            configs=rows,
            fields=("name", *CONFIG_FIELDS),
            launch_options=LAUNCH_OPTIONS[backend],
            package_root=package_root,
        )
    except jinja2.TemplateError as error:
        raise UserError(
            f"the template of {family} does not render: {error}", where=str(template_dir), hint="mend the template"
        ) from error


def write_script(
    template_dir: Path,
    out_dir: Path,
    family: str,
    problem: GemmProblem,
    configs: Iterable[KernelConfig],
    backend: str,
) -> Script:
    """Renders and writes ``out_dir/<family>_<class>.py``.

    The kernel's start line and text are part of Triton's cache key, its file name is not: the
    same kernel in the script of a later run is found in the cache.
    """
    problem_class = as_class(problem)
    root = str(Path(__file__).resolve().parent.parent)
    text = render(template_dir, family, problem_class, configs, backend, root)
    path = out_dir / f"{family}_{problem.class_key}.py"
    write_text_atomically(path, text)
    return Script(path, family, problem.class_key, kernel_sha(template_dir, family, problem_class, backend))


def kernel_sha(template_dir: Path, family: str, problem_class: GemmProblem, backend: str) -> str:
    """12 hex digits over the script without its configurations."""
    text = render(template_dir, family, as_class(problem_class), (), backend, "")
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def as_class(problem: GemmProblem) -> GemmProblem:
    """The problem with its sizes blanked: what the kernel's text may depend on."""
    row: dict[str, Any] = problem.to_dict()
    return GemmProblem.from_dict({**row, "m": 0, "n": 0, "k": 0})


def specialisation(problem: GemmProblem, config: KernelConfig) -> str:
    """Names the binary that a size needs of a configuration; equal names share one compile.

    Triton compiles one kernel for integer arguments that are 1, divisible by 16, or neither, and for
    those of 32 or 64 bits; on AMD one for tensors of up to 2 GiB and one for larger ones. The family's
    EVEN_K, WIDE and BY_8 add their two cases. M is passed unspecialised when A is row-major.
    The name may split finer than Triton does (a cache hit then), never coarser.
    """
    m, n, k = problem.m, problem.n, problem.k

    def divisibility(value: int) -> str:
        return "1" if value == 1 else "d" if value % 16 == 0 else "8" if value % 8 == 0 else "x"

    m_class = divisibility(m) if problem.layout_a == "col" else "-"
    numel_class = divisibility(m * n) + ("l" if m * n >= 2**31 else "") if config.SPLIT_K > 1 else "-"
    even_k = k % (config.BLOCK_SIZE_K * config.SPLIT_K) == 0
    largest = max((m + 256) * (k + 256), (k + 256) * (n + 256), (m + 256) * (n + 256))
    width = "w" if largest >= 2**31 else "s"
    size_a, size_b, size_c = (DTYPES[d].size_bytes for d in (problem.dtype_a, problem.dtype_b, problem.dtype_c))
    partial_sums_bytes = m * n * 4 * config.SPLIT_K if config.SPLIT_K > 1 else 0
    extents_bytes = {"a": m * k * size_a, "b": k * n * size_b, "c": m * n * size_c, "p": partial_sums_bytes}
    beyond_2_gib = "".join(tensor for tensor, extent in extents_bytes.items() if extent >= 2**31)
    classes = f"m{m_class}n{divisibility(n)}k{divisibility(k)}c{numel_class}{'e' if even_k else 'o'}{width}"
    return classes + (f"_{beyond_2_gib}" if beyond_2_gib else "")
