"""Results files: what is written, and that it reads back as written and as sizes."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from any_text import any_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from result_files import write_choices
from samples import load_sizes

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.dtypes import DTYPES, INPUT_DTYPES
from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.records import Verified
from gemm_tuner.core.workload import workload_of
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import ACTIVATIONS, PRECISIONS, GemmProblem, Layout
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.store import results
from gemm_tuner.store.results import FORMAT_VERSION, Header
from gemm_tuner.store.size_rows import keys_of
from gemm_tuner.system.row_facts import FACTS, TIMED_FACTS

ROOT = Path(__file__).resolve().parents[2]
FUZZ = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "50")) // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
HEADER = Header(
    tool_version="0.1.0",
    date="2026-01-31T12:00:00Z",
    device="NVIDIA H200",
    arch="sm_90",
    num_sms=132,
    driver="570",
    triton="3.5.0",
    torch="2.9.0",
    python="3.11.4",
    profiler="nsys",
    profiler_version="2025.3",
    init_type="randn",
    seed=0,
    l2="flushed",
    source="measured",
)
NVIDIA = KernelConfig("gemm_tile", 128, 256, 64, 8, 1, 8, 3)
AMD = KernelConfig("gemm_tile", 256, 256, 64, 4, 2, 8, 2, waves_per_eu=2, matrix_instr_nonkdim=16, kpack=1)
CHOICE = Choice(
    problem=GemmProblem(4096, 4096, 4096),
    config=NVIDIA,
    source="measured",
    verified=Verified.TRUE,
    median_us=187.65432,
    p20_us=186.1119,
    p80_us=190.0,
    num_samples=100,
    vendor_us=180.55555,
    max_abs_error=0.012345678,
    error_over_bound=0.00098765,
    runner_up="gemm_tile_BM128_BN128_BK64_GM8_SK1_W4_S4",
    gap_pct=1.23456,
    tie=False,
    roofline_pct=74.05678,
)
ODD = GemmProblem(1, 7, 5000, "fp16", "fp16", "fp32", Layout.COL, Layout.COL, bias=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.yaml"


def written(path: Path, *choices: Choice, failures: Any = ()) -> dict[str, Any]:
    write_choices(path, HEADER, choices, failures)
    value = yaml.safe_load(path.read_text())
    assert isinstance(value, dict)
    return value


def test_the_file_as_a_whole(path: Path) -> None:
    value = written(path, CHOICE, failures=[(ODD, "no config was verified")])
    assert list(value) == ["format_version", "header", "configs", "without_config"]
    assert value["format_version"] == FORMAT_VERSION == 2
    assert value["header"] == dataclasses.asdict(HEADER)
    assert value["without_config"] == [
        {
            "M": 1, "N": 7, "K": 5000, "dtype_a": "fp16", "dtype_b": "fp16", "dtype_c": "fp32",
            "layout_a": "col", "layout_b": "col", "bias": True, "reason": "no config was verified",
        }
    ]  # fmt: skip


def test_a_measured_row_keys_order_and_rounding(path: Path) -> None:
    (row,) = written(path, CHOICE)["configs"]
    assert list(row.items()) == [
        ("M", 4096), ("N", 4096), ("K", 4096), ("dtype_a", "bf16"), ("dtype_b", "bf16"), ("dtype_c", "bf16"),
        ("layout_a", "row"), ("layout_b", "row"), ("bias", False), ("family", "gemm_tile"),
        ("BLOCK_SIZE_M", 128), ("BLOCK_SIZE_N", 256), ("BLOCK_SIZE_K", 64), ("GROUP_SIZE_M", 8),
        ("SPLIT_K", 1), ("num_warps", 8), ("num_stages", 3), ("name", NVIDIA.name), ("source", "measured"),
        ("verified", True), ("median_us", 187.654), ("p20_us", 186.112), ("p80_us", 190.0), ("samples", 100),
        ("tflops", 732.4),
        ("roofline_pct", 74.06), ("vendor_us", 180.556), ("vendor_ratio", 0.962), ("max_abs_error", 0.0123),
        ("error_over_bound", 0.000988), ("runner_up", CHOICE.runner_up), ("gap_pct", 1.23), ("tie", False),
    ]  # fmt: skip


def test_an_amd_row_has_the_amd_options(path: Path) -> None:
    (row,) = written(path, dataclasses.replace(CHOICE, config=AMD))["configs"]
    assert (row["waves_per_eu"], row["matrix_instr_nonkdim"], row["kpack"]) == (2, 16, 1)


def test_what_is_not_plain_is_in_the_row(path: Path) -> None:
    problem = GemmProblem(1, 1, 1, batch=3, activation="gelu", alpha=0.1, beta=1.0)
    config = dataclasses.replace(NVIDIA, PROGRAMS_PER_SM=2, STREAM_B=1)
    (row,) = written(path, dataclasses.replace(CHOICE, problem=problem, config=config))["configs"]
    assert {key: row[key] for key in ("batch", "activation", "alpha", "beta", "PROGRAMS_PER_SM", "STREAM_B")} == {
        "batch": 3, "activation": "gelu", "alpha": 0.1, "beta": 1.0, "PROGRAMS_PER_SM": 2, "STREAM_B": 1,
    }  # fmt: skip
    assert not {"scaling", "precision", "NUM_XCDS", "EPILOGUE_SUBTILE", "WARP_SPECIALIZE", "kpack"} & set(row)


def test_a_predicted_row_has_no_measured_field(path: Path) -> None:
    (row,) = written(path, dataclasses.replace(CHOICE, source="predicted"))["configs"]
    assert row["predicted_us"] == 187.654
    assert not set(row) & set(TIMED_FACTS)
    assert row["source"] == "predicted"


def test_what_is_not_known_is_left_out(path: Path) -> None:
    unknown = dataclasses.replace(
        CHOICE,
        p20_us=None,
        p80_us=None,
        vendor_us=None,
        gap_pct=None,
        runner_up="",
        max_abs_error=float("nan"),
    )
    (row,) = written(path, unknown)["configs"]
    absent = {"p20_us", "p80_us", "vendor_us", "vendor_ratio", "gap_pct", "runner_up", "max_abs_error"}
    assert not absent & set(row)
    assert None not in row.values()


@pytest.mark.parametrize(
    ("one", "scalar"),
    [
        (Verified.TRUE, True),
        (Verified.INTERPRETED, "interpreted"),
        (Verified.AGREED, "agreed"),
        (Verified.FALSE, False),
    ],
)
def test_verified_is_written_as_a_scalar_and_read_back(path: Path, one: Verified, scalar: bool | str) -> None:
    (row,) = written(path, dataclasses.replace(CHOICE, verified=one))["configs"]
    assert row["verified"] is scalar or row["verified"] == scalar != bool(scalar)
    assert [row.verified for row in results.read(path).rows] == [one]


def test_a_row_of_version_1_says_less_of_its_check(path: Path) -> None:
    other = dataclasses.replace(CHOICE, problem=ODD)
    written(path, dataclasses.replace(CHOICE, source="predicted"), other)
    assert [row.verified for row in results.read(path).rows] == [Verified.TRUE, Verified.TRUE]
    path.write_text(path.read_text().replace("format_version: 2", "format_version: 1"))
    assert [row.verified for row in results.read(path).rows] == [Verified.INTERPRETED, Verified.TRUE]
    path.write_text(path.read_text().replace("  verified: true\n", ""))
    assert [row.verified for row in results.read(path).rows] == [Verified.FALSE, Verified.FALSE]


def test_the_header_names_the_run_so_that_both_can_be_moved_together(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "results" / "run", tmp_path / "elsewhere" / "tuned.yaml"
    named = {path: results.run_reference(path, run) for path in (run / "a.yaml", tmp_path / "a.yaml", elsewhere)}
    assert list(named.values()) == [".", "results/run", str(run)]
    for path, name in named.items():
        found = results.run_folder(path, {"run": name})
        assert found is not None and found.resolve() == run
    assert results.run_folder(elsewhere, {}) is None


def test_numpy_numbers_are_written_as_plain_ones(path: Path) -> None:
    np = pytest.importorskip("numpy")
    choice = dataclasses.replace(
        CHOICE,
        median_us=np.float64(2.5),
        p20_us=np.float32(2.25),
        num_samples=np.int64(3),
    )
    (row,) = written(path, choice)["configs"]
    assert (row["median_us"], row["p20_us"], row["samples"], row["verified"]) == (2.5, 2.25, 3, True)


@pytest.mark.parametrize(
    "change",
    [
        {"source": "guessed"},
        {"median_us": float("nan")},
        {"median_us": 0.0},
        {"median_us": float("inf")},
        {"problem": GemmProblem(1, 1, 1, alpha=0.0)},
        {"problem": GemmProblem(1, 1, 1, "fp16", "bf16")},
    ],
)
def test_a_choice_that_no_row_can_hold_is_an_error_and_writes_nothing(path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        write_choices(path, HEADER, [dataclasses.replace(CHOICE, **change)])
    assert not path.exists()


def test_read_gives_back_what_was_written(path: Path) -> None:
    predicted = dataclasses.replace(CHOICE, problem=ODD, config=AMD, source="predicted", verified=Verified.FALSE)
    value = written(path, CHOICE, predicted, failures=[(GemmProblem(2, 2, 2), "all: wrong\n'x' # y")])
    read = results.read(path)
    assert read.header == dataclasses.asdict(HEADER)
    assert [(row.problem, row.config) for row in read.rows] == [(CHOICE.problem, NVIDIA), (ODD, AMD)]
    assert read.without_config == ((GemmProblem(2, 2, 2), "all: wrong\n'x' # y"),)
    for row, raw in zip(read.rows, value["configs"], strict=True):
        assert row.facts == {key: raw[key] for key in FACTS if key in raw}


def test_a_results_file_is_a_size_file_whatever_the_defaults(path: Path) -> None:
    failed = GemmProblem(3, 3, 3)
    written(path, CHOICE, dataclasses.replace(CHOICE, problem=ODD, config=AMD), failures=[(failed, "none")])
    other = Defaults("fp16", "fp16", "fp32", Layout.COL, Layout.COL, 2, True, "relu", 2.0, 1.0, "tensor", "tf32")
    for defaults in (Defaults(), other):
        sizes = load_sizes(path, defaults)
        assert [(e.problem, e.config) for e in sizes.entries] == [(CHOICE.problem, NVIDIA), (ODD, AMD)]
        assert sizes.without_config == (failed,)


def test_a_file_of_failures_only_reads(path: Path) -> None:
    written(path, failures=[(ODD, "none")])
    assert results.read(path).rows == ()


def edited(path: Path, old: str, new: str) -> str:
    written(path, CHOICE)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        results.read(path)
    return caught.value.one_line()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("format_version: 2", "format_version: 9", "format_version 9, and this tuner reads 1 to 2"),
        ("  num_sms: 132", "  num_sms: many", "header: num_sms is 'many'; accepted: a whole number"),
        ("  arch: sm_90", "  arch: 90", "header: arch is 90; accepted: text"),
        ("  arch: sm_90", "  arhc: sm_90", "unknown key 'arhc'"),
        ("  median_us: 187.654", "  median_ms: 187.654", "did you mean median_us?"),
        ("  source: measured\n  verified", "  source: predicted\n  verified", "median_us does not belong"),
        ("  num_warps: 8\n", "", "the config lacks num_warps"),
        ("  bias: false", "  bias: maybe", "bias is 'maybe'"),
    ],
)
def test_read_is_strict(path: Path, old: str, new: str, words: str) -> None:
    message = edited(path, old, new)
    assert words in message
    assert str(path) in message


def test_read_refuses_a_plain_list_and_a_header_that_is_no_mapping(path: Path) -> None:
    path.write_text("- {M: 1, N: 1, K: 1}\n")
    with pytest.raises(UserError, match="a list of sizes and not a results file"):
        results.read(path)
    path.write_text("{format_version: 1, header: 5, configs: [], without_config: []}\n")
    with pytest.raises(UserError, match="header: is 5 and not a mapping"):
        results.read(path)
    with pytest.raises(UserError, match="cannot read the results file"):
        results.read(path.parent / "none.yaml")


def test_a_failed_write_is_a_fault_of_the_machine_and_keeps_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path, CHOICE)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(EnvironmentFault, match="No space left on device"):
        write_choices(path, HEADER, [])
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_the_document_for_users_names_every_field_and_its_example_reads(path: Path) -> None:
    text = (ROOT / "docs" / "results_format.md").read_text()
    fields = [
        key for key in keys_of(workload_of("gemm")) if key not in ("dtype", "rowMajorA", "rowMajorB", "schedule_hint")
    ]
    for field in (*fields, *(f.name for f in dataclasses.fields(Header)), "without_config", "reason"):
        assert f"`{field}`" in text, field
    path.write_text(text.split("```yaml\n")[1].split("```")[0])
    read = results.read(path)
    assert len(read.header) == len(dataclasses.fields(Header))
    for row in read.rows:
        assert row.config is not None
        assert row.facts["name"] == row.config.name


DIMENSIONS = st.integers(1, 2**31 - 1)
FACTOR = st.sampled_from([1.0, -1.0, 1e-5, 3.4e38]) | st.floats(1e-30, 1e30)
PLAIN_TYPES = ("fp16", "bf16", "fp32")
INPUTS = [(name, name) for name in INPUT_DTYPES] + [("fp8_e4m3", "fp8_e5m2"), ("fp8_e5m2_fnuz", "fp8_e4m3_fnuz")]


@st.composite
def problems(draw: st.DrawFn) -> GemmProblem:
    """Any meaningful problem."""
    m, n, k = (draw(DIMENSIONS) for _ in range(3))
    dtype_a, dtype_b = draw(st.sampled_from(INPUTS))
    keys: dict[str, Any] = {"bias": draw(st.booleans()), "batch": draw(st.sampled_from([1, 2, 65535]))}
    if DTYPES[dtype_a].is_fp8 or dtype_a == "int8":
        kinds = ["none", "tensor", *(["row_col"] if keys["batch"] == 1 else [])]
        kinds += ["block"] if keys["batch"] == 1 and dtype_a != "int8" else []
        keys["scaling"] = draw(st.sampled_from(kinds))
    if dtype_a == "fp32":
        keys["precision"] = draw(st.sampled_from(PRECISIONS))
    dtype_c = draw(st.sampled_from(PLAIN_TYPES))
    if dtype_a == "int8" and keys["scaling"] == "none" and draw(st.booleans()):
        dtype_c = "int32"
    else:
        keys.update(activation=draw(st.sampled_from(ACTIVATIONS)), alpha=draw(FACTOR), beta=draw(FACTOR | st.just(0.0)))
    layouts = (draw(st.sampled_from(Layout)), draw(st.sampled_from(Layout)))
    return GemmProblem(m, n, k, dtype_a, dtype_b, dtype_c, *layouts, **keys)


PROBLEMS = problems()
POWER = st.sampled_from([2**i for i in range(9)])
WIDTH = POWER | st.sampled_from([3, 96, 192])
FLAG = st.integers(0, 1)
CONFIGS = st.builds(
    lambda fields, amd, **used: KernelConfig("gemm_tile", *fields, **used, **amd),
    st.tuples(POWER, WIDTH, POWER, st.integers(1, 64), st.integers(1, 64), POWER, st.integers(1, 8)),
    st.just({})
    | st.fixed_dictionaries(
        {"waves_per_eu": st.integers(0, 8), "matrix_instr_nonkdim": st.sampled_from([0, 4, 16]), "kpack": st.just(2)}
    ),
    EPILOGUE_SUBTILE=st.sampled_from([1, 2, 3, 4]),
    PROGRAMS_PER_SM=st.integers(0, 64),
    WARP_SPECIALIZE=FLAG,
    NUM_XCDS=st.integers(1, 64),
    STREAM_B=FLAG,
)
POSITIVE = st.floats(1e-3, 1e12)
MAYBE = st.none() | POSITIVE
CHOICES = st.builds(
    Choice,
    problem=PROBLEMS,
    config=CONFIGS,
    source=st.sampled_from(["measured", "replayed", "predicted"]),
    verified=st.sampled_from(Verified),
    median_us=POSITIVE,
    p20_us=MAYBE,
    p80_us=MAYBE,
    num_samples=st.integers(0, 10**6),
    vendor_us=MAYBE,
    max_abs_error=st.floats(0),
    error_over_bound=st.floats(0),
    runner_up=any_text(8),
    gap_pct=st.none() | st.floats(-100, 1e6),
    tie=st.booleans(),
    roofline_pct=st.floats(0, 1e3),
)


@FUZZ
@given(
    st.lists(CHOICES, min_size=1, max_size=4, unique_by=lambda choice: choice.problem),
    st.lists(st.tuples(PROBLEMS, any_text(12)), max_size=2),
)
def test_any_choices_round_trip(tmp_path: Path, choices: list[Choice], failures: list[tuple[GemmProblem, str]]) -> None:
    path = tmp_path / "round.yaml"
    write_choices(path, HEADER, choices, failures)
    entries = load_sizes(path, Defaults()).entries
    assert [(e.problem, e.config) for e in entries] == [(c.problem, c.config) for c in choices]
    read = results.read(path)
    assert list(read.without_config) == failures
    for row, choice in zip(read.rows, choices, strict=True):
        assert row.verified is choice.verified
        time_us = row.facts["predicted_us" if choice.source == "predicted" else "median_us"]
        assert time_us == pytest.approx(choice.median_us, abs=6e-4)
