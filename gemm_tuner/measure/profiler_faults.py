"""What is said when a profiler fails, or records nothing."""

from __future__ import annotations

from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.records import Status, Timing
from gemm_tuner.measure.parse_run import Key
from gemm_tuner.profilers import PROFILERS, NotRecorded, Profiler
from gemm_tuner.system.processes import Ended


def profiler_failed(profiler: Profiler, ended: Ended, recorded: Ended | None = None) -> EnvironmentFault:
    """The error for a failure of the profiler itself. recorded: its start, where the conversion of what it recorded
    failed, which then may not be there; the reason is in what the start printed. A NotRecorded if it is not there."""
    what = f"{profiler.name} ended with {ended.how()}"
    if ended.stalled:
        what = f"{profiler.name} did not come to an end and was killed"
    said, files = ended.log_tail() or "it printed nothing", "that file"
    if recorded:
        said, files = f"{said}; when it recorded it printed: {recorded.log_tail()}", f"it and {recorded.log_path.name}"
    is_there = recorded is None or profiler.has_recorded(recorded.log_path.parent)
    kind = EnvironmentFault if is_there else NotRecorded
    return kind(f"{what}: {said}", where=str(ended.log_path), hint=joined(f"read {files}", another_tool(profiler)))


def with_another_tool(fault: EnvironmentFault, profiler: Profiler) -> EnvironmentFault:
    """The fault with ``another_tool`` as a further hint."""
    hint = joined(fault.hint, another_tool(profiler))
    return EnvironmentFault(fault.what, where=fault.where, accepted=fault.accepted, hint=hint)


def joined(*hints: str) -> str:
    """The hints that say something, as one."""
    return "; ".join(filter(None, hints))


def another_tool(profiler: Profiler) -> str:
    """A hint: a flag that times the same kernels with another tool that is installed; "" if there is none. Times of two
    tools are not mixed in one run."""
    alike = [one for one in PROFILERS if one.name != profiler.name and set(one.backends) & set(profiler.backends)]
    names = [one.name for one in alike if one.version() is not None]
    return f"another tool may record them: --profiler {' or '.join(names)}, with --fresh" if names else ""


def require_a_trace(timings: dict[Key, Timing], profiler: Profiler, ended: Ended) -> None:
    """Raises NotRecorded if the trace contains none of the kernels that ran, because then the profiler failed and
    not the configurations."""
    missing = [t for t in timings.values() if t.status == Status.MISSING_IN_TRACE]
    if missing and not any(t.samples_us for t in timings.values()):
        errors = " | ".join(
            line.strip() for line in ended.log_path.read_text("utf-8", "replace").splitlines() if "rror" in line
        )
        raise NotRecorded(
            f"{profiler.name} recorded none of {len(missing)} configurations that ran: {missing[0].message}",
            where=str(ended.log_path),
            hint=joined(f"its log says: {errors[:600]}" if errors else "", another_tool(profiler)),
        )
