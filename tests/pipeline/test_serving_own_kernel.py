"""--kernel_from on a stand-in GPU: a server's own kernel is timed and checked in place of what stands in for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from consumer_sources import SGLANG, write_source
from rule_cases import thin_space_text
from samples import config, device, load_sizes
from tuning import FIVE, SM_90, StandInGpu, environment, open_ledger, run_options, session, state_of

from gemm_tuner.consumers import consumer_kernel
from gemm_tuner.consumers.consumer_kernel import ConsumerKernel
from gemm_tuner.core.choice import ServedChoice
from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.launch.plan import FINALS, SCREEN, VERIFY
from gemm_tuner.pipeline import prepare, run_identity, serving, serving_space
from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.tune import Tuning
from gemm_tuner.space.size_state import SizeState
from gemm_tuner.store import results
from gemm_tuner.store.sizes import SizeEntry

SIZE = GemmProblem(512, 4096, 7168, "fp8_e4m3", "fp8_e4m3", "bf16", Layout.ROW, Layout.COL, scaling="block")
WINNER = KernelConfig("gemm_persistent", 128, 128, 128, 8, 1, 8, 3, PROGRAMS_PER_SM=1)
TILE = config(BLOCK_SIZE_M=64, BLOCK_SIZE_N=64, BLOCK_SIZE_K=128, num_stages=4)
NEXT = replace(TILE, num_stages=3)
DEFAULT = KernelConfig("gemm_tile", 64, 128, 128, 32, 1, 4, 2)  # vLLM's


def own(one: KernelConfig) -> KernelConfig:
    """A configuration of vLLM's own kernel."""
    return replace(one, family="vllm_block_fp8")


# The server's kernel is faster than all: it serves, and wins nothing.
TIMES = {
    WINNER.name: 50.0, TILE.name: 70.0, NEXT.name: 75.0, DEFAULT.name: 100.0,
    own(TILE).name: 40.0, own(NEXT).name: 30.0, own(DEFAULT).name: 60.0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def kernel(tmp_path: Path) -> ConsumerKernel:
    return consumer_kernel.read("vllm", write_source(tmp_path / "source" / "fp8_utils.py"))


def extended(kernel: ConsumerKernel) -> SizeState:
    """A size's candidates: those of this project, and a server's own."""
    state = state_of(SIZE, (WINNER, TILE, NEXT))
    for one in (TILE, NEXT):
        (row,) = state.configs.index[state.configs["num_stages"] == one.num_stages][-1:]
        state.extend(state.configs.loc[[row]].assign(family=kernel.family), [own(one)], [1.0])
    return state


def tuned(folder: Path, gpu: StandInGpu, kernel: ConsumerKernel, *serve: str, **how: Any) -> Session:
    asked = {"search": "full", "compile_stage": False, "serve": serve, "kernels": {"vllm": kernel}, **how}
    run = session(folder, SIZE, **asked)
    state = extended(kernel)
    Tuning(run, [state], (gpu,)).run()
    state.assert_complete()
    return run


def names(gpu: StandInGpu, stage: str) -> set[str]:
    return {name for plan in gpu.plans if plan.stage == stage for work in plan.work for _, name in work.entries}


def test_the_own_kernel_serves_and_does_not_win(tmp_path: Path, kernel: ConsumerKernel) -> None:
    gpu = StandInGpu(us=TIMES)
    choice = tuned(tmp_path, gpu, kernel, "vllm").results.choices[SIZE]
    assert (choice.config, choice.runner_up, choice.median_us) == (WINNER, TILE.name, pytest.approx(50.0))
    assert choice.served == (ServedChoice("vllm", NEXT, 30.0, Verified.TRUE, 60.0, kernel=kernel.label, **FIVE),)
    assert names(gpu, FINALS) >= {own(NEXT).name, own(DEFAULT).name, own(TILE).name, WINNER.name}
    assert DEFAULT.name not in names(gpu, SCREEN) | names(gpu, FINALS)  # what stood in for the server's kernel
    assert own(NEXT).name in names(gpu, VERIFY)


def test_the_row_names_the_kernel_and_no_stand_in(tmp_path: Path, kernel: ConsumerKernel) -> None:
    done = tuned(tmp_path, StandInGpu(us=TIMES), kernel, "vllm")
    (row,) = yaml.safe_load(done.results.path.read_text())["configs"]
    assert "stand_in" not in row
    assert row["served"]["vllm"]["kernel"] == f"fp8_utils.py sha256:{kernel.sha}"
    assert [one.served for one in results.read(done.results.path).rows] == [done.results.choices[SIZE].served]


def test_one_server_by_its_own_kernel_and_one_by_a_stand_in(tmp_path: Path, kernel: ConsumerKernel) -> None:
    done = tuned(tmp_path, StandInGpu(us=TIMES), kernel, "vllm", "sglang")
    by_name = {one.consumer: one for one in done.results.choices[SIZE].served}
    assert (by_name["sglang"].config, by_name["sglang"].time_us, by_name["sglang"].kernel) == (TILE, 70.0, "")
    assert by_name["vllm"].time_us == 30.0 and by_name["vllm"].kernel
    (row,) = yaml.safe_load(done.results.path.read_text())["configs"]
    assert row["stand_in"] == "gemm_tile" and "kernel" not in row["served"]["sglang"]
    (read,) = results.read(done.results.path).rows
    assert read.served == done.results.choices[SIZE].served


def test_a_wrong_one_gives_way_to_the_next(tmp_path: Path, kernel: ConsumerKernel) -> None:
    gpu = StandInGpu(us=TIMES, wrong=frozenset((own(NEXT).name,)))
    (one,) = tuned(tmp_path, gpu, kernel, "vllm").results.choices[SIZE].served
    assert (one.config, one.time_us) == (TILE, 40.0)


def test_an_older_configuration_is_timed_with_the_own_kernel(tmp_path: Path, kernel: ConsumerKernel) -> None:
    older = replace(TILE, num_warps=8)
    gpu = StandInGpu(us={**TIMES, own(older).name: 30.3})
    (one,) = tuned(tmp_path, gpu, kernel, "vllm", older_served={SIZE: {"vllm": older}}).results.choices[SIZE].served
    assert (one.config, one.time_us) == (older, 30.3)


def test_a_benchmark_times_what_is_served_by_the_own_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: ConsumerKernel
) -> None:
    entries = (SizeEntry(SIZE, WINNER, (ServedChoice("vllm", TILE, 1.0, Verified.TRUE, 2.0),)),)
    monkeypatch.setattr(CompileStage, "compile_sizes", lambda *_: None)  # the GPU that stands in launches no kernel
    monkeypatch.setattr(CompileStage, "compile", lambda *_: None)
    run = session(tmp_path, SIZE, compile_stage=False, kernels={"vllm": kernel})
    states = [prepare.given_state(SIZE, WINNER, SM_90)]
    servers = serving.given(entries, SM_90, {"vllm": kernel})
    serving.add_given(servers, states, entries)
    Tuning(run, states, (StandInGpu(us=TIMES),), given=servers).run_given()
    assert run.results.choices[SIZE].served == (
        ServedChoice("vllm", TILE, 40.0, Verified.TRUE, 60.0, kernel=kernel.label, **FIVE),
    )
    assert run.results.choices[SIZE].config == WINNER
    assert load_sizes(run.results.path, Defaults()).entries[0].served == run.results.choices[SIZE].served


def test_its_configurations_are_those_that_the_server_can_launch(tmp_path: Path, kernel: ConsumerKernel) -> None:
    (thin := tmp_path / "space.yaml").write_text(thin_space_text("sm_90"))
    how = {"serve": ("vllm",), "kernels": {"vllm": kernel}, "space_file": thin}
    asked = run_options(tmp_path, SIZE, families=("gemm_persistent",), **how)
    candidates = prepare.load_space(asked, SM_90)
    assert set(candidates.configs["family"]) == {"gemm_persistent"}  # nothing stands in
    servers = serving.servers(asked.serve, SM_90, kernels=asked.kernels)
    pruned = prepare.cut_space(candidates, SIZE, SM_90)
    assert serving_space.widened(pruned, servers, candidates, SIZE).kept.tolist() == pruned.kept.tolist()
    state = prepare.state_of(candidates, SIZE, SM_90, pruned)
    serving_space.extend(state, servers, serving_space.kernel_space(servers, asked, SM_90))
    state.cut(list(state.kept), "test")
    state.assert_complete()
    found = [one for one in state.kept.values() if one.is_of_a_server]
    (stand_in,) = serving.servers(asked.serve, SM_90)
    assert len(found) > 20 and all(stand_in.can_launch(SIZE, replace(one, family="gemm_tile")) for one in found)
    assert [servers[0].can_launch(SIZE, one) for one in (found[0], TILE, WINNER)] == [True, False, False]
    other = open_ledger(candidates, GemmProblem(512, 512, 512), SM_90)
    serving_space.extend(other, servers, serving_space.kernel_space(servers, asked, SM_90))
    assert other.own == other.kept


def test_the_source_of_the_kernel_is_part_of_the_run(tmp_path: Path, kernel: ConsumerKernel) -> None:
    def of(one: ConsumerKernel) -> dict[str, Any]:
        asked = run_options(tmp_path, SIZE, serve=("vllm",), kernels={"vllm": one})
        return run_identity.fingerprint(asked, environment(), "nsys")

    changed = consumer_kernel.read(
        "vllm", write_source(tmp_path / "fp8_utils.py", old="return part *", new="return 2 * part *")
    )
    assert run_identity.differences(of(kernel), of(kernel)) == []
    (line,) = run_identity.differences(of(kernel), of(changed))
    assert "vllm" in line and kernel.sha in line and changed.sha in line


def test_the_default_is_that_of_the_server(tmp_path: Path) -> None:
    kernel = consumer_kernel.read("sglang", write_source(tmp_path / "a.py", SGLANG))
    (server,) = serving.servers(("sglang",), device("gfx942"), kernels={"sglang": kernel})
    fnuz = replace(SIZE, dtype_a="fp8_e4m3_fnuz", dtype_b="fp8_e4m3_fnuz")
    (default,) = server.musts(fnuz)
    assert (default.family, default.num_stages, default.kpack) == ("sglang_block_fp8", 3, 1)
