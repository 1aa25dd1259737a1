"""Runs kernels in Triton's interpreter, case by case."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import mmap
import os
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from interpreter_child import interpreter

from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem


@dataclass(frozen=True)
class Case:
    """One check of one kernel.

    flags:     constexprs of the main kernel that are set to another value than ``calls`` gives.
    poison:    (operand, flat index, value) written into the operands before the launch.
    repeats:   how often the call is made and its output hashed.
    init_type: as for make_operands.
    dropped:   terms that a script of ``dropping_templates`` leaves out, one a call, on exact operands; the result is
               right when the comparison finds each of them, and finds nothing when none is left out.
    """

    script: str
    config: KernelConfig
    problem: GemmProblem
    flags: tuple[tuple[str, int], ...] = ()
    poison: tuple[tuple[str, int, float], ...] = ()
    repeats: int = 1
    init_type: str = "randn"
    dropped: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        flags = "".join(f"-{name}" for name, _ in self.flags)
        return f"{self.problem.key}-{self.config.name}{flags}"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "problem": self.problem.to_dict()}


@dataclass(frozen=True)
class Result:
    """What one case gave; digests are of the output's bytes, one a repeat; flags, those that the kernel has, as they
    were launched; rows of worst_element count through the batch."""

    ok: bool
    message: str
    worst_element: tuple[int, int]
    digests: tuple[str, ...]
    flags: dict[str, int]


def interpret(cases: list[Case]) -> list[Result]:
    """Each case's result; of one that kills the interpreter or raises there, the message says so."""
    return [interpret_one(case) for case in cases]


def interpret_one(case: Case) -> Result:
    try:
        row = interpreter().ask(run_case, row=case.to_dict())
    except AssertionError as error:
        return Result(False, str(error), (0, 0), (), {})
    return Result(**{**row, "worst_element": tuple(row["worst_element"]), "digests": tuple(row["digests"])})


def status_of(case: Case) -> int:
    """The exit status of a process that runs a case and does no more, minus the signal that killed it."""
    return int(interpreter().ask(run_in_fork, row=case.to_dict()))


def run_in_fork(row: dict[str, Any]) -> int:
    """Inside the interpreting process, whose imports a fork has already."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            run_case(row)
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@functools.lru_cache(maxsize=32)
def script_at(path: str) -> Any:
    from gemm_tuner.languages.scripts import load_script

    return load_script(path)


def run_case(row: dict[str, Any]) -> dict[str, Any]:
    """Inside the interpreting process: a result as JSON has it."""
    script = script_at(row["script"])
    return asdict(run_dropping(row, script) if row["dropped"] else run_plain(row, script))


def run_plain(row: dict[str, Any], script: Any) -> Result:
    """Inside the interpreting process: a case without ``dropped`` terms."""
    from gemm_tuner.core.workload import launch_all
    from gemm_tuner.gemm.compare import compare
    from gemm_tuner.gemm.kernels import call_size, make_scratch
    from gemm_tuner.gemm.operands import interpretable, make_operands
    from gemm_tuner.gemm.reference import reference
    from gemm_tuner.languages.scratch import STAND_IN_SMS

    problem, name = GemmProblem.from_dict(row["problem"]), KernelConfig(**row["config"]).name
    size, config = call_size(problem), script.CONFIGS[name]
    digests, flags = [], {}
    for _ in range(row["repeats"]):
        operands = make_operands(problem, row["init_type"], 0, "cpu")
        for operand, index, value in row["poison"]:
            getattr(operands, operand).view(-1)[index] = value
        # Descriptors of C begin at multiples of 16 bytes, whatever its rows are.
        given = all_guarded(interpretable(operands), 16 if config["ROW_STEP"] > 1 else 1)
        scratch = all_guarded(make_scratch(script, config, problem, "cpu", STAND_IN_SMS))
        launches = script.calls(config, size, given, scratch, STAND_IN_SMS)
        launches, flags = with_flags(launches, config["binary"], dict(row["flags"]))
        launch_all(launches)
        assert scratch.locks is None or not scratch.locks.any(), f"{name} left locks behind"
        actual = given.c.to(operands.c.dtype).reshape(-1, problem.n)
        digests.append(hashlib.sha256(actual.double().numpy().tobytes()).hexdigest())
    verdict = compare(actual, *reference(problem, operands), problem, name)
    return Result(verdict.ok, verdict.message, verdict.worst_element, tuple(digests), flags)


def run_dropping(row: dict[str, Any], script: Any) -> Result:
    """Inside the interpreting process: a case with ``dropped`` terms."""
    from gemm_tuner.gemm.check import Caller, exact_difference
    from gemm_tuner.gemm.exact_operands import count_sets, make_exact_operands, with_exact_factors

    problem, name = with_exact_factors(GemmProblem.from_dict(row["problem"])), KernelConfig(**row["config"]).name
    caller = Caller.of(script, problem, name, "cpu")
    sets = [make_exact_operands(problem, number, 0, "cpu") for number in range(count_sets(problem))]
    found = {}
    for term in (-1, *row["dropped"]):
        script.DROPPED[0] = float(term)
        found[term] = [exact_difference(caller.result(problem, each), problem, each) for each in sets]
    if any(found.pop(-1)):
        return Result(False, "wrong though no term is left out", (0, 0), (), {})
    unseen = [term for term, faults in found.items() if not any(faults)]
    return Result(not unseen, f"not seen: {unseen}" if unseen else "", (0, 0), (), {})


def all_guarded(tensors: Any, start_bytes: int = 1) -> Any:
    """Operands or Scratch with each tensor guarded."""
    import torch

    values = {field.name: getattr(tensors, field.name) for field in fields(tensors)}
    return replace(
        tensors, **{name: guarded(value, start_bytes) for name, value in values.items() if torch.is_tensor(value)}
    )


def guarded(tensor: Any, start_bytes: int = 1) -> Any:
    """A copy that ends where memory ends, less what a start at a multiple of ``start_bytes`` takes: a load or store
    past that kills the process."""
    import torch

    size = tensor.numel() * tensor.element_size()
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, whole + mmap.PAGESIZE)
    beyond = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + whole
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(beyond), ctypes.c_size_t(mmap.PAGESIZE), 0) != 0:
        raise OSError("mprotect failed")
    start = (whole - size) // start_bytes * start_bytes
    copy = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=start)
    return copy.reshape(tensor.shape).copy_(tensor)


def with_flags(launches: list[Any], main: str, wanted: dict[str, int]) -> tuple[list[Any], dict[str, int]]:
    """The launches with constexprs of the ``main`` kernel replaced, and all its flags as they now are."""
    place = [launch[0] for launch in launches].index(main)
    symbol, kernel, grid, positional, options = launches[place]
    values = list(positional)
    for flag, value in wanted.items():
        values[kernel.arg_names.index(flag)] = value
    known = [flag for flag in ("EVEN_K", "WIDE", "K_BY", "N_BY", "COLUMNS_BY") if flag in kernel.arg_names]
    flags = {flag: int(values[kernel.arg_names.index(flag)]) for flag in known}
    changed = (symbol, kernel, grid, tuple(values), options)
    return [*launches[:place], changed, *launches[place + 1 :]], flags
