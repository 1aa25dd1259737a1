"""``export --to source``: the decorator that bakes a tuned configuration into the user's own source."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from gemm_tuner.export.kernels.choose import Entry, TunedKernel
from gemm_tuner.export.kernels.files import config_text
from gemm_tuner.export.kernels.launched import launched
from gemm_tuner.hosts.host_spec import HostSpec
from gemm_tuner.kernels.kernel_spec import KernelSpec
from gemm_tuner.kernels.keys import text_of

AUTOTUNE = "autotune"


def source_text(kernel: TunedKernel, header: Mapping[str, str | int]) -> str:
    """A ``triton.autotune`` with the one configuration of each key, over the kernel's other decorators and its
    signature. With one configuration Triton launches it and times nothing. Keys with the same configuration share one.

    header: of the results file.
    """
    spec = kernel.spec
    groups: dict[str, list[Entry]] = {}
    for entry in kernel.entries:
        groups.setdefault(config_text(launched(spec, entry)), []).append(entry)
    names = ", ".join(spec.key or [name for name, _ in kernel.entries[0].cases[0].problem.case])
    about = f"# {spec.name}, tuned on {header['device']} ({header['arch']}), {header['date']}"
    params = ", ".join(launched(spec, kernel.entries[0]))
    lines = [f"{about}; by {names}" if names else about, f"# Launches must not set {params}."]
    if len(groups) > 1:
        lines.append("# A source has one of these; --to module chooses among them by the case of each launch.")
    for config, entries in groups.items():
        lines += ["", *(_about(entry) for entry in entries)]
        lines += [f"@triton.autotune(configs=[{config}], key=[])", *_signature(spec)]
    return "\n".join(lines) + "\n"


def _about(entry: Entry) -> str:
    single = f"{entry.cases[0].us:.2f} us" if len(entry.cases) == 1 and entry.cases[0].us else ""
    predicted = "predicted" if any(case.source == "predicted" for case in entry.cases) else ""
    said = [" ".join(filter(None, (predicted, single))), f"verified: {entry.verified.value}", entry.note]
    return f"# {text_of(entry.key)}: {'; '.join(filter(None, said))}"


def _signature(spec: KernelSpec) -> list[str]:
    """The kernel's decorators, without ``triton.autotune``, and its ``def`` line."""
    source = dict(spec.host.modules)[spec.host.kernel_module] if isinstance(spec, HostSpec) else spec.kernel.source
    functions = (one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef))
    defined = next(one for one in functions if one.name == spec.kernel.name)
    decorators = [ast.unparse(one) for one in defined.decorator_list]
    kept = [text for text in decorators if text.partition("(")[0].rpartition(".")[2] != AUTOTUNE]
    return [*(f"@{text}" for text in kept), f"def {defined.name}({ast.unparse(defined.args)}): ..."]
