"""Writes the scripts that hold the kernels: one a kernel family and problem class."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import jinja2

from gemm_tuner.consumers.consumer_kernel import ConsumerKernel
from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import CONFIG_FIELDS, KernelConfig, Target
from gemm_tuner.gemm.descriptors import loads_by_descriptor
from gemm_tuner.gemm.problem import SCALE_BLOCK, GemmProblem
from gemm_tuner.system.documents import write_text_atomically

SCRIPT_TEMPLATE = "script.py.j2"
CONSUMER_TEMPLATE = "block_fp8.py.j2"  # around a server's own kernel
LAUNCH_OPTIONS = {
    "cuda": ("num_warps", "num_stages"),
    "hip": ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack"),
}


@dataclass(frozen=True, slots=True)
class Script:
    """A generated script. ``kernel_sha`` changes when the kernels' code does, not with the configs."""

    path: Path
    family: str
    signature: str
    kernel_sha: str


@functools.lru_cache(maxsize=8)
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
    target: Target,
    kernel: ConsumerKernel | None = None,
) -> str:
    """The script's text, which names no path: equal arguments give equal bytes on every machine. kernel: the server's
    own, of a family that is one.

    Raises UserError for a template that is missing, misspelt or does not parse.
    """
    rows = [(c.name, c.kernel_symbol, *(getattr(c, field) for field in CONFIG_FIELDS)) for c in configs]
    try:
        template = environment(template_dir).get_template(SCRIPT_TEMPLATE)
        return template.render(
            family=family,
            body=CONSUMER_TEMPLATE if kernel else f"{family}.py.j2",
            kernel=kernel,
            p=problem_class,
            configs=rows,
            fields=("name", "binary", *CONFIG_FIELDS),
            launch_options=LAUNCH_OPTIONS[target.backend],
            has_tma=target.facts.tma,
            scale_block=SCALE_BLOCK,
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
    target: Target,
    kernel: ConsumerKernel | None = None,
) -> Script:
    """Renders and writes ``out_dir/<family>_<class>.py``.

    The kernel's start line and text are part of Triton's cache key, its file name is not: the
    same kernel in the script of a later run is found in the cache.
    """
    problem_class = problem.as_class()
    text = render(template_dir, family, problem_class, configs, target, kernel)
    path = out_dir / f"{family}_{problem.signature}.py"
    write_text_atomically(path, text)
    return Script(path, family, problem.signature, kernel_sha(template_dir, family, problem_class, target, kernel))


def kernel_sha(
    template_dir: Path, family: str, problem: GemmProblem, target: Target, kernel: ConsumerKernel | None = None
) -> str:
    """12 hex digits over the script without its configurations."""
    text = render(template_dir, family, problem.as_class(), (), target, kernel)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def specialization(problem: GemmProblem, config: KernelConfig, target: Target) -> str:
    """Names the binary that a size needs of a configuration; equal names share one compile.

    Kernels that load through descriptors take no size as a specialised argument: all sizes share one. For others
    Triton compiles one kernel for integer arguments that are 1, divisible by 16, or neither, and for those of 32 or
    64 bits; on AMD one for tensors of up to 2 GiB and one for larger ones. The flags EVEN_K, WIDE and BY_8 add their
    two cases. The name may split finer than Triton does (a cache hit then), never coarser.
    """
    if loads_by_descriptor(config.family, target):
        return "d"
    m, n, k, batch = problem.m, problem.n, problem.k, problem.batch

    def divisibility(value: int) -> str:
        return "1" if value == 1 else "d" if value % 16 == 0 else "8" if value % 8 == 0 else "x"

    unspecialised_m = config.family == "gemm_tile" and problem.layout_a == "row"
    m_class = "-" if unspecialised_m else divisibility(m)
    numel = batch * m * n
    numel_class = divisibility(numel) + ("l" if numel >= 2**31 else "") if config.SPLIT_K > 1 else "-"
    even = "".join("e" if k % (config.BLOCK_SIZE_K * slices) == 0 else "o" for slices in (1, config.SPLIT_K))
    largest = max((m + 256) * (k + 256), (k + 256) * (n + 256), (m + 256) * (n + 256))
    width = "w" if largest >= 2**31 else "s"
    # Servers' own kernels take the blocks of scales of a row as a stride, too.
    scales = f"s{divisibility(-(-k // SCALE_BLOCK))}" if config.is_of_a_server else ""
    small_side = ("a" if m <= n else "b") if config.family == "gemv" else ""
    large = "".join(name for name, extent in extents_bytes(problem, config).items() if extent >= 2**31)
    classes = f"m{m_class}n{divisibility(n)}k{divisibility(k)}c{numel_class}{scales}{even}{width}{small_side}"
    return classes + (f"_{large}" if large else "")


def extents_bytes(problem: GemmProblem, config: KernelConfig) -> dict[str, int]:
    """Bytes of each tensor of a call, by a letter: a, b, c and p, the partial sums, at most."""
    m, n, k, batch = problem.m, problem.n, problem.k, problem.batch
    size_a, size_b, size_c = (DTYPES[d].size_bytes for d in (problem.dtype_a, problem.dtype_b, problem.dtype_c))
    padded = -(-m // config.BLOCK_SIZE_M) * config.BLOCK_SIZE_M * -(-n // config.BLOCK_SIZE_N) * config.BLOCK_SIZE_N
    sums = padded if config.family == "gemm_split_k" else m * n
    partial = batch * sums * 4 * config.SPLIT_K if config.SPLIT_K > 1 else 0
    return {"a": batch * m * k * size_a, "b": batch * k * n * size_b, "c": batch * m * n * size_c, "p": partial}
