"""Generates the scripts with the kernels: one per kernel family and problem signature."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import jinja2

from gemm_tuner.consumers.consumer_kernel import ConsumerKernel
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.language import language_of
from gemm_tuner.core.records import Config, Problem, Target
from gemm_tuner.core.script import Script, text_sha
from gemm_tuner.core.workload import workload_of
from gemm_tuner.system.documents import show, write_text_atomically

SCRIPT_TEMPLATE = "script.py.j2"
CONSUMER_TEMPLATE = "block_fp8.py.j2"  # wraps a server's own kernel


@functools.lru_cache(maxsize=8)
def environment(template_dir: Path, of_kind: Path | None = None) -> jinja2.Environment:
    """The Jinja environment. StrictUndefined makes a misspelt name in a template an error instead of empty text."""
    if not (template_dir / SCRIPT_TEMPLATE).is_file():
        raise UserError(
            f"has no {SCRIPT_TEMPLATE}",
            where=str(template_dir),
            accepted="a folder like the project's templates/",
            hint="check --templates",
        )
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder for folder in (template_dir, of_kind) if folder is not None]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    env.filters["python"] = repr
    env.filters |= {"json": json.dumps, "is_json": is_json}  # JSON has no triple quotes
    return env


def is_json(values: Sequence[object]) -> bool:
    """Whether JSON has all these values, and returns each as it was: a tuple would be a list."""
    return all(type(value) in (str, int, float, bool, type(None)) for value in values)


def render(
    template_dir: Path,
    family: str,
    problem: Problem,
    configs: Iterable[Config],
    target: Target,
    kernel: ConsumerKernel | None = None,
) -> str:
    """The text of a script. It contains no paths, so equal arguments give equal bytes on every machine.

    kernel: the server's kernel, for the family of a server's own kernel.
    Raises UserError for a template that is missing, does not parse, or uses an undefined name.
    """
    workload = workload_of(problem.kind)
    values, language = workload.template_values(problem, tuple(configs)), workload.language_for(family)
    try:
        template = environment(template_dir, workload.templates_dir).get_template(SCRIPT_TEMPLATE)
        return template.render(
            {"body": CONSUMER_TEMPLATE if kernel else f"{family}.py.j2", **values},
            family=family,
            kernel=kernel,
            head=f"head_{language}.j2",
            launch_options=language_of(language).launch_options(target),
            has_tma=target.facts.tma,
            warp_size=target.warp_size,
            arch=target.arch,
        )
    except jinja2.TemplateNotFound as error:
        what, accepted = f"family {show(family)} is not known", "one that has a template in this folder"
        if error.name != f"{family}.py.j2":
            what, accepted = f"the template of {family} needs {error.name}, which is not there", ""
        raise UserError(what, where=str(template_dir), accepted=accepted, hint="check --templates") from error
    except jinja2.TemplateError as error:
        raise UserError(
            f"the template of {family} does not render: {error}", where=str(template_dir), hint="mend the template"
        ) from error


def write_script(
    template_dir: Path,
    out_dir: Path,
    family: str,
    problem: Problem,
    configs: Iterable[Config],
    target: Target,
    kernel: ConsumerKernel | None = None,
) -> Script:
    """Renders a script and writes its file into ``out_dir``.

    Triton's cache key contains the text and first line number of a kernel but not its file name, so the same kernel in
    the script of a later run is a cache hit.
    """
    text = render(template_dir, family, problem, configs, target, kernel)
    own_sha = kernel_sha(template_dir, family, problem, target, kernel)
    language = workload_of(problem.kind).language_for(family)
    script = Script(f"{family}_{problem.signature}", text_sha(text), own_sha, language)
    write_text_atomically(out_dir / script.file, text)
    return script


def kernel_sha(
    template_dir: Path, family: str, problem: Problem, target: Target, kernel: ConsumerKernel | None = None
) -> str:
    """``Script.kernel_sha``: the hash of the script without its configurations."""
    return text_sha(render(template_dir, family, problem, (), target, kernel))
