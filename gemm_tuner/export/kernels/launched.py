"""A configuration as the kernel itself is launched with it, for files that do not come with the spec's expressions."""

from __future__ import annotations

import ast
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.export.kernels.choose import Entry
from gemm_tuner.hosts.host_spec import HostSpec
from gemm_tuner.kernels.arguments import names_of
from gemm_tuner.kernels.expressions import Expression, with_values
from gemm_tuner.kernels.kernel_spec import LAUNCH_OPTIONS, KernelSpec


def launched(spec: KernelSpec, entry: Entry) -> dict[str, Any]:
    """The entry's parameters; one that the kernel does not have, such as TILE with ``args: {ROWS: TILE[0]}``, gives way
    to the args that follow from it.

    Raises UserError for a parameter of a host function or of the grid alone, and where such an arg follows from the
    device, or from a case and the entry is for all cases of a key.
    """
    params = entry.params
    alone = [name for name in params if name not in (*spec.kernel.parameters, *LAUNCH_OPTIONS)]
    found = {name: value for name, value in params.items() if name not in alone}
    if alone and isinstance(spec, HostSpec):
        raise UserError(
            f"{alone[0]} is a parameter of {spec.host.name} alone", where=spec.name, hint="--to json has it"
        )
    problem, whole, left = entry.cases[0].problem, dict[str, ast.expr](), set(alone)
    for name, text in (*spec.derived, *spec.args) if alone else ():
        whole[name] = with_values(text, whole)
        needs = Expression.parse(ast.unparse(whole[name]), f"args, {name}").names
        if name not in spec.kernel.parameters or not needs & set(alone):
            continue
        if "device.num_sms" in needs or (spec.key and needs - params.keys()):
            of = "device" if "device.num_sms" in needs else "case"
            what = f"{name} follows from {' and '.join(sorted(needs & set(alone)))}, and from the {of} of each launch"
            raise UserError(what, where=spec.name, hint="--to module computes it")
        found[name] = names_of(spec, problem.values, params, problem.num_sms)[name]
        left -= needs
    if left:
        what = f"{min(left)} is of the launch's grid, not of {spec.kernel.name}"
        raise UserError(what, where=spec.name, hint="--to module has the grid, --to json the parameter")
    return found
