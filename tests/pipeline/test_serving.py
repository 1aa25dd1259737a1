"""--serve on a stand-in GPU: what servers can launch is searched, timed and checked beside the winner."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rule_cases import thin_space, thin_space_text
from samples import ROOT, config, device, load_sizes
from tuning import FIVE, StandInGpu, restarted, run_options, session, state_of

from gemm_tuner.cli import main as cli
from gemm_tuner.cli.options import build_parser
from gemm_tuner.core.choice import ServedChoice
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Status, Verdict, Verified
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.launch.plan import VERIFY, Plan
from gemm_tuner.measure.launcher_events import OnEvent, ignore
from gemm_tuner.measure.retry import OnFound, StageRun
from gemm_tuner.pipeline import idle_flags, predict, prepare, serving, serving_space
from gemm_tuner.pipeline.compile_stage import CompileStage
from gemm_tuner.pipeline.serving_space import searched_apart
from gemm_tuner.pipeline.session import Session
from gemm_tuner.pipeline.tune import Tuning
from gemm_tuner.search import make_search
from gemm_tuner.space.prune import Pruned
from gemm_tuner.store import older_configs, results
from gemm_tuner.store.sizes import SizeEntry

SM_90 = device("sm_90")
SIZE = GemmProblem(512, 4096, 7168, "fp8_e4m3", "fp8_e4m3", "bf16", Layout.ROW, Layout.COL, scaling="block")
OTHER = GemmProblem(512, 512, 512)
WINNER = KernelConfig("gemm_persistent", 128, 128, 128, 8, 1, 8, 3, PROGRAMS_PER_SM=1)
SPLIT = config(BLOCK_SIZE_M=64, BLOCK_SIZE_N=64, BLOCK_SIZE_K=128, SPLIT_K=4)
GOOD = config(BLOCK_SIZE_M=64, BLOCK_SIZE_N=64, BLOCK_SIZE_K=128, num_stages=4)
NEXT = replace(GOOD, num_stages=3)
DEFAULT = KernelConfig("gemm_tile", 64, 128, 128, 32, 1, 4, 2)  # vLLM's
TIMES = {WINNER.name: 50.0, SPLIT.name: 55.0, GOOD.name: 70.0, NEXT.name: 75.0, DEFAULT.name: 100.0}
CONFIGS = (WINNER, SPLIT, GOOD, NEXT)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tuned(folder: Path, gpu: StandInGpu, *serve: str, **how: Any) -> Session:
    asked = {"search": "full", "compile_stage": False, "serve": serve, **how}
    run = session(folder, SIZE, OTHER, **asked)
    states = [state_of(SIZE, CONFIGS), state_of(OTHER, CONFIGS)]
    Tuning(run, states, (gpu,)).run()
    for state in states:
        state.assert_complete()
    return run


def test_a_row_holds_the_winner_and_the_best_that_the_server_can_launch(tmp_path: Path) -> None:
    done = tuned(tmp_path, StandInGpu(us=TIMES), "vllm")
    choice = done.results.choices[SIZE]
    assert choice.config == WINNER
    assert choice.served == (ServedChoice("vllm", GOOD, 70.0, Verified.TRUE, 100.0, **FIVE),)
    assert done.results.choices[OTHER].served == ()  # of a type that it does not take
    rows = results.read(done.results.path).rows
    assert [row.served for row in rows] == [choice.served, ()]


def test_a_plain_kernel_of_ones_own_is_served_for_every_type_and_may_split_k(tmp_path: Path) -> None:
    done = tuned(tmp_path, StandInGpu(us=TIMES), "triton")
    expected = (ServedChoice("triton", SPLIT, 55.0, Verified.TRUE, None, **FIVE),)
    assert [done.results.choices[size].served for size in (SIZE, OTHER)] == [expected, expected]
    (tmp_path / "out").mkdir()
    found = cli.main(["export", str(done.results.path), "--to", "triton", "-o", str(tmp_path / "out")])
    entries = json.loads((tmp_path / "out" / "triton_configs.json").read_text())
    assert found == 0 and [one["kwargs"]["SPLIT_K"] for one in entries.values()] == [4, 4]


class Wandering(StandInGpu):
    """Each of whose processes is 2 % slower than the one before."""

    def timings(self, plan: Plan, folder: Path, on_event: OnEvent = ignore, on_found: OnFound = ignore) -> StageRun:
        self.us = {name: us * 1.02**plan.process for name, us in TIMES.items()}
        return super().timings(plan, folder, on_event, on_found)


def test_a_served_time_says_how_far_processes_lay_apart_as_the_winner_does(tmp_path: Path) -> None:
    done = tuned(tmp_path, Wandering(us=TIMES), "vllm")
    (row, _) = results.read(done.results.path).rows
    (one,) = row.served
    assert one.process_spread_pct == row.facts["process_spread_pct"] == pytest.approx(100 * (1.02**4 - 1), abs=0.01)
    assert one.processes == row.facts["processes"] == 5


def test_each_server_has_its_own_default(tmp_path: Path) -> None:
    gpu = StandInGpu(us={**TIMES, replace(DEFAULT, num_stages=3).name: 90.0})
    served = tuned(tmp_path, gpu, "sglang", "vllm").results.choices[SIZE].served
    assert [(one.consumer, one.config, one.default_us) for one in served] == [
        ("sglang", GOOD, 90.0), ("vllm", GOOD, 100.0),
    ]  # fmt: skip


def test_a_wrong_one_gives_way_to_the_next(tmp_path: Path) -> None:
    (one,) = tuned(tmp_path, StandInGpu(us=TIMES, wrong=frozenset((GOOD.name,))), "vllm").results.choices[SIZE].served
    assert one.config == NEXT
    every = frozenset((GOOD.name, NEXT.name, DEFAULT.name))
    assert tuned(tmp_path / "b", StandInGpu(us=TIMES, wrong=every), "vllm").results.choices[SIZE].served == ()


def test_an_earlier_entry_goes_where_every_one_that_the_server_can_launch_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    every = frozenset((GOOD.name, NEXT.name, DEFAULT.name))
    for folder, gpu, kept in (("a", StandInGpu(us=TIMES), 1), ("b", StandInGpu(us=TIMES, wrong=every), 0)):
        tuned(tmp_path / folder, gpu, "vllm", results_file=path)
        assert [len(row.served) for row in results.read(path).rows] == [kept, 0]


def test_a_default_that_is_fastest_is_served_and_one_that_fails_has_no_time(tmp_path: Path) -> None:
    (one,) = tuned(tmp_path, StandInGpu(us={**TIMES, DEFAULT.name: 60.0}), "vllm").results.choices[SIZE].served
    assert (one.config, one.time_us, one.default_us) == (DEFAULT, 60.0, 60.0)
    gpu = StandInGpu(us=TIMES, statuses={DEFAULT.name: Status.OUT_OF_RESOURCES})
    (one,) = tuned(tmp_path / "b", gpu, "vllm").results.choices[SIZE].served
    assert (one.config, one.default_us) == (GOOD, None)


def test_what_is_served_is_checked_before_the_size_is_finished(tmp_path: Path) -> None:
    gpu = StandInGpu(us=TIMES)
    tuned(tmp_path, gpu, "vllm")
    checked = [name for plan in gpu.plans if plan.stage == VERIFY for work in plan.work for _, name in work.entries]
    assert GOOD.name in checked and checked.index(GOOD.name) < checked.index(WINNER.name)


def test_the_served_entry_survives_a_second_start(tmp_path: Path) -> None:
    run = session(tmp_path, SIZE, search="full", compile_stage=False, serve=("vllm",))
    Tuning(run, [state_of(SIZE, CONFIGS)], (StandInGpu(us=TIMES),)).run()
    first = run.results.choices[SIZE].served
    again = restarted(run)
    gpu = StandInGpu(us=TIMES)
    Tuning(again, [state_of(SIZE, CONFIGS)], (gpu,)).run()
    assert again.results.choices[SIZE].served == first and len(first) == 1 and gpu.plans == []


def test_the_finalists_of_a_server_come_in_however_slow(tmp_path: Path) -> None:
    many = tuple(replace(WINNER, GROUP_SIZE_M=1 << i) for i in range(1, 5))
    split = tuple(replace(SPLIT, num_stages=stages) for stages in range(2, 8))
    state = state_of(SIZE, (*many, *split, GOOD, NEXT))
    for index, name in enumerate(state.kept):
        state.record(name, Status.OK, screen_us=10.0 + index, screen_samples=5)
    servers = serving.servers(("vllm",), SM_90)
    names = serving.added(servers, state, state.fastest(8))
    assert names[:8] == state.fastest(8) and names[8:] == [GOOD.name, NEXT.name]


def test_a_search_looks_among_what_servers_can_launch_apart(tmp_path: Path) -> None:
    """The model's best 16 of all would be none of them."""
    split = tuple(replace(SPLIT, num_stages=1 + i % 7, GROUP_SIZE_M=1 << i // 7) for i in range(40))
    state = state_of(SIZE, (*split, GOOD, NEXT))
    inner = make_search("quick")
    search = searched_apart(inner, serving.servers(("vllm", "sglang"), SM_90), [state])
    from gemm_tuner.pipeline.round_parts import view_of

    names = search.propose([view_of(state)], SM_90)[SIZE]
    assert len(names) == 16 + 2 and names[16:] == [GOOD.name, NEXT.name]
    assert searched_apart(inner, (), [state]) is inner


def test_rules_that_compare_families_do_not_empty_a_servers_space() -> None:
    """With 512 rows the rules keep descriptors in place of pointers; a server has pointers only."""
    candidates = thin_space("sm_90")
    pruned = prepare.cut_space(candidates, SIZE, SM_90)
    (server,) = serving.servers(("vllm",), SM_90)

    def launchable(of: Pruned) -> list[str]:
        return server.launchable(prepare.state_of(candidates, SIZE, SM_90, of))

    assert launchable(pruned) == []
    wide = serving_space.widened(pruned, (server,), candidates, SIZE)
    assert len(launchable(wide)) > 20 and set(pruned.kept) < set(wide.kept)
    assert len(wide.kept) - len(pruned.kept) == len(launchable(wide))


def test_families_asked_for_leave_the_servers_one_in_the_space(tmp_path: Path) -> None:
    (thin := tmp_path / "space.yaml").write_text(thin_space_text("sm_90"))
    asked = run_options(tmp_path, SIZE, families=("gemm_persistent",), space_file=thin)
    assert set(prepare.load_space(asked, SM_90).configs["family"]) == {"gemm_persistent"}
    asked = replace(asked, serve=("vllm",))
    assert set(prepare.load_space(asked, SM_90).configs["family"]) == {"gemm_persistent", "gemm_tile"}


@pytest.mark.parametrize(
    ("name", "arch", "problem", "words"),
    [
        ("vllm", "sm_90", OTHER, ("no block scales", "--scaling block")),
        ("sglang", "sm_90", OTHER, ("no block scales", "--scaling block")),
        ("aiter", "sm_90", SIZE, ("AMD GPUs", "bf16")),
    ],
)
def test_a_server_that_takes_none_of_the_sizes_is_refused_with_what_it_takes(
    name: str, arch: str, problem: GemmProblem, words: tuple[str, ...]
) -> None:
    with pytest.raises(UserError) as caught:
        serving.require_some(serving.servers((name,), device(arch)), [problem])
    assert caught.value.where == "--serve" and all(word in str(caught.value) for word in words)


def test_a_server_is_asked_for_in_vain_where_nothing_is_chosen() -> None:
    words = ["-m", "64", "-n", "64", "-k", "64", "--serve", "vllm", "--serve", "sglang"]
    arguments = build_parser().parse(words)
    asked = cli.run_options_from(arguments, cli.read_sizes(arguments, cli.consoles().log))
    assert asked.serve == ("vllm", "sglang")
    assert idle_flags.of_run(asked, "measured") == []
    (line,) = idle_flags.of_run(asked, "measured", "--benchmark")
    assert line.startswith("--serve changes nothing")


def refusal_of(*words: str) -> str:
    arguments = build_parser().parse([*words, "--serve", "vllm"])
    asked = cli.run_options_from(arguments, cli.read_sizes(arguments, cli.consoles().log))
    with pytest.raises(UserError) as caught:
        serving.asked_for(asked, SM_90)
    return caught.value.one_line()


def test_a_refusal_names_every_reason_and_of_how_many_sizes(tmp_path: Path) -> None:
    rows = ["dtype: bf16", "dtype: fp16", "dtype: fp8_e4m3, scaling: block, layout_b: row"]
    path = tmp_path / "sizes.yaml"
    path.write_text("".join(f"- {{M: 512, N: 512, K: 512, {row}}}\n" for row in rows))
    line = refusal_of("--gemm_size_file", str(path))
    assert "2 sizes has no block scales" in line and "1 size has layout_a: row and layout_b: row" in line
    # Flags change nothing in entries that say all of it themselves.
    assert "change the entries" in line
    assert "entries" not in refusal_of("-m", "64", "-n", "64", "-k", "64")


def test_the_sizes_that_the_refusal_recommends_can_be_launched(tmp_path: Path) -> None:
    words = re.search(r"sizes --from config.json (.*?),", refusal_of_a_file(tmp_path))
    assert words is not None
    config_json = ROOT / "tests" / "data" / "size_sources" / "llama_config.json"
    path = tmp_path / "made.yaml"
    assert cli.main(["sizes", "--from", str(config_json), *words[1].split(), "-o", str(path)]) == 0
    entries = load_sizes(path, Defaults()).entries
    (server,) = serving.servers(("vllm",), SM_90)
    assert len(entries) > 0 and [server.fault(entry.problem) for entry in entries if server.fault(entry.problem)] == []


def refusal_of_a_file(folder: Path) -> str:
    (folder / "one.yaml").write_text("- {M: 64, N: 64, K: 64}\n")
    return refusal_of("--gemm_size_file", str(folder / "one.yaml"))


def test_a_server_that_takes_some_is_not_refused() -> None:
    serving.require_some(serving.servers(("vllm",), SM_90), [OTHER, SIZE])


def test_without_a_gpu_the_models_best_for_a_server_is_compiled_and_checked_too() -> None:
    split = tuple(replace(SPLIT, num_stages=1 + i % 7, GROUP_SIZE_M=1 << i // 7) for i in range(40))
    state = state_of(SIZE, (*split, GOOD, NEXT))
    servers = serving.servers(("vllm",), SM_90)
    assert serving.predicted_best(servers, state, list(state.kept)) == [GOOD.name, NEXT.name]
    at_both = (SIZE, replace(SIZE, m=93, n=93, k=135))
    right = [Verdict(problem, NEXT.name, True, 0.0, 0.1) for problem in at_both]
    wrong = [Verdict(SIZE, GOOD.name, False, 9.0, 9.0)]
    us = {name: state.predicted_us[name] for name in (GOOD.name, NEXT.name)}
    (one,) = serving.served_choices(
        servers, state, us, lambda _, name: right if name == NEXT.name else wrong, Verified.INTERPRETED
    )
    assert (one.config, one.verified, one.default_us) == (NEXT, Verified.INTERPRETED, None)
    assert one.time_us == pytest.approx(us[NEXT.name])


def test_a_check_that_was_cut_short_is_no_check(tmp_path: Path) -> None:
    """One verdict of two, however good: a kill between them leaves that in the store."""
    run = session(tmp_path, SIZE, OTHER)
    states = [state_of(SIZE, (GOOD, NEXT)), state_of(OTHER, (GOOD,))]
    servers = serving.servers(("vllm",), SM_90)
    us = {name: states[0].predicted_us[name] for name in (GOOD.name, NEXT.name)}
    run.store.add_verdict(SIZE, Verdict(SIZE, GOOD.name, True, 0.0, 0.1))
    run.store.add_failure(SIZE, NEXT.name, Status.WRONG, "off")
    run.store.add_failure(OTHER, GOOD.name, Status.WRONG, "off")
    run.store.record_outcome(OTHER, "", "none is right")
    assert serving.served_choices(servers, states[0], us, run.store.verdicts, Verified.INTERPRETED) == ()
    ((_, names),) = serving.to_check(servers[0], [(states[0], us)], run.store.verdicts)
    assert names == [GOOD.name, NEXT.name]
    # Starting again, such a size is checked anew.
    for state in states:
        for name in state.kept:
            state.record(name, Status.SPILLED, "so that nothing is compiled")
    predict.run(run, states)
    assert run.store.verdicts(SIZE, GOOD.name) == [] and run.store.failures(SIZE) == []
    assert [name for name, _, _ in run.store.failures(OTHER)] == [GOOD.name]


def test_a_benchmark_times_the_rows_own_and_what_is_served_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast another one is: a benchmark chooses nothing."""
    served = (ServedChoice("vllm", NEXT, 1.0, Verified.TRUE, 2.0),)
    entries = (SizeEntry(SIZE, SPLIT, served), SizeEntry(OTHER, WINNER))
    monkeypatch.setattr(CompileStage, "compile_sizes", lambda *_: None)  # the GPU that stands in launches no kernel
    monkeypatch.setattr(CompileStage, "compile", lambda *_: None)
    run = session(tmp_path, SIZE, OTHER, compile_stage=False)
    states = [prepare.given_state(entry.problem, entry.config, SM_90) for entry in entries if entry.config]
    served_to = serving.given(entries, SM_90)
    serving.add_given(served_to, states, entries)
    gpu = StandInGpu(us={**TIMES, SPLIT.name: 90.0, DEFAULT.name: 20.0, WINNER.name: 50.0})
    Tuning(run, states, (gpu,), given=served_to).run_given()
    one = run.results.choices[SIZE]
    assert (one.config, one.median_us) == (SPLIT, pytest.approx(90.0))
    assert one.served == (ServedChoice("vllm", NEXT, 75.0, Verified.TRUE, 20.0, **FIVE),)
    assert run.results.choices[OTHER].config == WINNER and run.results.choices[OTHER].served == ()


def test_a_results_file_read_as_sizes_carries_what_is_served(tmp_path: Path) -> None:
    done = tuned(tmp_path, StandInGpu(us=TIMES), "vllm")
    entries = load_sizes(done.results.path, Defaults()).entries
    assert [entry.served for entry in entries] == [done.results.choices[SIZE].served, ()]


@pytest.mark.parametrize(("older_us", "kept"), [(71.0, True), (80.0, False)])
def test_an_older_configuration_for_a_server_stays_until_one_is_better(
    older_us: float, kept: bool, tmp_path: Path
) -> None:
    """It is in no space, and is timed in the same finals."""
    older = replace(GOOD, num_warps=8)
    gpu = StandInGpu(us={**TIMES, older.name: older_us})
    how = {"older_served": {SIZE: {"vllm": older}}}
    (one,) = tuned(tmp_path, gpu, "vllm", **how).results.choices[SIZE].served
    assert one.config == (older if kept else GOOD)


def test_update_serves_the_servers_of_the_file(tmp_path: Path) -> None:
    done = tuned(tmp_path, StandInGpu(us=TIMES), "vllm")
    older = older_configs.read(done.results.path)[1]
    assert older == {SIZE: {"vllm": GOOD}}
    assert cli.servers_of([], older) == ("vllm",) and cli.servers_of(["sglang"], older) == ("vllm", "sglang")
    older_configs.keep(done.store, {}, older)
    assert older_configs.kept_served(done.store) == older
