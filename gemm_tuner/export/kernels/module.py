"""``export --to module`` for a user's kernel: a Python file that selects the configuration of a case and launches
it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.core.errors import UserError
from gemm_tuner.export.assignments import assignments
from gemm_tuner.export.kernels.choose import TunedKernel
from gemm_tuner.export.offers import LeftOut, remark
from gemm_tuner.kernels.kernel_spec import LAUNCH_OPTIONS, KernelSpec
from gemm_tuner.kernels.keys import Key, text_of
from gemm_tuner.source import codegen
from gemm_tuner.system.documents import MAX_FILE_BYTES
from gemm_tuner.system.input_files import read_text

TEMPLATE = "kernel_module.py.j2"


def module_name(kernel: TunedKernel) -> str:
    return f"tuned_{kernel.spec.name}.py"


def module_text(kernel: TunedKernel, header: Mapping[str, str | int], templates: Path) -> str:
    """The module's source. header: of the results file. Raises UserError for a kernel that a host function launches."""
    if not kernel.spec.grid:
        what = f"{kernel.spec.name} is launched by a host function, which a module cannot hold"
        raise UserError(what, where="--to", accepted="json, triton, source")
    spec, cases = kernel.spec, [case for entry in kernel.entries for case in entry.cases]
    of_case = [name for name, _ in cases[0].problem.case]
    inferred = _inferred(spec, of_case)
    params = [name for name, _ in spec.params]
    values = [(name, _python(text)) for name, text in (*spec.derived, *spec.args)]
    rules = [(_python(text), f"{text.strip()} ({why})" if why else text.strip()) for text, why in spec.rules]
    grid, key = [_python(text) for text in spec.grid], [_python(text) for text in spec.key or of_case]
    texts = [*(text for _, text in values), *(text for text, _ in rules), *grid]
    uses_device = any(map(_names_device, texts))
    return (
        codegen.environment(templates)
        .get_template(TEMPLATE)
        .render(
            kernel_name=spec.kernel.name,
            source=re.sub(r"\n{4,}", "\n\n\n", spec.kernel.source).strip(),
            header=header,
            tensors=[one.name for one in spec.tensors],
            outputs=[one.name for one in spec.tensors if one.output] or ["its tensors"],
            given=[name for name in of_case if name not in dict(inferred)],
            inferred=inferred,
            dtypes={one.torch_name: key for key, one in DTYPES.items()}
            if any("DTYPES[" in v for _, v in inferred)
            else {},
            keys=", ".join(spec.key or of_case),
            key=key,
            of_case=of_case,
            case=[*of_case, *(["device"] if uses_device else [])],
            buckets=spec.buckets,
            entries=kernel.entries,
            params=params,
            values=values,
            rules=rules,
            reset=spec.reset,
            grid=grid,
            arguments=[*spec.kernel.parameters, *(name for name in params if name in LAUNCH_OPTIONS)],
            uses_device=uses_device,
            remarks=_remarks(kernel),
        )
    )


def yielding(kernel: TunedKernel, path: Path) -> list[LeftOut]:
    """All cases of a kernel whose module does not replace the file that is there; none if it does. A file with another
    entry for a key stays where the new one, or its absence, would follow from what no GPU timed or checked."""
    weak = next((entry.weakness for entry in kernel.entries if entry.weakness), "")
    if not weak or not path.is_file():
        return []
    ours, held = {entry.key: entry for entry in kernel.entries}, _held_configs(path)
    stays = {key for key, one in ours.items() if not one.weakness or one.params == held.get(key)}
    if held and held.keys() <= stays:
        return []
    why = f"{path.name} has other entries, which {weak} does not replace"
    return [one for entry in kernel.entries for one in entry.left_out(why)]


def _held_configs(path: Path) -> dict[Key, dict[str, Any]]:
    """CONFIGS of a module that is there; empty for another file."""
    text = read_text(path, "module", "Python", MAX_FILE_BYTES)
    try:
        held = ast.literal_eval(assignments(text)["CONFIGS"])
    except (SyntaxError, ValueError, KeyError):
        return {}
    return held if isinstance(held, dict) else {}


def _inferred(spec: KernelSpec, of_case: list[str]) -> list[tuple[str, str]]:
    """(name, source) of the case values that follow from the tensors."""
    found: dict[str, str] = {}
    for tensor in spec.tensors:
        for place, text in enumerate(tensor.shape):
            if text in of_case:
                found.setdefault(text, f"{tensor.name}.shape[{place}]")
        if tensor.dtype in of_case:
            found.setdefault(tensor.dtype, f'DTYPES[str({tensor.name}.dtype).removeprefix("torch.")]')
    return list(found.items())


class _Truth(ast.NodeTransformer):
    """Wraps ``and`` and ``or`` in bool(): in a spec's expressions they give true or false, in Python one of the
    sides."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.Call:
        self.generic_visit(node)
        return ast.Call(ast.Name("bool", ast.Load()), [node], [])


def _python(text: str) -> str:
    """An expression of a spec as equivalent Python source, on one line."""
    return ast.unparse(_Truth().visit(ast.parse(text.strip(), mode="eval")))


def _names_device(text: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "device" for node in ast.walk(ast.parse(text)))


def _remarks(kernel: TunedKernel) -> list[str]:
    """Remarks about keys that were not checked on a GPU against a reference, or were chosen among several cases."""
    lines: list[str] = []
    for entry in kernel.entries:
        said = "; ".join(filter(None, (remark(entry.verified), entry.note)))
        lines += [f"{text_of(entry.key)}: {said}"] if said else []
    return lines
