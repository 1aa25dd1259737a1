"""From a session and the states of its sizes to the record that run.json holds."""

from __future__ import annotations

import dataclasses
import resource
import sys
import time
from collections.abc import Iterable

from gemm_tuner.core.workload import workload_of
from gemm_tuner.gemm.served import served_rows
from gemm_tuner.pipeline.session import Session
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.store.run_record import Final, FunnelStep, RunRecord, SizeRecord
from gemm_tuner.system import program


def record_of(session: Session, states: Iterable[SizeState]) -> RunRecord:
    """What the run did until now."""
    states = list(states)
    return RunRecord(
        command=(program.name(), *sys.argv[1:]),
        seconds=round(time.monotonic() - session.log.started, 3),
        header=dataclasses.asdict(session.outcomes.header()),
        device={
            **dataclasses.asdict(session.device),
            "matmul_tflops": dict(session.device.matmul_tflops),
        },
        stages={name: round(seconds, 3) for name, seconds in session.log.stage_seconds.items()},
        facts=dict(session.log.facts),
        sizes=tuple(size_record(session, state) for state in states),
        results_file=str(session.outcomes.path),
        notes={**session.log.notes, "parent_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024},
        rules=tuple(row.rule for row in states[0].pruned.funnel) if states else (),
    )


def size_record(session: Session, state: SizeState) -> SizeRecord:
    problem = state.problem
    choice = session.outcomes.choices.get(problem)
    published = session.outcomes.published.get(problem, {})
    return SizeRecord(
        problem=problem,
        total=len(state.configs),
        funnel=tuple(
            FunnelStep(rule=row.rule, kind=row.kind.value, why=row.why, cut=row.cut, remain=row.remain)
            for row in state.pruned.funnel
            if row.cut
        ),
        counts=state.counts(),
        roofline_us=round(workload_of(problem.kind).roofline_us(problem, session.device) or 0.0, 4),
        finals=tuple(Final(name, **dataclasses.asdict(found)) for name, found in published.items()),
        chosen=choice.config.name if choice else "",
        failure=session.outcomes.failures.get(problem, ""),
        served=served_rows(choice.served, predicted=choice.source == "predicted").get("served", {}) if choice else {},
        overruled=dict(choice.overruled) if choice else {},
    )
