"""Which compiled kernels are sent to a machine with a plan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from samples import problem

from gemm_tuner.compile.task_queue import key_of
from gemm_tuner.executors.cluster.kernel_index import SUPPORT, KernelIndex
from gemm_tuner.launch.plan import SCREEN, Method, Plan, Work

SIZE = problem(16, 16, 16)


def test_a_plan_takes_its_entries_its_reference_and_the_measurements_own() -> None:
    index = KernelIndex(made={SUPPORT: ("flush",)})
    for name in ("entry", "reference", "other"):
        script = SimpleNamespace(file="s.py", kernel_sha="sha")
        task: Any = SimpleNamespace(script=script, name=f"{name}_kernel", specialization="")
        index.note(name, task)
        index.made[key_of(task)] = (f"{name}.cubin",)
    work = Work(SIZE, ((0, "entry"),), reference=((0, "reference"),), reference_us=200.0)
    plan = Plan(SCREEN, ("s.py",), (work,), Method())
    assert set(index.entries(plan)) == {"flush", "entry.cubin", "reference.cubin"}
