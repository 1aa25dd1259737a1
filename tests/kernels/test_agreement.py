"""Kernels without a reference: their configurations are compared with each other."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from command import tune_gemm
from fault_runs import ROOT, statuses_of_run

from gemm_tuner.core.records import Status, Verdict, Verified
from gemm_tuner.kernels import kernel_spec_file
from gemm_tuner.kernels.jury import Jury
from gemm_tuner.kernels.problem import KernelProblem
from gemm_tuner.kernels.workload import KernelWorkload
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.launch.journal import Begin, End, Fail, Journal, Judged, read_journal
from gemm_tuner.launch.plan import VERIFY, Method, Plan, Work
from gemm_tuner.launch.verify import verify
from gemm_tuner.measure.launcher_events import Died, Heard
from gemm_tuner.measure.launcher_process import InterpreterLauncher
from gemm_tuner.measure.supervise import behind
from gemm_tuner.store import results

EXAMPLE = ROOT / "examples" / "kernels"


def written(folder: Path, source: str = "", **keys: object) -> Path:
    """The softmax example in a folder; None takes a key of its spec away."""
    (folder / "softmax.py").write_text(source or (EXAMPLE / "softmax.py").read_text())
    spec = yaml.safe_load((EXAMPLE / "softmax.yaml").read_text()) | keys
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in spec.items() if value is not None}))
    return path


def test_without_a_reference_what_most_configurations_compute_wins(tmp_path: Path) -> None:
    """ROWS 2 writes another result, ROWS 3 leaves the last row unwritten: it stays NaN."""
    source = (EXAMPLE / "softmax.py").read_text()
    source = source.replace("values / tl.sum(values, 0)", "values / tl.sum(values, 0) * (1 + (ROWS == 2))")
    source = source.replace("first + ROWS, n_rows", "first + ROWS, n_rows - (ROWS == 3)")
    params = {"ROWS": [1, 2, 3, 4], "num_warps": [1]}
    written(
        tmp_path, source, reference=None, params=params, cases={"rows": 4, "cols": 16, "dtype": "fp16"},
        check_cases={"rows": 5, "cols": 7, "dtype": "fp16"},
    )  # fmt: skip
    words = ("kernel", "--spec", "spec.yaml", "--arch", "sm_90", "--compare", "all", "-o", "tuned.yaml")
    done = tune_gemm(tmp_path, *words, "--num_threads", "1")
    assert done.returncode == 0, done.stderr
    (row,) = results.read(tmp_path / "tuned.yaml").rows
    assert row.config is not None and row.config.options()["ROWS"] in (1, 4)
    assert row.verified is Verified.AGREED
    (statuses,) = statuses_of_run(next((tmp_path / "results").glob("*-*"))).values()
    ended = {name.split("_")[2]: status for name, status in statuses.items()}
    assert ended == {"ROWS1": "ok", "ROWS2": "wrong", "ROWS3": "wrong", "ROWS4": "ok"}


class _Outputs:
    """Stands for a trial whose configurations give one number each."""

    def __init__(self, problem: KernelProblem, values: dict[str, float]) -> None:
        assert problem.spec is not None
        self.problem, self.spec, self._values = problem, problem.spec, values

    def outputs(self, _: object, name: str) -> dict[str, object]:
        import torch

        return {"out": torch.tensor([1.0, self._values[name]])}

    def verdict(self, name: str, found: object, how: Verified) -> Verdict:
        return Verdict(self.problem, name, found.ok, 0.0, found.over, message=found.message, how=how)


@pytest.mark.parametrize(
    ("values", "right", "how"),
    [
        ({"a": 2.0, "b": 2.00001, "c": 3.0}, {"a", "b"}, Verified.AGREED),
        ({"a": 3.0, "b": 2.0, "c": 2.0}, {"b", "c"}, Verified.AGREED),
        ({"a": 3.0, "b": 2.0}, set(), Verified.AGREED),
        ({"a": 3.0, "b": 3.0, "c": 2.0, "d": 2.0}, set(), Verified.AGREED),
        ({"a": 3.0}, {"a"}, Verified.FALSE),
    ],
)
def test_the_largest_group_is_right_and_one_alone_is_not_checked(
    tmp_path: Path, values: dict[str, float], right: set[str], how: Verified
) -> None:
    spec, (case, *_) = kernel_spec_file.read(written(tmp_path, reference=None))
    jury = Jury(_Outputs(KernelProblem.of(spec, case), values))  # type: ignore[arg-type]
    for name in values:
        jury.hear(None, name)  # type: ignore[arg-type]
    verdicts = jury.verdicts()
    assert {name for name, one in verdicts.items() if one.ok} == right
    assert {one.how for one in verdicts.values()} == {how}


def test_after_a_crash_the_others_are_compared_anew(tmp_path: Path) -> None:
    """What ran before the crash has no verdict yet, so that it runs again; what failed does not."""
    spec, (case, other) = kernel_spec_file.read(written(tmp_path, reference=None))
    entries = tuple((0, name) for name in "abcd")
    works = tuple(Work(KernelProblem.of(spec, one), entries) for one in (case, other))
    journal = [Begin(0, "a"), Begin(0, "b"), End(0, "b"), Begin(0, "c")]
    left = behind(Plan(VERIFY, ("s.py",), works, Method()), journal, again=False)
    assert [[name for _, name in work.entries] for work in left.work] == [["a", "d"], ["a", "b", "c", "d"]]
    again = behind(Plan(VERIFY, ("s.py",), works, Method()), journal, again=True)
    assert [name for _, name in again.work[0].entries] == ["a", "c", "d"]


def test_too_little_memory_to_say_how_far_one_is_off_costs_no_other_its_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    spec, (case, *_) = kernel_spec_file.read(written(tmp_path, reference=None))
    jury = Jury(_Outputs(KernelProblem.of(spec, case), {"a": 2.0, "b": 3.0, "c": 2.0}))  # type: ignore[arg-type]
    for name in "abc":
        jury.hear(None, name)  # type: ignore[arg-type]

    def no_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("gemm_tuner.kernels.compare.compared", no_memory)
    assert {name: one.ok for name, one in jury.verdicts().items()} == {"a": True, "b": False, "c": True}


class _OutOfMemory:
    """Stands for a jury on a GPU whose memory holds each configuration's results, and no comparison of them."""

    def __init__(self, *_: object) -> None: ...

    def hear(self, *_: object) -> None: ...

    def verdicts(self) -> dict[str, Verdict]:
        import torch

        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64 GiB")


def test_where_a_comparison_fails_no_configuration_is_verified_or_crashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the work is left for another process, which would come to the same end; the next work runs."""
    spec, (case, other) = kernel_spec_file.read(written(tmp_path, reference=None))
    works = tuple(Work(KernelProblem.of(spec, one), ((0, "a"), (0, "b"))) for one in (case, other))
    plan, script = Plan(VERIFY, ("s.py",), works, Method()), ModuleType("script")
    vars(script).update(CONFIGS={"a": {}, "b": {}}, DESCRIPTORS=False)
    monkeypatch.setattr(KernelWorkload, "jury", _OutOfMemory)
    path, failed_by_then = tmp_path / "journal.jsonl", list[int]()

    def between() -> None:
        """Others may use the GPU between two works."""
        failed_by_then.append(sum(isinstance(one, Fail) for one in read_journal(path, 2)))

    with path.open("w") as stream:
        verify(plan, Journal(stream), [script], tmp_path / "stop", interpreted=False, between=between)
    assert failed_by_then == [2, 4]
    events: list[Any] = read_journal(path, 2)
    failed = [(one.work, one.name, one.status) for one in events if isinstance(one, Fail)]
    assert failed == [(work, name, Status.OUT_OF_RESOURCES) for work in (0, 1) for name in "ab"]
    assert all("64 GiB" in one.message for one in events if isinstance(one, Fail))
    assert not any(isinstance(one, Judged) for one in events)
    assert behind(plan, [one for one in events if one.work == 0], again=False).work == works[1:]


LOSING = """
import os, sys
from pathlib import Path

from gemm_tuner.core.records import Verdict, Verified
from gemm_tuner.kernels.workload import KernelWorkload
from gemm_tuner.launch.main import main

CONFIGS, DESCRIPTORS = {name: {} for name in "abcde"}, False
LOST = Path(__file__).with_name("lost")


class Jury:
    def __init__(self, problem):
        self.problem, self.heard = problem, []

    def hear(self, script, name):
        if name == "c":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.heard.append(name)

    def verdicts(self):
        with LOST.open("a") as stream:
            stream.write("lost\\n")
        if len(LOST.read_text().splitlines()) <= int(os.environ["LOSSES"]):
            raise RuntimeError("CUDA error: unspecified launch failure")
        return {name: Verdict(self.problem, name, True, 0.0, 0.0, how=Verified.AGREED) for name in self.heard}


if __name__ == "__main__":
    KernelWorkload.jury = lambda self, problem, seed, device: Jury(problem)
    sys.exit(main(scripts_dir=str(Path(__file__).parent)))
"""


@pytest.mark.parametrize(("losses", "lost"), [(1, "c"), (4, "cabde")])
def test_a_gpu_that_is_lost_costs_the_one_that_was_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losses: int, lost: str
) -> None:
    """Lost while all are compared, it costs none: they run again in a new process, once for each size."""
    monkeypatch.setenv("LOSSES", str(losses))
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "script.py").write_text(LOSING)
    spec, (case, other) = kernel_spec_file.read(written(tmp_path, reference=None))
    works = tuple(Work(KernelProblem.of(spec, one), tuple((0, name) for name in "abcde")) for one in (case, other))
    died: dict[Any, str] = dict.fromkeys((one.problem for one in works), "")
    right = dict(died)

    def hear(problem: Any, event: Heard) -> None:
        if isinstance(event, Died):
            died[problem] += event.name
        elif isinstance(event, End) and event.name not in died[problem]:
            right[problem] += event.name

    launcher = InterpreterLauncher(LANGUAGE, tmp_path / "cache", scripts)
    launcher.verdicts(Plan(VERIFY, ("script.py",), works, Method()), tmp_path / "verify", hear)
    first, second = (one.problem for one in works)
    assert (died[first], right[first]) == (lost, "".join(name for name in "abde" if name not in lost))
    assert (died[second], right[second]) == (lost, "".join(name for name in "abde" if name not in lost))
