"""``tune_gemm.py kernel``: tunes a user's kernel; it accepts the flags of tuning."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gemm_tuner.cli import options
from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.flag_types import positive
from gemm_tuner.cli.help_texts import EXIT_STATUS
from gemm_tuner.cli.parser import Parser, see_help
from gemm_tuner.core.errors import EXIT_OK, EXIT_UNVERIFIED, UserError
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.store.sizes import SizeEntry
from gemm_tuner.system.input_files import printable
from gemm_tuner.system.terminal_table import print_line

TASKS = "it with --benchmark or --compare_wo_tuning"
UPDATE = "--update FILE has a results file's configurations in the finals"

DESCRIPTION = """\
Tunes a Triton kernel of yours. It is compiled without a GPU, pruned by the rules of the spec and by its own registers,
timed under the profiler, and checked against the spec's reference; without a GPU it is checked in the interpreter. Of
FILE.py only what the kernel needs is run.

  # softmax.yaml
  kernel: softmax.py:softmax_rows
  cases: {rows: [1, 4096], cols: [1000, 8192], dtype: fp16}  # or a list of such
  tensors:
    x: {shape: [rows, cols], dtype: dtype}
    out: {shape: [rows, cols], dtype: dtype, output: true}
  args: {stride: cols, n_rows: rows, n_cols: cols, BLOCK: next_power_of_2(cols)}
  params: {ROWS: [1, 2, 4], num_warps: [2, 4, 8]}   # of lists, TILE[0] is one
  grid: ["cdiv(rows, ROWS)"]
  rules: [{keep: BLOCK <= 2048 * num_warps, why: registers}]
  reference: softmax.py:reference

args, derived (shown in the results), grid and rules are expressions of a case's values, params, device.num_sms and
earlier ones. The reference takes tensors and values by name, and dtype, the precision to compute in. A manual_check
judges in its place. With neither, configurations are compared with each other: verified is then agreed. check has rtol,
atol, rms, max_mismatched_ratio, skip_check and nondeterministic. Outputs are NaN before a check, reset tensors zero and
restore tensors as at first before each call. check_cases are further cases to be right at. key, such as
["pow2(rows)", dtype] or ["bucket(rows)"] with buckets: {small: 256, large: inf}, says which cases share a configuration
in exports. tensors have init: randn, uniform, integer, zeros, ones or nan; flops and bytes give the roofline.
With select: last, the last call of a process is its time in finals (--iters of them), not their median.
"""
EXAMPLES = f"""\
examples:
  tune_gemm.py kernel --spec examples/kernels/softmax.yaml
  without a GPU, for another architecture
    tune_gemm.py kernel --spec examples/kernels/softmax.yaml --arch gfx942
  in CuTe DSL (make tune EXTRAS=cute or pip install '.[cute]')
    tune_gemm.py kernel --spec examples/kernels/cute_quack.yaml
  as your own code launches it, with the configurations of its triton.autotune
    tune_gemm.py kernel --host layer_norm.py:run --spec layer_norm.yaml

{EXIT_STATUS}"""


def add_flags(parser: Parser) -> None:
    parser.usage = """\
tune_gemm.py kernel [FILE.py:NAME] --spec SPEC.yaml [flag ...]
       tune_gemm.py kernel [FILE.py:NAME] --host FILE.py:FUNCTION [flag ...]"""
    parser.add_argument("kernel", metavar="FILE.py:NAME", nargs="?", default="",
                        help="a function under @triton.jit (default: the one that the spec names)")  # fmt: skip
    parser.add_argument("--spec", metavar="SPEC.yaml", type=Path,
                        help="its cases, tensors, parameters and reference")  # fmt: skip
    parser.add_argument("--host", metavar="FILE.py:FUNCTION",
                        help="a function of a case's values and of parameters, which makes inputs, launches the kernel "
                        "and returns outputs; parameters that it does not take are the kernel's, from the spec or its "
                        "own triton.autotune (default: the host: that the spec names)")  # fmt: skip
    parser.add_argument("--validate_key", metavar="N", type=positive,
                        help="then tune N cases that share a key of the spec and were not tuned, and say how much "
                        "slower the key's configuration is there than their own best")  # fmt: skip
    parser.add_argument("--gemm_size_file", metavar="RESULTS.yaml", type=Path,
                        help="with --benchmark or --compare_wo_tuning: the results file whose configurations of the "
                        "spec's cases are timed or checked")  # fmt: skip
    parser.set_defaults(**dict.fromkeys(options.REPLACED, False))
    options.add_flags_of_a_run(parser)


def main(arguments: argparse.Namespace, shown: Consoles) -> int:
    from gemm_tuner.cli.main import run
    from gemm_tuner.hosts import host_spec_file

    if arguments.serve:
        raise UserError("is for GEMMs, which servers have files of", where="--serve", hint="leave it out")
    if arguments.host or (arguments.spec is not None and host_spec_file.names_host(arguments.spec)):
        from gemm_tuner.hosts.host_spec import HostProblem

        if arguments.validate_key:
            what = "is for kernels that a spec launches, and this one has a host function"
            raise UserError(what, where="--validate_key", accepted="it with a spec with grid: and key:")
        host_spec, cases = host_spec_file.read(arguments.kernel, arguments.host or "", arguments.spec)
        host_spec_file.require_values(host_spec, cases)
        print_line(shown.log, f"calling {host_spec.host.name} on tensors without memory, for {len(cases)} case(s)")
        return run(arguments, shown, entries_of(arguments, [HostProblem.of(host_spec, case) for case in cases]))
    if arguments.spec is None:
        raise UserError("--spec SPEC.yaml is missing", accepted="it, or --host FILE.py:FUNCTION", hint=see_help())
    from gemm_tuner.cli import key_validation
    from gemm_tuner.cute.problem import problem_of
    from gemm_tuner.kernels import kernel_spec_file, reference_trial

    spec, cases = kernel_spec_file.read(arguments.spec, arguments.kernel)
    entries = entries_of(arguments, [problem_of(spec, case) for case in cases])
    previews = arguments.dry_run or arguments.compile_only or arguments.explain is not None
    if arguments.validate_key:
        key_validation.require_output(arguments.output)
        if not previews:
            key_validation.require_gpu(arguments)
    if not previews:
        fault, raised = reference_trial.tried(problem_of(spec, cases[0]))
        if fault:
            hint = "return a tensor for each output of the spec, in its order" if "returned" in fault else ""
            raise UserError(fault, where=f"{arguments.spec}, reference", hint=hint)
        if raised:
            print_line(
                shown.log,
                f"{arguments.spec}, reference: on this CPU it raises {raised}; what is not checked stays unverified",
            )
    status = run(arguments, shown, entries)
    # Unverified choices are validated: only their times are used.
    if status not in (EXIT_OK, EXIT_UNVERIFIED) or not arguments.validate_key or previews:
        return status
    return key_validation.validate(arguments, shown, spec, cases, arguments.validate_key)


def entries_of(arguments: argparse.Namespace, problems: Sequence[KernelProblem]) -> tuple[SizeEntry, ...]:
    """The cases of the spec; with --benchmark or --compare_wo_tuning those that the results file has a configuration
    for, with it. Raises UserError for a file of another spec."""
    path = arguments.gemm_size_file
    flag = next((f"--{one}" for one in ("benchmark", "compare_wo_tuning") if getattr(arguments, one)), "")
    if not flag:
        if path is not None:
            raise UserError("tuning takes no configurations", where="--gemm_size_file", accepted=TASKS, hint=UPDATE)
        return tuple(map(SizeEntry, problems))
    if path is None:
        raise UserError(f"{flag} takes the configurations of a results file", accepted="--gemm_size_file RESULTS.yaml")
    from gemm_tuner.store import results

    configs = {row.problem: row.config for row in results.read(path).rows if row.config is not None}
    found = tuple(SizeEntry(one, configs[one]) for one in problems if one in configs)
    if not found:
        cases = ", ".join(dict.fromkeys(problem.subject for problem in configs)) or "nothing"
        what = f"holds no case of this spec, but of {cases}; any change of the spec or the kernel makes another"
        raise UserError(what, where=printable(path), accepted="what tune_gemm.py kernel -o wrote for this spec")
    return found
