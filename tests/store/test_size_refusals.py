"""Lists of sizes that are wrong: each is named with file, entry and line."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from any_text import any_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples import load_sizes
from size_lists import CONFIG, ROCM, ROCM_LIST, SIZE, load

from gemm_tuner.cli.size_flags import one_size
from gemm_tuner.core.errors import EXIT_INPUT, UserError
from gemm_tuner.core.workload import workload_of
from gemm_tuner.gemm.problem_keys import Defaults
from gemm_tuner.store.size_rows import keys_of
from gemm_tuner.system.documents import dump_yaml
from gemm_tuner.system.row_facts import FACTS

FUZZ = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "50")) // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
ROW_KEYS = keys_of(workload_of("gemm"))


def refusal(path: Path, value: object, defaults: Defaults | None = None) -> str:
    with pytest.raises(UserError) as caught:
        load(path, value, defaults)
    assert caught.value.exit_status == EXIT_INPUT
    message = caught.value.one_line()
    assert str(path) in message
    assert message.isprintable()
    return message


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"M": 4096.0}, ["M is 4096.0", "an integer from 1 to 2147483647", "write 4096, without a fraction"]),
        ({"M": 0.5}, ["M is 0.5", "an integer"]),
        ({"N": "4096"}, ["N is '4096'", "an integer", "without quotes"]),
        ({"N": "1e3"}, ["N is '1e3'", "an integer"]),
        ({"K": True}, ["K is true", "an integer"]),
        ({"K": 0}, ["K is 0", "from 1"]),
        ({"K": -5}, ["K is -5"]),
        ({"K": 2**31}, ["K is 2147483648", "2147483647"]),
        ({"K": 2**62}, ["K is 4611686018427387904"]),
        ({"K": None}, ["K is nothing"]),
        ({"K": [1]}, ["K is a list"]),
        ({"K": float("nan")}, ["K is nan"]),
        ({"K": float("inf")}, ["K is inf"]),
        ({"rowMajorC": "T"}, ["unknown key 'rowMajorC'", "accepted: M, N, K", "did you mean rowMajorB?"]),
        ({"m": 5}, ["unknown key 'm'", "did you mean M?"]),
        ({"num_wraps": 4}, ["unknown key 'num_wraps'", "did you mean num_warps?"]),
        ({"zzzzzz": 4}, ["unknown key 'zzzzzz'", "delete it"]),
        ({7: 4}, ["unknown key 7"]),
        ({None: 4}, ["unknown key nothing"]),
        ({"x" * 10_000: 4}, ["unknown key 'xxx", "..."]),
        ({"a\x1b[31m\u2028": 4}, ["unknown key 'a\\x1b[31m\\u2028'"]),
        ({"rowMajorA": "R"}, ["rowMajorA is 'R'", "T or true (row-major), N or false (column-major)"]),
        ({"rowMajorA": 1}, ["rowMajorA is 1"]),
        ({"layout_a": "n"}, ["layout_a is 'n'", "row, col"]),
        ({"layout_b": "T"}, ["layout_b is 'T'", "row, col"]),
        ({"layout_b": True}, ["layout_b is true", "row, col"]),
        ({"layout_a": "row", "rowMajorA": "T"}, ["both layout_a and rowMajorA"]),
        ({"layout_b": "row", "rowMajorB": "N"}, ["both layout_b and rowMajorB"]),
        ({"dtype": "fp16", "dtype_c": "fp32"}, ["both dtype and dtype_c"]),
        ({"dtype": "int32"}, ["dtype is 'int32'", "int32 is for C only"]),
        ({"dtype": ["bf16"]}, ["dtype is a list", "fp16, bf16, fp32, fp8_e4m3"]),
        ({"dtype_c": 16}, ["dtype_c is 16", "fp16, bf16, fp32"]),
        ({"dtype_b": ["bf16"]}, ["dtype_b is a list"]),
        (
            {"dtype_a": "fp16"},
            ["dtype_a is fp16 and dtype_b is bf16", "mixed input types are for fp8 only"],
        ),
        ({"batch": 0}, ["batch is 0", "an integer from 1 to 65535"]),
        ({"batch": 65536}, ["batch is 65536"]),
        ({"batch": 2.0}, ["batch is 2.0", "write 2, without a fraction"]),
        ({"activation": "gelo"}, ["activation is 'gelo'", "none, relu, gelu, silu", "did you mean gelu?"]),
        ({"activation": None}, ["activation is nothing", "none, relu"]),
        ({"scaling": "rowcol"}, ["scaling is 'rowcol'", "none, tensor, row_col, block", "did you mean row_col?"]),
        ({"scaling": 1}, ["scaling is 1"]),
        ({"precision": "tf23"}, ["precision is 'tf23'", "ieee, tf32", "did you mean tf32?"]),
        ({"alpha": "1e-5"}, ["alpha is '1e-5'", "a finite number", "write 1.0e-05, without quotes"]),
        ({"alpha": "2"}, ["alpha is '2'", "write 2.0, without quotes"]),
        ({"alpha": "two"}, ["alpha is 'two'", "a finite number"]),
        ({"alpha": True}, ["alpha is true"]),
        ({"alpha": float("inf")}, ["alpha is inf"]),
        ({"alpha": 1e-300}, ["alpha is 1e-300", "fp32"]),
        ({"beta": float("nan")}, ["beta is nan"]),
        ({"beta": 10**60}, ["beta is 1000", "fp32"]),
        ({"beta": "nan"}, ["beta is 'nan'"]),
        ({"beta": [1]}, ["beta is a list"]),
        ({"bias": 1}, ["bias is 1", "true or false"]),
        ({"bias": "yes"}, ["bias is 'yes'", "true or false"]),
        (
            {"BLOCK_SIZE_M": 64},
            ["the config lacks BLOCK_SIZE_N", "num_stages", "or delete the config's keys"],
        ),
        ({**CONFIG, "BLOCK_SIZE_M": 96}, ["BLOCK_SIZE_M is 96", "a power of two"]),
        ({**CONFIG, "BLOCK_SIZE_K": 0}, ["BLOCK_SIZE_K is 0", "from 1"]),
        ({**CONFIG, "BLOCK_SIZE_K": 2**21}, ["BLOCK_SIZE_K is 2097152"]),
        ({**CONFIG, "BLOCK_SIZE_N": 64.0}, ["BLOCK_SIZE_N is 64.0"]),
        ({**CONFIG, "num_warps": 3}, ["num_warps is 3", "a power of two"]),
        ({**CONFIG, "num_warps": True}, ["num_warps is true"]),
        ({**CONFIG, "num_stages": 0}, ["num_stages is 0", "older ROCm files write 0 for what is 2"]),
        ({**CONFIG, "GROUP_SIZE_M": 0}, ["GROUP_SIZE_M is 0"]),
        ({**CONFIG, "SPLIT_K": -1}, ["SPLIT_K is -1"]),
        ({**CONFIG, "waves_per_eu": -1}, ["waves_per_eu is -1"]),
        ({**CONFIG, "BLOCK_SIZE_N": 80}, ["BLOCK_SIZE_N is 80", "a power of two, or three times one"]),
        ({**CONFIG, "BLOCK_SIZE_N": 9 * 16}, ["BLOCK_SIZE_N is 144", "a power of two, or three times one"]),
        ({**CONFIG, "BLOCK_SIZE_K": 96}, ["BLOCK_SIZE_K is 96", "a power of two"]),
        ({**CONFIG, "EPILOGUE_SUBTILE": 5}, ["EPILOGUE_SUBTILE is 5", "from 1 to 4"]),
        ({**CONFIG, "EPILOGUE_SUBTILE": 8}, ["EPILOGUE_SUBTILE is 8", "from 1 to 4"]),
        ({**CONFIG, "EPILOGUE_SUBTILE": 0}, ["EPILOGUE_SUBTILE is 0"]),
        ({**CONFIG, "PROGRAMS_PER_SM": 65}, ["PROGRAMS_PER_SM is 65", "from 0 to 64"]),
        ({**CONFIG, "LAST_ARRIVER": 0}, ["unknown key 'LAST_ARRIVER'", "WARP_SPECIALIZE"]),
        ({**CONFIG, "WARP_SPECIALIZE": -1}, ["WARP_SPECIALIZE is -1"]),
        ({**CONFIG, "WARP_SPECIALIZE": 2}, ["WARP_SPECIALIZE is 2", "from 0 to 1"]),
        ({**CONFIG, "WARP_SPECIALIZE": True}, ["WARP_SPECIALIZE is true"]),
        ({**CONFIG, "STREAM_B": 2}, ["STREAM_B is 2"]),
        ({**CONFIG, "NUM_XCDS": 0}, ["NUM_XCDS is 0", "from 1 to 64"]),
        ({"NUM_XCDS": 8}, ["the config lacks BLOCK_SIZE_M"]),
        ({**CONFIG, "STREAM_C": 0}, ["unknown key 'STREAM_C'", "did you mean STREAM_B?"]),
        ({**CONFIG, "waves_per_eu": 2, "kpack": 0}, ["kpack is 0 beside other AMD options"]),
        ({**CONFIG, "family": "../gemm"}, ["family is '../gemm'", "gemm_tile"]),
        ({**CONFIG, "schedule_hint": 3}, ["schedule_hint is 3", "text"]),
        ({**CONFIG, "median_us": "fast"}, ["median_us is 'fast'", "a finite number"]),
        ({**CONFIG, "median_us": float("nan")}, ["median_us is nan"]),
        ({**CONFIG, "samples": 1.5}, ["samples is 1.5", "a whole number"]),
        ({**CONFIG, "samples": -1}, ["samples is -1"]),
        ({**CONFIG, "verified": "yes"}, ["verified is 'yes'", "true, interpreted, agreed, false"]),
        ({**CONFIG, "tie": 1}, ["tie is 1"]),
        ({**CONFIG, "name": 1}, ["name is 1", "text"]),
        ({**CONFIG, "source": "guessed"}, ["source is 'guessed'", "measured, replayed, predicted"]),
        ({**CONFIG, "source": "predicted", "median_us": 1.0}, ["median_us does not belong", "predicted"]),
        ({**CONFIG, "source": "predicted", "tflops": 1.0}, ["tflops does not belong"]),
        ({**CONFIG, "source": "measured", "predicted_us": 1.0}, ["predicted_us does not belong", "measured"]),
    ],
)
def test_a_bad_entry_is_named_with_file_entry_and_line(
    path: Path, keys: dict[object, object], words: list[str]
) -> None:
    message = refusal(path, [SIZE, {**SIZE, **keys}])
    assert "sizes.yaml, entry 2 (line 4): " in message
    for word in words:
        assert word in message
    assert len(message) < 1000


@pytest.mark.parametrize("key", ["M", "N", "K"])
def test_a_missing_dimension(path: Path, key: str) -> None:
    message = refusal(path, [{name: value for name, value in SIZE.items() if name != key}])
    assert f"entry 1 (line 1): {key} is missing" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["holds nothing where a list of sizes belongs", "- {M: 4096"]),
        ("[]", ["holds no sizes", "- {M: 4096"]),
        ("5", ["holds 5 where a list"]),
        ("text", ["holds 'text' where a list"]),
        ("- 5", ["entry 1: is 5 and not a mapping"]),
        ("- {M: 1, N: 1, K: 1}\n- [1, 1, 1]", ["entry 2: is a list and not a mapping"]),
        ("- null", ["entry 1: is nothing and not a mapping"]),
        ("{M: 1, N: 1, K: 1}", ["a mapping without format_version", "begin each size with '- '"]),
        ("- {M: 1, N: 1, K: 1, M: 2}", ["line 1", "'M' is given twice"]),
        ("format_version: 1", ["has no configs"]),
        (
            "{format_version: 3, configs: []}",
            ["format_version 3", "reads 1 to 2", "the version of the tuner that wrote"],
        ),
        ("{format_version: true, configs: []}", ["format_version true", "reads 1"]),
        ("{format_version: 1.0, configs: []}", ["format_version 1.0", "reads 1"]),
        ("{format_version: 1, configs: [], rows: []}", ["unknown key 'rows'", "configs, without_config"]),
        ("{format_version: 1, configs: []}", ["holds no sizes"]),
        ("{format_version: 1, configs: {}}", ["configs: holds a mapping where a list"]),
        ("{format_version: 1, configs: [{M: 1, N: 1, K: 1}]}", ["configs entry 1 (line 1): has no config"]),
        (
            "{format_version: 1, configs: [], without_config: [{M: 1, N: 1, K: 1}]}",
            ["without_config entry 1 (line 1): lacks reason"],
        ),
        (
            "{format_version: 1, configs: [], without_config: [{M: 1, N: 1, K: 1, reason: slow}]}",
            ["holds no sizes (1 under without_config)"],
        ),
    ],
)
def test_a_bad_file(path: Path, text: str, words: list[str]) -> None:
    message = refusal(path, text if text.endswith("\n") else text + "\n")
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        ({"median_us": float("inf")}, "median_us is inf"),
        ({"median_us": -5.0}, "median_us is -5.0"),
        ({"p20_us": 10**900}, "p20_us is 1000"),
        ({"samples": 10**900}, "samples is 1000"),
        ({"predicted_us": -1}, "predicted_us is -1"),
    ],
)
def test_a_time_that_no_kernel_takes_is_refused(path: Path, fact: dict[str, Any], words: str) -> None:
    path.write_text(dump_yaml([{"M": 1, "N": 1, "K": 1, **fact}]))
    with pytest.raises(UserError) as caught:
        load_sizes(path, Defaults())
    assert words in caught.value.one_line()


def test_an_unknown_key_beside_a_config_lists_all_keys(path: Path) -> None:
    message = refusal(path, [{**SIZE, **CONFIG, "num_ctas": 1}])
    for key in ROW_KEYS:
        assert key in message


def test_a_bad_default_is_refused_where_it_is_used(path: Path) -> None:
    mixed = Defaults(dtype_a="fp16")
    assert "mixed input types" in refusal(path, [SIZE], mixed)
    assert load(path, [{**SIZE, "dtype": "fp16"}], mixed)
    assert "dtype_a is 'int3'" in refusal(path, [SIZE], Defaults(dtype_a="int3"))


@pytest.mark.parametrize(
    ("size", "words"), [((0, 1, 1), "M is 0"), ((1, -1, 1), "N is -1"), ((1, 1, 2**31), "K is 2147483648")]
)
def test_one_size_refuses(size: tuple[int, int, int], words: str) -> None:
    with pytest.raises(UserError, match=f"-m, -n and -k: {words}"):
        one_size(*size, Defaults())


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the size file: No such file"):
        load_sizes(tmp_path / "typo.yaml", Defaults())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("- {M: 1, N: 1, K: 1}\n" * 10**6, id="long"),
        pytest.param("- 1\n" * 10**6, id="lines", marks=pytest.mark.grid),
        pytest.param("[" + "1," * 10**6 + "]", id="flow", marks=pytest.mark.grid),
    ],
)
def test_a_million_entries_end_soon(path: Path, text: str) -> None:
    path.write_text(text)
    started = time.process_time()  # of this process alone, whatever else the machine does
    with pytest.raises(UserError):
        load_sizes(path, Defaults())
    assert time.process_time() - started < 30


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | any_text(8)
    | st.sampled_from(["T", "N", "row", "col", "bf16", "fp16", "fp32", "none", "measured", "predicted", 16, 64])
    | st.sampled_from(["fp8_e4m3", "int8", "int32", "relu", "tensor", "tf32", 0, 1, 2.5, "1e-5"])
)
ANY = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(any_text(3), SCALARS, max_size=2)
ENTRY = st.builds(
    lambda keep, extra: {**{k: v for k, v in {**SIZE, **CONFIG, **ROCM}.items() if k in keep}, **extra},
    st.sets(st.sampled_from([*SIZE, *CONFIG, *ROCM]), min_size=6) | st.just(set(SIZE)),
    st.dictionaries(st.sampled_from([*ROW_KEYS, *FACTS, "reason", "m"]) | any_text(4), ANY, max_size=3),
)


@FUZZ
@given(st.lists(ENTRY | ANY, max_size=4), st.booleans())
def test_mutated_entries_load_or_raise_user_error(tmp_path: Path, rows: list[object], results: bool) -> None:
    value: object = {"format_version": 1, "configs": rows} if results else rows
    try:
        entries = load(tmp_path / "sizes.yaml", value)
    except UserError as error:
        assert "sizes.yaml" in error.one_line()
        assert error.one_line().isprintable()
        return
    for entry in entries:
        assert min(entry.problem.m, entry.problem.n, entry.problem.k) >= 1
        assert entry.problem.key
        assert entry.config is None or entry.config.name


@FUZZ
@given(st.data())
def test_a_mutated_file_loads_or_raises_user_error(tmp_path: Path, data: st.DataObject) -> None:
    text = ROCM_LIST
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 30)))
        text = text[:start] + data.draw(st.text("[]{}:,-'\" \n#&*!01TN.e", max_size=4)) + text[end:]
    try:
        assert load(tmp_path / "sizes.yaml", text)
    except UserError as error:
        assert "sizes.yaml" in error.one_line()
