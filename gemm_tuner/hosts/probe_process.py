"""A process that ``probe.ask`` starts: reads problems as JSON from standard input, and prints an Answer for each on the
last line of standard output. Output of the user's code goes to standard error."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from gemm_tuner.core.workload import problem_from_dict
from gemm_tuner.hosts.host_code import HostCode
from gemm_tuner.hosts.host_errors import HostError
from gemm_tuner.hosts.host_spec import HostProblem
from gemm_tuner.hosts.host_trial import HostTrial
from gemm_tuner.hosts.module_loader import UserModules
from gemm_tuner.hosts.probe import Answer, row_of
from gemm_tuner.hosts.redirection import META, redirected
from gemm_tuner.hosts.stand_in_device import described
from gemm_tuner.kernels.check import BadReference, NoSuchValue

# Number of configurations to try before the host function counts as failed; its rules may reject some of them.
TRIED = 4
# Fields of triton.Config that do not become an axis if all configurations have these values.
DEFAULTS: dict[str, Any] = {"num_ctas": 1, "maxnreg": None, "ir_override": None}
# Default launch options.
OPTIONS = {"num_warps": 4, "num_ctas": 1}
STAGES = {"cuda": 3, "hip": 2}
BY_SPEC = "give tensors, args and grid in the spec, and leave --host out"


def main() -> int:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    problems = [problem_from_dict(row) for row in json.load(sys.stdin)]
    found = [row_of(answer(problem)) for problem in problems if isinstance(problem, HostProblem)]
    print(json.dumps(found), file=answers, flush=True)
    return 0


def answer(problem: HostProblem) -> Answer:
    spec, device = problem.spec_there, problem.device
    assert device is not None
    with described(device), redirected(META):
        try:
            code = HostCode(spec, UserModules(dict(spec.host.modules)))
        except Exception as error:
            return fault(f"its definitions raise {said(error)}", f"{spec.host.module}.py")
        if not hasattr(code.kernel, "run"):
            return fault(f"{spec.kernel.name} is not under @triton.jit", f"{spec.host.kernel_module}.py")
        if not spec.params:
            return of_autotune(problem, code)
        first: Answer | None = None
        for config in some_configs(spec.params):
            trial = HostTrial(problem, 0, META)
            try:
                trial.rehearse(code, config)
            except Exception as error:
                first = first or fault_of(error, problem, config)
            else:
                return Answer(spec.params, default=default_of(problem, code), fault=reference_fault(trial))
    return first or Answer(spec.params)


def of_autotune(problem: HostProblem, code: HostCode) -> Answer:
    """The configurations of the kernel's own triton.autotune for this case."""
    spec = problem.spec_there
    configs = autotuner_of(code.kernel)
    if configs is None:
        what = f"No configurations to tune: {spec.kernel.name} is not under @triton.autotune"
        return fault(what, "params", "give params in the spec, such as {num_warps: [2, 4, 8]}")
    every = [{**DEFAULTS, **config.all_kwargs()} for config in configs]
    names = [name for name in every[0] if any(one.get(name) != DEFAULTS.get(name) for one in every)]
    for one in every:
        if {*one} != {*every[0]}:
            odd = sorted({*one} ^ {*every[0]})[0]
            return fault(f"{odd} is in some configurations of {spec.kernel.name} only", "triton.autotune")
    trial = HostTrial(problem, 0, META)
    try:
        recorder = trial.rehearse(code, {})
    except Exception as error:
        return fault_of(error, problem, {})
    left = [{**DEFAULTS, **one} for one in recorder.listed or []]
    params = tuple((name, tuple(dict.fromkeys(one[name] for one in every))) for name in names)
    listed = tuple(dict.fromkeys(tuple(one[name] for name in names) for one in left))
    return Answer(params, listed, fault=reference_fault(trial))


def reference_fault(trial: HostTrial) -> tuple[str, str, str] | None:
    """A fault of the reference that does not depend on values: its outputs, or a parameter without a value."""
    if trial.spec.reference is None:
        return None
    with contextlib.suppress(Exception):  # it may fail only because the tensors have no values
        try:
            trial.expected()
        except NoSuchValue as error:
            named = "the parameters of launched kernels and the values of cases are there by name"
            return str(error), "reference", named
        except BadReference as error:
            return str(error), "reference", "return a tensor for each output of the host function, in its order"
    return None


def default_of(problem: HostProblem, code: HostCode) -> tuple[Any, ...] | None:
    """The values of the spec's params when the host function is called without them: its parameters' defaults, or what
    it launches where these are None. None if it requires one, if triton.autotune selects among several, or if a value
    cannot be part of a configuration."""
    try:
        recorder, _ = code.call(problem.case, {}, 0, runs=False)
    except Exception:
        return None
    if recorder.listed is not None and len(recorder.listed) > 1:
        return None
    backend = problem.device.target.backend if problem.device else ""
    own = {name: value for name, value in code.defaults().items() if value is not None}
    values = {**OPTIONS, "num_stages": STAGES.get(backend), **recorder.tuned_arguments(), **own}
    found = tuple(values.get(name) for name, _ in problem.spec_there.params)
    return found if all(isinstance(value, (int, str)) for value in found) else None


def autotuner_of(kernel: Any) -> list[Any] | None:
    """The configurations of a kernel's triton.autotune decorator; None without one."""
    while not hasattr(kernel, "configs"):
        if not hasattr(kernel, "fn"):
            return None
        kernel = kernel.fn
    return list(kernel.configs)


def some_configs(params: tuple[tuple[str, tuple[Any, ...]], ...]) -> Iterator[dict[str, Any]]:
    names = [name for name, _ in params]
    for values in itertools.islice(itertools.product(*(values for _, values in params)), TRIED - 1):
        yield dict(zip(names, values, strict=True))
    yield {name: values[-1] for name, values in params}


def fault_of(error: Exception, problem: HostProblem, config: dict[str, Any]) -> Answer:
    spec = problem.spec_there
    if isinstance(error, HostError):
        return fault(
            str(error),
            f"{spec.host.module}.py",
            BY_SPEC if error.by_spec else f"let it launch {spec.kernel.name}[grid](...)",
        )
    at = " ".join(f"{name}={value}" for name, value in (*problem.case, *config.items()))
    return fault(f"{spec.host.name} raises {said(error)}", f"{spec.host.module}.py, {at}" if at else spec.host.module)


def said(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"


def fault(what: str, where: str, hint: str = "") -> Answer:
    return Answer(fault=(what, where, hint))


if __name__ == "__main__":
    sys.exit(main())
