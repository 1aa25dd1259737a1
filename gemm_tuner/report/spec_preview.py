"""Shows what a spec file would run, and which rules reject combinations, without running anything."""

from __future__ import annotations

from collections import Counter

from rich.console import Console

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.metrics import NAME
from gemm_tuner.kernels.program_spec import ProgramSpec, instances
from gemm_tuner.kernels.usual_params import USUAL_PARAMS
from gemm_tuner.report.spec_files import MESH_IDX
from gemm_tuner.system.documents import show
from gemm_tuner.system.terminal_table import Column, print_line, print_table
from gemm_tuner.system.values import did_you_mean


def show_plan(spec: ProgramSpec, out: Console) -> None:
    """Prints the combinations that would be run, and how many each rule rejects."""
    cuts: Counter[str] = Counter()
    kept = []
    for one in instances(spec):
        if one.cut is None:
            kept.append([str(one.mesh_idx), one.name])
        else:
            cuts[str(one.cut)] += 1
    print_line(out, f"{len(kept)} of {spec.count} specs of [{spec.name}] would be run")
    for rule, count in cuts.items():
        print_line(out, f"{count} cut by rule: {rule}")
    if kept:
        print_table(out, "", [Column(MESH_IDX, True), Column(NAME, wraps=True)], kept)


def show_params(out: Console) -> None:
    """Prints the usual parameters of Triton kernels, with values in the form of a spec."""
    rows = [[one.name, str(list(one.values)), one.of, one.meaning] for one in USUAL_PARAMS]
    print_table(out, "", [Column("params"), Column("values"), Column("of"), Column("meaning", wraps=True)], rows)


def explain(spec: ProgramSpec, text: str, out: Console) -> None:
    """Prints which rule rejects the combinations with the values "NAME=VALUE,...". Raises UserError for unknown
    ones."""
    asked = _asked(spec, text)
    found = [one for one in instances(spec) if all(str(one.values[name]) == value for name, value in asked.items())]
    if len(found) == 1:
        (one,) = found
        verdict = f"is cut by rule: {one.cut}" if one.cut else "is run"
        print_line(out, f"spec {one.mesh_idx}, {one.name}, {verdict}")
        return
    kept = sum(one.cut is None for one in found)
    print_line(out, f"{kept} of {len(found)} specs with {text} are run")
    for rule, count in Counter(str(one.cut) for one in found if one.cut).items():
        print_line(out, f"{count} cut by rule: {rule}")


def _asked(spec: ProgramSpec, text: str) -> dict[str, str]:
    where, params = "--explain", {param.name: param for param in spec.params}
    asked = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        name = name.strip().removeprefix("$")
        if not equals or name not in params:
            what = f"{show(part.strip())} names no parameter"
            raise UserError(
                what, where=where, accepted=f"NAME=VALUE,... of {', '.join(params)}", hint=did_you_mean(name, params)
            )
        values = list(map(str, params[name].values))
        if value.strip() not in values:
            raise UserError(f"{show(value)} is no value of {name}", where=where, accepted=", ".join(values))
        asked[name] = value.strip()
    return asked
