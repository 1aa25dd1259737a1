"""``--dry_run`` and ``--explain``: what would be tried, and why not the rest."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from consumer_sources import write_source
from rule_cases import thin_space, thin_space_text
from samples import NO_GPU, RULES, TEMPLATES, archs, config, device, gpu, problem
from screens import Screen

from gemm_tuner.cli import main as cli
from gemm_tuner.cli.commands import Consoles
from gemm_tuner.cli.main import main
from gemm_tuner.core.errors import EXIT_INPUT, EXIT_OK, EXIT_UNVERIFIED, UserError
from gemm_tuner.decide import finals_plan
from gemm_tuner.gemm.axes import AMD_AXES, AXES
from gemm_tuner.gemm.workload import WORKLOAD
from gemm_tuner.languages.cute import extra, library
from gemm_tuner.measure import device as devices
from gemm_tuner.measure.budget import LIKE_NSYS
from gemm_tuner.measure.device import Machine
from gemm_tuner.pipeline import prepare
from gemm_tuner.pipeline.run_options import RunOptions
from gemm_tuner.search import expected_requests
from gemm_tuner.space import prune, space

Thin = Callable[[str], list[str]]
SIZE = ["-m", "4096", "-n", "4096", "-k", "4096"]
FP8_BLOCK = ["--dtype", "fp8_e4m3", "--scaling", "block", "--layout_b", "col"]
RULES_TEXT = '''from gemm_tuner.space.rule import VALIDITY, rule
@rule(VALIDITY)
def none_at_all(c, p, d):
    """None is good enough for {why}."""
    return {body}
'''


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devices, "look", lambda: NO_GPU)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def thin(tmp_path_factory: pytest.TempPathFactory) -> Thin:
    """Flags for an architecture and its thin space."""

    def flags(arch: str) -> list[str]:
        path = tmp_path_factory.mktemp("space") / "thin.yaml"
        path.write_text(thin_space_text(arch))
        return ["--arch", arch, "--space", str(path)]

    return flags


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(list(argv)) == EXIT_OK
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *argv: str, status: int = EXIT_INPUT) -> tuple[str, str]:
    assert main(list(argv)) == status
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    return captured.out, captured.err


@pytest.mark.parametrize("arch", archs("sm_90", "gfx942"))
def test_a_dry_run_answers_and_then_prints_the_funnel(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, thin: Thin, arch: str
) -> None:
    out = shown(capsys, *SIZE, *thin(arch), "--dry_run")
    candidates = thin_space(arch)
    pruned = prune.apply(candidates.columns, problem(4096, 4096, 4096), device(arch), candidates.rules)
    assert f"4096x4096x4096_bf16_nn on {arch}" in out
    for row in pruned.funnel:
        is_shown = re.search(rf"^{row.rule} +{row.cut} +{row.remain} .*\[{row.kind.value}\]", out, re.MULTILINE)
        assert bool(is_shown) == bool(row.cut), row.rule
        assert row.why in out or not row.cut
    whole = shown(capsys, *SIZE, *thin(arch), "--dry_run", "--verbose")
    assert [row.rule for row in pruned.funnel if f"\n{row.rule} " not in whole] == []
    kernels = {config.kernel_symbol for config in space.configs_of(candidates.configs.iloc[pruned.kept])}
    answer = out[: out.index(" on " + arch)]
    assert f"configurations to try: {len(pruned.kept)}, sizes: 1, kernels to compile: {len(kernels)}" in answer
    assert re.search(r"to compile .*: \d+ s ", answer) and re.search(
        r"to time: \d+ s .*predicted, not measured", answer
    )
    assert len(pruned.kept) > 0
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, thin: Thin) -> None:
    for width in (60, 80):
        for words in ((), ("--verbose",)):
            screen = Screen(width)
            monkeypatch.setattr(cli, "consoles", lambda screen=screen: Consoles(screen.console, screen.console))
            assert main([*SIZE, *thin("sm_90"), "--dry_run", *words]) == EXIT_OK
            assert max(map(len, screen.lines)) <= width
            text = " ".join(" ".join(screen.lines).split())
            assert "not measured" in text[: text.index("(the whole space)")]
            assert bool(words) == (why("shared_memory_fits") in text)


def test_the_estimate_is_of_the_search_that_would_run(capsys: pytest.CaptureFixture[str], thin: Thin) -> None:
    found = {}
    for search in ("full", "guided", "quick"):
        out = shown(capsys, *SIZE, *thin("sm_90"), "--no_heuristics", "--dry_run", "--search", search)
        estimate = re.search(
            r"try: (\d+), .*times about (\d+) of them.*to compile .*: (\d+) s .*to time: (\d+) s", out, re.DOTALL
        )
        assert estimate is not None, out
        found[search] = tuple(map(int, estimate.groups()))
    total = found["full"][0]
    assert found["full"][1] == total and found["quick"][1] == 16
    assert found["guided"][1] == round(0.063 * min(total, 800)) > 32
    assert found["full"][2:] > found["guided"][2:] > found["quick"][2:]


def test_the_estimate_says_how_much_of_it_is_profiler_starts(capsys: pytest.CaptureFixture[str], thin: Thin) -> None:
    def told(*flags: str) -> tuple[int, ...]:
        out = shown(capsys, *SIZE, *thin("sm_90"), "--dry_run", "--search", "quick", *flags)
        found = re.search(r"to time: (\d+) s .* of which (\d+) profiler starts (\d+) s", out)
        assert found is not None
        return tuple(map(int, found.groups()))

    time_s, starts, starts_s = told()
    assert starts == finals_plan.PROCESSES  # screening is in the launcher's process
    assert LIKE_NSYS.start_s < starts_s < 2 * LIKE_NSYS.start_s  # they start side by side
    assert starts_s <= time_s
    one_more = ("--screen_with", "nsys")
    assert told(*one_more)[1:] == (1 + starts, starts_s + round(LIKE_NSYS.start_s))  # quick screens in one
    assert told(*one_more, "--jobs", "3")[1] == 3 + starts
    assert told(*one_more, "--search", "guided")[1] == 3 + starts
    longer_s = told("--iters", "3000")[0] - time_s
    assert longer_s > finals_plan.PROCESSES * 2000 * 10 * LIKE_NSYS.each_s  # ten finalists
    one, two = (told("--iters", "3000", "--ngpus", count)[0] for count in "12")
    assert starts_s < two < one


def test_a_dry_run_needs_no_gpu_for_a_named_profiler(capsys: pytest.CaptureFixture[str]) -> None:
    assert "NVIDIA H200" in shown(capsys, *SIZE, "--dry_run", "--profiler", "nsys")


def test_a_dry_run_is_for_the_gpu_at_hand(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "look", lambda: Machine((gpu(0, "NVIDIA A100", "sm_80"),), NO_GPU.versions, ""))
    assert "on sm_80" in shown(capsys, *SIZE, "--dry_run")


def test_several_sizes_take_a_line_each(capsys: pytest.CaptureFixture[str], tmp_path: Path, thin: Thin) -> None:
    (tmp_path / "sizes.yaml").write_text("- {M: 16, N: 16, K: 16}\n- {M: 4096, N: 4096, K: 4096}\n")
    argv = ("--gemm_size_file", "sizes.yaml", "--dry_run", *thin("sm_90"))
    total = len(thin_space("sm_90").configs)
    lines = shown(capsys, *argv).splitlines()
    funnels = [line for line in lines if f" of {total} kept " in line]
    assert [line.split(":")[0] for line in funnels] == ["16x16x16_bf16_nn", "4096x4096x4096_bf16_nn"]
    assert lines[-2:] == funnels and "predicted, not measured" in "".join(lines[:-2])
    assert len(shown(capsys, *argv, "--verbose").splitlines()) > 20


def test_without_heuristics_more_is_tried(capsys: pytest.CaptureFixture[str], thin: Thin) -> None:
    def tried(*argv: str) -> int:
        found = re.search(r"configurations to try: (\d+)", shown(capsys, *SIZE, *thin("sm_90"), "--dry_run", *argv))
        assert found
        return int(found[1])

    assert tried("--no_heuristics") > 5 * tried()


def test_a_size_without_configurations_is_told_last(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, thin: Thin
) -> None:
    (tmp_path / "sizes.yaml").write_text("- {M: 2000000000, N: 2000000000, K: 16}\n- {M: 16, N: 16, K: 16}\n")
    argv = ("--gemm_size_file", "sizes.yaml", "--dry_run", *thin("sm_90"))
    out, err = refused(capsys, *argv, status=EXIT_UNVERIFIED)
    total = len(thin_space("sm_90").configs)
    line = re.search(rf"16_bf16_nn: 0 of {total} kept \((.*)\)", out)
    assert line
    assert sum(int(cut) for cut in re.findall(r" -(\d+)", line[1])) == total
    assert "configurations to try: " in out
    last = re.search(r"operands_fit_memory -(\d+)", line[1])
    assert last
    assert f"2000000000x2000000000x16_bf16_nn: no configuration is left; the last {last[1]} were cut by operands" in err


def test_rules_and_space_of_ones_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "validity.py").write_text(RULES_TEXT.format(why="this", body="c.num_warps < 1"))
    (rules / "heuristics.py").write_text("")
    (rules / "families.py").write_text("")
    source = (RULES / "space_sm_90.yaml").read_text()
    only_tile = source[: source.index("  gemm_persistent:")]
    (tmp_path / "mine.yaml").write_text(re.sub("SPLIT_K: .*", "SPLIT_K: [1]", only_tile))
    argv = (*SIZE, "--dry_run", "--arch", "sm_90", "--rules", str(rules), "--space", "mine.yaml")
    out, err = refused(capsys, *argv, status=EXIT_UNVERIFIED)
    assert re.search(r"none_at_all +10000 +0 ", out)
    assert "cut by none_at_all: None is good enough for this; " in err
    (rules / "validity.py").write_text(RULES_TEXT.format(why="that", body="c.num_warps == 4"))
    assert "configurations to try: 2500" in shown(capsys, *argv)


def test_explain_a_name_that_is_cut_and_one_that_is_kept(capsys: pytest.CaptureFixture[str], thin: Thin) -> None:
    cut = config(BLOCK_SIZE_M=256, BLOCK_SIZE_N=256, BLOCK_SIZE_K=256, num_warps=8, num_stages=6).name
    assert shown(capsys, *SIZE, *thin("sm_90"), "--explain", cut).splitlines() == [
        "4096x4096x4096_bf16_nn on sm_90: 1 configuration",
        "  1  cut by shared_memory_fits (validity): " + why("shared_memory_fits"),
    ]
    kept = config(family="gemm_persistent", GROUP_SIZE_M=16, num_stages=6).name
    out = shown(capsys, *SIZE, *thin("sm_90"), "--explain", kept)
    assert out.splitlines()[1] == "  1  kept: no rule cuts it" and "cut by" not in out


def why(name: str) -> str:
    return next(rule.why for rule in thin_space("sm_90").rules if rule.name == name)


def test_explain_counts_what_matches(capsys: pytest.CaptureFixture[str], thin: Thin) -> None:
    # Of gemm_tile alone: 125 tiles, two GROUP_SIZE_M, two num_stages.
    out = shown(capsys, *SIZE, *thin("sm_90"), "--explain", "SPLIT_K = 32, num_warps=8").splitlines()
    assert out[0].endswith(": 500 configurations")
    counts = [int(line.split()[0]) for line in out[1:]]
    assert sum(counts) == 500
    assert any("cut by split_k_for_few_tiles (heuristic)" in line for line in out)


def test_explain_takes_a_family_as_a_field(capsys: pytest.CaptureFixture[str], thin: Thin) -> None:
    argv = (*SIZE, *thin("sm_90"), "--explain")
    one, two = (shown(capsys, *argv, f"num_warps=8{more}").splitlines()[0] for more in ("", ",family=gemm_persistent"))
    both, of_family = (int(line.split()[-2]) for line in (one, two))
    assert 0 < of_family < both
    assert "accepted: gemm_" in refused(capsys, *argv, "family=gemm_tiles")[1]


PLAIN = ("--families", "gemm_tile,gemm_persistent", "--explain")


def by_the_model(flags: list[str]) -> list[str]:
    """What the rules keep of SIZE in a thin space of PLAIN's families, predicted best first."""
    options = RunOptions(
        (), TEMPLATES, RULES, Path(), families=("gemm_tile", "gemm_persistent"), space_file=Path(flags[-1])
    )
    size, of = problem(4096, 4096, 4096), device("sm_90")
    candidates = prepare.load_space(options, of)
    state = prepare.state_of(candidates, size, of, prepare.cut_space(candidates, size, of))
    return prepare.best_predicted(state, list(state.kept), len(state.kept))


def test_explain_says_whether_a_run_without_a_gpu_compiles_what_no_rule_cuts(
    capsys: pytest.CaptureFixture[str], thin: Thin
) -> None:
    flags = thin("sm_90")
    order = by_the_model(flags)
    for place, is_compiled in ((1, True), (16, True), (17, False), (len(order), False)):
        out = shown(capsys, *SIZE, *flags, *PLAIN, order[place - 1])
        assert f"place {place} of {len(order)}" in out
        assert f"compiles 16 of {len(order)}, {'' if is_compiled else 'not '}this one" in out
    out = shown(capsys, *SIZE, *flags, *PLAIN, "SPLIT_K=1")
    assert f"place 1 to {len(order)} of {len(order)}" in out and "16 of these" in out


def test_explain_says_that_a_search_may_not_ask_for_what_no_rule_cuts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, thin: Thin
) -> None:
    monkeypatch.setattr(devices, "look", lambda: Machine((gpu(0),), NO_GPU.versions, ""))
    flags = thin("sm_90")
    order = by_the_model(flags)
    out = shown(capsys, *SIZE, *flags, *PLAIN, order[1])
    assert f"place 2 of {len(order)}" in out and "compiles" not in out
    assert f"--search guided times about {expected_requests('guided', len(order), 'gemm')} of {len(order)}" in out
    assert "times about" not in shown(capsys, *SIZE, *flags, "--search", "full", *PLAIN, order[1])


def test_explain_keeps_what_is_tried_for_a_server(capsys: pytest.CaptureFixture[str], thin: Thin) -> None:
    flags = [*SIZE, *FP8_BLOCK, *thin("sm_90"), "--families", "gemm_persistent", "--serve", "vllm"]
    tried = re.search(r"configurations to try: (\d+)", shown(capsys, *flags, "--dry_run"))
    kept = [
        re.search(r"(\d+)  kept", shown(capsys, *flags, "--explain", f"family={name}"))
        for name in ("gemm_tile", "gemm_persistent")
    ]
    assert tried and sum(int(one[1]) for one in kept if one) == int(tried[1])


def test_explain_takes_the_short_form_that_terminals_show(capsys: pytest.CaptureFixture[str], thin: Thin) -> None:
    flags = thin("sm_90")
    name = by_the_model(flags)[0]
    short = WORKLOAD.short_config(name)
    assert " " in short
    assert shown(capsys, *SIZE, *flags, *PLAIN, short) == shown(capsys, *SIZE, *flags, *PLAIN, name)
    assert repr(f"{short}9") in refused(capsys, *SIZE, *flags, *PLAIN, f"{short}9")[1]


@pytest.mark.parametrize("text", ["gemm_cute_BM128_BN160_BK64_GM4_SK1", "num_stages=0, family=gemm_cute"])
def test_explain_says_what_a_family_that_is_absent_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.delenv(library.RUNTIME_VARIABLE, raising=False)
    monkeypatch.setattr(extra, "installed", dict)
    err = refused(capsys, *SIZE, "--arch", "sm_90", "--explain", text)[1]
    assert "gemm_cute needs what is not installed" in err and extra.GET in err


def test_explain_knows_the_fields_that_few_use(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = (RULES / "space_sm_90.yaml").read_text()
    axes, small = source[: source.index("families:")], config(NUM_XCDS=8, STREAM_B=1).to_dict()
    lines = [f"    {field}: [{small[field]}]" for field in AXES if field not in AMD_AXES and field != "STREAM_B"]
    text = "\n".join([f"{axes}families:\n  gemm_tile:", *lines, "    STREAM_B: [0, 1]", ""])
    (tmp_path / "mine.yaml").write_text(text)
    argv = (*SIZE, "--arch", "sm_90", "--space", "mine.yaml", "--explain")
    assert "sm_90: 1 configuration" in shown(capsys, *argv, "STREAM_B=1,NUM_XCDS=8,WARP_SPECIALIZE=0")
    assert "sm_90: 1 configuration" in shown(capsys, *argv, config(NUM_XCDS=8).name)
    assert "_XC8_SB1" in refused(capsys, *argv, config(NUM_XCDS=8, STREAM_B=1).name + "1")[1]
    assert "accepted: 8" in refused(capsys, *argv, "NUM_XCDS=4")[1]


@pytest.mark.parametrize("extra", [("--batch", "4"), ("-dtype_a", "fp32", "--precision", "tf32"), ("--beta", "0.5")])
def test_what_is_not_plain_is_in_the_title(
    capsys: pytest.CaptureFixture[str], thin: Thin, extra: tuple[str, ...]
) -> None:
    titles = {"--batch": "4x4096x4096x4096_bf16_nn_batched", "-dtype_a": "_fp32_nn_tf32", "--beta": "_beta_0.5"}
    out = shown(capsys, *SIZE, *extra, *thin("sm_90"), "--explain", "SPLIT_K=1")
    assert f"{titles[extra[0]]} on sm_90: " in out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["'' is no configuration", "FIELD=VALUE"]),
        ("gemm_tile_BM128_BN128_BK64_GM1_SK1_W4_S9", ["_S9'", "gemm_tile_BM128_BN128_BK64_GM1_SK1_W4_S"]),
        ("BLOCK_SIZE_M=48", ["BLOCK_SIZE_M 48 is not in the space of sm_90", "16, 32, 64, 128", "256"]),
        ("BLOCK_SIZE=64", ["'BLOCK_SIZE=64' is no FIELD=VALUE", "did you mean BLOCK_SIZE_"]),
        ("num_warps=", ["'num_warps=' is no FIELD=VALUE", "num_stages"]),
        ("num_warps=four", ["num_warps four is not in the space of sm_90"]),
        ("num_warps=--4", ["is no FIELD=VALUE"]),
        ("num_warps=\u00b2", ["is no FIELD=VALUE"]),
        ("num_warps=4,", ["'' is no FIELD=VALUE"]),
        ("num_warps=4,num_warps=8", ["num_warps is given twice"]),
        ("STREAM_C=1", ["is no FIELD=VALUE", "NUM_XCDS", "did you mean STREAM_B?"]),
        ("LAST_ARRIVER=0", ["is no FIELD=VALUE"]),
        ("kpack=2", ["kpack 2 is not in the space of sm_90"]),
    ],
)
def test_explain_of_what_is_no_configuration(
    capsys: pytest.CaptureFixture[str], thin: Thin, text: str, words: list[str]
) -> None:
    out, err = refused(capsys, *SIZE, *thin("sm_90"), f"--explain={text}")
    assert out == ""
    assert [word for word in ["--explain", *words] if word not in err] == []


def test_families_narrow_the_space() -> None:
    axes = space.load(space.space_path(RULES, "sm_90"), "sm_90").families
    assert list(prepare.of_families(axes, ["gemv", "gemm_tile"])) == ["gemm_tile", "gemv"]  # in the space's order
    assert prepare.of_families(axes, []) == axes
    with pytest.raises(UserError, match=r"'gemm_tyle' is no family of this space.*accepted: gemm_tile.*gemm_tile\?"):
        prepare.of_families(axes, ["gemm_tyle"])


def test_a_relative_is_told_and_no_other_gpu_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, *SIZE, "--arch", "sm_87", "--families", "gemm_persistent", "--dry_run")
    warning = [line for line in out.splitlines() if "sm_86" in line]
    assert len(warning) == 1 and "sm_87" in warning[0] and "relative" in warning[0]
    assert "1 x sm_87" in out


@pytest.mark.parametrize(("arch", "name"), [("sm_89", "L40S"), ("gfx1201", "RX 9070 XT")])
def test_the_dry_run_names_a_gpu_of_the_architecture(capsys: pytest.CaptureFixture[str], arch: str, name: str) -> None:
    out = shown(capsys, *SIZE, "--arch", arch, "--families", "gemm_persistent", "--dry_run")
    assert re.search(rf"1 x .*{name}", out) and "relative" not in out


def test_a_dry_run_refuses_a_server_that_can_launch_none_of_the_sizes(
    capsys: pytest.CaptureFixture[str], thin: Thin
) -> None:
    flags = [*SIZE, *thin("sm_90"), "--serve", "vllm"]
    out, line = refused(capsys, *flags, "--dry_run")
    assert "--serve" in line and out == ""
    assert line == refused(capsys, *flags)[1]


def test_a_dry_run_counts_what_is_tried_for_a_server(
    capsys: pytest.CaptureFixture[str], thin: Thin, tmp_path: Path
) -> None:
    flags = [*SIZE, *FP8_BLOCK, *thin("sm_90"), "--families", "gemm_persistent"]

    def tried(*more: str) -> int:
        found = re.search(r"configurations to try: (\d+)", shown(capsys, *flags, *more, "--dry_run"))
        assert found is not None
        return int(found[1])

    source = write_source(tmp_path / "source" / "fp8_utils.py")
    none, stand_in, own = tried(), tried("--serve", "vllm"), tried("--serve", "vllm", "--kernel_from", str(source))
    assert none < stand_in and none < own


@pytest.mark.parametrize(("size", "offered"), [("2000000000", False), ("64", True)])
def test_to_drop_heuristics_is_offered_where_that_leaves_something(
    capsys: pytest.CaptureFixture[str], size: str, offered: bool
) -> None:
    """Nothing is packed of aligned operands, by a heuristic that is asked before what limits the size."""
    flags = ["-m", size, "-n", size, "-k", "64", "--arch", "sm_90", "--families", "gemm_packed", "--dry_run"]
    assert ("add --no_heuristics" in refused(capsys, *flags, status=EXIT_UNVERIFIED)[1]) == offered
