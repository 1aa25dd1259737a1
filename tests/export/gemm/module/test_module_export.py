"""The exported module as a text: what is in it, what is left out, which configuration it gives a size."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import samples
from result_files import write_choices

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.records import Device, Verified
from gemm_tuner.export.gemm.module import ModuleFile, sections, write_module
from gemm_tuner.export.gemm.module.fallback import general_configs, pointer_fallback
from gemm_tuner.export.trust import Trust
from gemm_tuner.gemm.config import CONFIG_FIELDS, KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.space import prune
from gemm_tuner.store import results
from gemm_tuner.store.results import Row
from gemm_tuner.store.results_file import ResultsFile
from gemm_tuner.system import documents

H200 = samples.ROOT / "results" / "tuned" / "nvidia_h200_bf16.yaml"
HEADER = results.Header(
    *("0.1.0", "2026-01-31T12:00:00Z", "NVIDIA H200", "sm_90", 132, "570", "3.6.0", "2.11.0", "3.12.3"),
    *("nsys", "2025.3", "randn", 0, "flushed", "measured"),
)
PLAIN = samples.problem(512, 512, 512)
VALIDITY = prune.load_rules(samples.RULES, heuristics=False)


def choice(problem: GemmProblem, config: KernelConfig | None = None, verified: Verified = Verified.TRUE) -> Choice:
    timed = (verified, 10.0, 9.5, 10.5, 30, 12.0, 0.01, 0.001, "", None, False, 70.0)
    return Choice(problem, config or samples.config(), "measured", *timed)


def written(folder: Path, *rows: Choice, failures: Any = (), **header: Any) -> Path:
    path = folder / "tuned.yaml"
    write_choices(path, replace(HEADER, **header), rows, failures)
    return path


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ModuleFile:
    return write_module(H200, tmp_path_factory.mktemp("module") / "gemm.py")


@pytest.fixture(scope="module")
def h200(made: ModuleFile) -> ModuleType:
    return loaded(made.path)


def test_a_real_results_file_becomes_one_readable_file(made: ModuleFile, tmp_path: Path) -> None:
    out = made.path
    assert (made.num_sizes, made.left_out) == (len(results.read(H200).rows), ())
    assert out.stat().st_size < 7_500 * made.num_sizes
    text = out.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert "gemm_tuner" not in text.replace("tune_gemm", "")
    names = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    assert len(set(names) - {"_"}) == len([name for name in names if name != "_"])
    write_module(H200, tmp_path / "again.py")
    assert (tmp_path / "again.py").read_text(encoding="utf-8") == text


def test_the_module_needs_torch_and_triton_only(made: ModuleFile, tmp_path: Path) -> None:
    """Imported where this project, and all that it needs beside these two, cannot be."""
    shutil.copy(made.path, tmp_path)
    absent = "for name in ('gemm_tuner', 'jinja2', 'pandas', 'rich'): sys.modules[name] = None\n"
    code = f"import sys\n{absent}sys.path.insert(0, {str(tmp_path)!r})\nimport gemm\nprint(len(gemm.TUNED['bf16_nt']))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    tuned = sum(row.problem.layout_b.value == "col" for row in results.read(H200).rows)
    assert (done.returncode, done.stdout) == (0, f"{tuned}\n"), done.stderr


def test_the_table_holds_every_tuned_size_with_its_configuration_and_time(h200: ModuleType) -> None:
    found = results.read(H200)
    rows = {(kind, *row[:5]): (h200.CONFIGS[row[5]], *row[5:]) for kind in h200.TUNED for row in h200.TUNED[kind]}
    assert len(rows) == len(found.rows) > 0
    for row in found.rows:
        p, (config, its_us) = row.problem, in_triton(row)
        values, name, time_us = rows[p.signature, p.m, p.n, p.k, 1, ""]
        assert name == config.name and time_us == its_us
        assert {key: values[key] for key in config.to_dict()} == config.to_dict()
        assert h200.choose(p.signature, p.m, p.n, p.k) == h200.choose(p.signature, p.m, p.n, p.k, "bias") == name
    headers = (*found.earlier_headers, found.header)
    values = {key: dict.fromkeys(header[key] for header in headers) for key in found.header}
    assert {key: next(iter(of)) if len(of) == 1 else ", ".join(of) for key, of in values.items()} == h200.HEADER


def in_triton(row: Row) -> tuple[KernelConfig, float]:
    """The configuration that a module without kernels of CuTe DSL takes from a row, and its time in us."""
    one = row.substitute
    config, time_us = (row.config, row.facts["median_us"]) if one is None else (one.config, one.time_us)
    assert isinstance(config, KernelConfig) and time_us is not None
    return config, time_us


def is_valid(problem: GemmProblem, config: KernelConfig, device: Device) -> bool:
    """Whether no validity rule drops the configuration."""
    columns = prune.columns_of(pd.DataFrame([config.to_dict()]))
    return len(prune.apply(columns, problem, device, VALIDITY).kept) == 1


SIDES = (1, 17, 64, 1001, 4096, 65536)
CUBE = list(itertools.product(range(len(SIDES)), repeat=3))


@pytest.mark.parametrize(
    "places",
    [
        pytest.param([one for one in CUBE if sum(one) % 3 == 0], id="part"),
        pytest.param(CUBE, id="all", marks=pytest.mark.grid),
    ],
)
def test_whatever_size_is_asked_for_gets_a_configuration_that_is_valid_for_it(
    h200: ModuleType, places: list[tuple[int, int, int]]
) -> None:
    """With a bias too: it changes nothing in what is valid. In part, every two sides meet, with two of the third."""
    met = set()
    sizes = [(SIDES[m], SIDES[n], SIDES[k]) for m, n, k in places]
    for layout_b, size in itertools.product((Layout.ROW, Layout.COL), sizes):
        plain = GemmProblem(*size, layout_b=layout_b)
        name = h200.choose(plain.signature, *size)
        fields = {field: h200.CONFIGS[name][field] for field in CONFIG_FIELDS}
        assert is_valid(plain, KernelConfig(**fields), samples.device("sm_90")), (size, name)
        assert is_valid(replace(plain, bias=True), KernelConfig(**fields), samples.device("sm_90")), (size, name)
        met.add(name)
    assert len(met) > 25


def test_pointers_take_the_place_of_descriptors_where_these_cannot_be(h200: ModuleType) -> None:
    tuned = h200.choose("bf16_nt", 4096, 4096, 4096)
    assert h200.CONFIGS[tuned]["family"] == "gemm_persistent"
    for size, aligned in (((4096, 4096, 4100), True), ((4096, 4098, 4096), True), ((4096, 4096, 4096), False)):
        name = h200.choose("bf16_nt", *size, aligned=aligned)
        assert h200.CONFIGS[name]["family"] == "gemm_tile"
        assert name == h200.POINTER_TWIN[h200.choose("bf16_nt", 4096, 4096, 4096)]
    assert h200.choose("bf16_nt", 4095, 4096, 4096) == tuned  # rows of A are along K


def test_specialised_warps_give_way_where_c_is_added(tmp_path: Path) -> None:
    config = samples.config(
        family="gemm_persistent", BLOCK_SIZE_M=128, BLOCK_SIZE_N=128, num_warps=4, PROGRAMS_PER_SM=1, WARP_SPECIALIZE=1
    )
    rows = choice(PLAIN, config), choice(replace(PLAIN, m=64, beta=1.0))
    write_module(written(tmp_path, *rows), tmp_path / "some.py")
    module = loaded(tmp_path / "some.py")
    assert module.choose("bf16_nn", 512, 512, 512) == config.name
    name = module.choose("bf16_nn", 512, 512, 512, "beta")
    fields = {field: module.CONFIGS[name][field] for field in CONFIG_FIELDS}
    assert is_valid(replace(PLAIN, beta=1.0), KernelConfig(**fields), samples.device("sm_90"))
    assert not is_valid(replace(PLAIN, beta=1.0), config, samples.device("sm_90"))


def test_a_near_size_gets_what_its_neighbour_was_tuned_to(h200: ModuleType) -> None:
    assert h200.choose("bf16_nn", 18, 5120, 5120) == h200.choose("bf16_nn", 17, 5120, 5120)
    assert h200.choose("bf16_nt", 1, 4000, 4000) == h200.choose("bf16_nt", 1, 4096, 4096)
    assert h200.CONFIGS[h200.choose("bf16_nt", 2, 4096, 4096)]["family"] != "gemv"  # of one row
    far = h200.choose("bf16_nn", 100_000, 100_000, 16)
    assert far == h200.GENERAL["bf16_nn"][0]
    assert h200.choose("bf16_nn", 1, 100_000, 4) in h200.GENERAL["bf16_nn"][1:]


def test_slices_of_k_are_for_long_k_and_few_tiles(tmp_path: Path) -> None:
    split = samples.config(BLOCK_SIZE_M=16, BLOCK_SIZE_N=16, SPLIT_K=16)
    write_module(written(tmp_path, choice(samples.problem(16, 16, 8192), split)), tmp_path / "split.py")
    module = loaded(tmp_path / "split.py")
    assert module.choose("bf16_nn", 16, 32, 8192) == split.name
    assert module.choose("bf16_nn", 16, 16, 1000) != split.name  # less than a block each
    assert module.choose("bf16_nn", 30_000, 30_000, 8192) != split.name  # 230 GB of partial sums


def test_a_size_tuned_with_a_bias_serves_both_and_each_comes_first_for_its_own(tmp_path: Path) -> None:
    small, large = samples.config(BLOCK_SIZE_M=64), samples.config(BLOCK_SIZE_M=256)
    biased = replace(PLAIN, bias=True)
    other = replace(PLAIN, m=64, bias=True)
    path = written(tmp_path, choice(PLAIN, small), choice(biased, large), choice(other, large))
    assert write_module(path, tmp_path / "bias.py").num_sizes == 3
    module = loaded(tmp_path / "bias.py")
    assert module.choose("bf16_nn", 512, 512, 512) == small.name
    assert module.choose("bf16_nn", 512, 512, 512, "bias") == large.name
    assert module.choose("bf16_nn", 64, 512, 512) == large.name


def test_every_kind_of_size_that_can_be_tuned_is_taken(tmp_path: Path) -> None:
    fp8 = {"dtype_a": "fp8_e4m3", "dtype_b": "fp8_e4m3"}
    kinds: list[dict[str, Any]] = [
        {"batch": 4},
        {**fp8, "scaling": "tensor"},
        {**fp8, "scaling": "row_col"},
        {**fp8, "scaling": "block"},
        {"activation": "relu", "beta": 1.0},
        {"alpha": 0.5},
        {"dtype_c": "fp32"},
    ]
    rows = [choice(replace(PLAIN, **kind)) for kind in kinds]
    made = write_module(written(tmp_path, *rows), tmp_path / "some.py")
    assert (made.num_sizes, made.left_out) == (len(kinds), ())
    module = loaded(tmp_path / "some.py")
    assert {one.scaling for one in module.CLASSES.values()} == {"none", "tensor", "row_col", "block"}
    assert {one.batched for one in module.CLASSES.values()} == {False, True}
    assert {"beta_relu", "beta_bias_relu", "alpha", "alpha_bias"} <= set(module.EPILOGUES["bf16_nn"])


def test_what_was_not_checked_on_a_gpu_is_taken_only_when_asked_for_and_named(tmp_path: Path) -> None:
    predicted = replace(choice(replace(PLAIN, m=2), verified=Verified.INTERPRETED), source="predicted")
    agreed = choice(replace(PLAIN, m=3), verified=Verified.AGREED)
    path = written(tmp_path, choice(PLAIN), choice(replace(PLAIN, m=1), verified=Verified.FALSE), predicted, agreed)
    sizes = {
        Trust(): {512, 3},
        Trust(predicted=True): {512, 2, 3},
        Trust(unverified=True): {512, 1, 3},
        Trust(predicted=True, unverified=True): {512, 1, 2, 3},
    }
    for trust, expected in sizes.items():
        made = write_module(path, tmp_path / "some.py", trust=trust)
        module = loaded(tmp_path / "some.py")
        assert {row[0] for row in module.TUNED["bf16_nn"]} == expected
        assert {problem.m for problem, _ in made.remarks} == expected - {512}
        assert {one.size for one in made.left_out} == {replace(PLAIN, m=m).key for m in {512, 1, 2, 3} - expected}
        assert all(problem.key in module.__doc__ for problem, _ in made.remarks)


def test_a_module_of_predicted_rows_says_so(tmp_path: Path) -> None:
    row = replace(choice(PLAIN, verified=Verified.INTERPRETED), source="predicted")
    path = written(tmp_path, row, source="predicted")
    write_module(path, tmp_path / "gemm.py", trust=Trust(predicted=True))
    said = loaded(tmp_path / "gemm.py").__doc__ or ""
    assert "predicted for NVIDIA H200" in said and "tuned for" not in said


def test_a_module_of_timed_and_predicted_rows_says_which_is_which(tmp_path: Path) -> None:
    guesses = [
        replace(choice(replace(PLAIN, m=m), verified=Verified.INTERPRETED), source="predicted", median_us=1.0 * m)
        for m in (2, 3)
    ]
    path = written(tmp_path, choice(PLAIN), *guesses)
    write_module(path, tmp_path / "gemm.py", trust=Trust(predicted=True))
    module, text = loaded(tmp_path / "gemm.py"), (tmp_path / "gemm.py").read_text()
    said = module.__doc__ or ""
    assert "3 sizes, 1 timed, 2 predicted" in said.splitlines()[0]
    named = said.partition("PREDICTED:")[2].partition("Generated")[0]
    assert all(row.problem.key in named for row in guesses) and PLAIN.key not in named
    table = text.partition("TUNED = {")[2].partition("}")[0].splitlines()
    assert [line.partition("# ")[2] for line in table if "gemm_tile" in line] == ["measured", "predicted", "predicted"]
    assert module.HEADER["source"] == "measured, predicted"


def guess(problem: GemmProblem, config: KernelConfig | None = None) -> Choice:
    return replace(choice(problem, config, Verified.INTERPRETED), source="predicted")


def test_predictions_replace_no_module_with_sizes_that_were_measured_unless_asked_to(tmp_path: Path) -> None:
    one, two, three = (replace(PLAIN, m=m) for m in (1, 2, 3))
    other, out, trust = samples.config(num_warps=8), tmp_path / "gemm.py", Trust(predicted=True)

    def exported(*rows: Choice, **how: Any) -> ModuleFile:
        return write_module(written(tmp_path, *rows), out, trust=trust, **how)

    exported(choice(one), guess(two))
    assert exported(choice(one), guess(two, other), guess(three)).num_sizes == 3  # only a prediction has gone
    before = out.read_text()
    for rows in ([guess(one)], [guess(three)]):
        made = exported(*rows)
        assert (made.num_sizes, out.read_text()) == (0, before)
        assert "has 1 size measured" in made.left_out[0].reason and "--overwrite" in made.left_out[0].reason
    assert exported(guess(three), overwrite=True).num_sizes == 1
    assert exported(guess(two)).num_sizes == 1
    out.write_text("mine = 1\n")
    assert "unknown origin" in exported(guess(three)).left_out[0].reason and out.read_text() == "mine = 1\n"
    assert exported(choice(one)).num_sizes == 1


def test_rows_of_an_earlier_run_are_what_that_run_says(tmp_path: Path) -> None:
    """A predicted run wrote the file last; its own row does not leave."""
    path = written(tmp_path, choice(PLAIN))
    later = replace(HEADER, date="2026-02-28T12:00:00Z", triton="3.9.0", source="predicted")
    size = replace(PLAIN, m=2)
    file = ResultsFile(path, [size])
    file.record_outcome(size, replace(choice(size, verified=Verified.INTERPRETED), source="predicted"))
    file.write(later)
    write_module(path, tmp_path / "timed.py")
    timed = loaded(tmp_path / "timed.py")
    assert "tuned for" in (timed.__doc__ or "") and "PREDICTED" not in (timed.__doc__ or "")
    assert asdict(HEADER) == timed.HEADER
    assert "us, measured)" in (tmp_path / "timed.py").read_text()
    write_module(path, tmp_path / "both.py", trust=Trust(predicted=True))
    both = loaded(tmp_path / "both.py").HEADER
    assert (both["triton"], both["num_sms"]) == ("3.6.0, 3.9.0", 132)


def test_a_size_without_a_configuration_is_left_out_with_its_reason(tmp_path: Path) -> None:
    failed = (replace(PLAIN, m=2), 'no "config"\nran')
    made = write_module(written(tmp_path, choice(PLAIN), failures=[failed]), tmp_path / "more.py")
    assert [one.size for one in made.left_out] == [failed[0].key]
    assert "was not tuned: no 'config' ran" in (loaded(tmp_path / "more.py").__doc__ or "")


def test_a_file_without_a_row_for_a_module_writes_none(tmp_path: Path) -> None:
    made = write_module(written(tmp_path, choice(PLAIN, verified=Verified.FALSE)), tmp_path / "none.py")
    assert made.num_sizes == 0 and [(one.size, "--unverified" in one.reason) for one in made.left_out] == [
        (PLAIN.key, True)
    ]
    with pytest.raises(UserError, match="holds no sizes"):
        write_module(written(tmp_path), tmp_path / "none.py")
    with pytest.raises(UserError, match="names no architecture"):
        write_module(written(tmp_path, choice(PLAIN), arch=""), tmp_path / "none.py")
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(EnvironmentFault, match="cannot write"):
        write_module(written(tmp_path, choice(PLAIN)), tmp_path / "folder.py")
    assert not (tmp_path / "none.py").exists()


def test_texts_of_the_results_file_cannot_become_code(tmp_path: Path) -> None:
    bad = 'GPU """ \\N{DIGIT ONE}\n{{ 7 * 7 }} {% raw %}\nraise SystemExit'
    write_module(written(tmp_path, choice(PLAIN), device=bad, date=bad, source="measured"), tmp_path / "bad.py")
    assert loaded(tmp_path / "bad.py").HEADER["device"] == bad


def test_modules_of_different_contents_register_different_operators(tmp_path: Path) -> None:
    for name, config in (("one", samples.config()), ("two", samples.config(num_stages=4))):
        write_module(written(tmp_path, choice(PLAIN, config)), tmp_path / f"{name}.py")
    one, two = loaded(tmp_path / "one.py"), loaded(tmp_path / "two.py")
    assert one.operator._qualname != two.operator._qualname


@pytest.mark.parametrize("arch", samples.ARCHS)
def test_general_tiles_are_valid_on_every_architecture(arch: str) -> None:
    device = samples.device(arch)
    dtypes = [dtype for dtype, _ in device.matmul_tflops if dtype != "tf32"]
    for dtype in dtypes:
        dtype_c = "int32" if dtype == "int8" else "bf16" if dtype.startswith("fp8") else dtype
        problem = GemmProblem(1001, 777, 333, dtype, dtype, dtype_c)
        for config in general_configs(problem, device.target):
            assert is_valid(problem, config, device), (dtype, config.name)


def test_the_fallback_of_every_tuned_kernel_by_descriptor_is_valid() -> None:
    device, fallbacks, by_descriptor = samples.device("sm_90"), 0, 0
    for row in results.read(H200).rows:
        config, _ = in_triton(row)
        by_descriptor += config.family not in ("gemm_tile", "gemv")
        fallback = pointer_fallback(row.problem, config, device.target)
        if fallback is not None:
            odd = replace(row.problem, n=row.problem.n + 1, k=row.problem.k + 1)
            assert is_valid(odd, fallback, device), fallback.name
            fallbacks += 1
    assert fallbacks == by_descriptor > 0
    assert pointer_fallback(PLAIN, samples.config(family="gemm_persistent"), samples.device("gfx942").target) is None


SCRIPT = '''
import sys
import triton.language as tl

SIZE = {size}
OTHER = 1


def helper(x):
    """SIZE of helper."""
    return x.SIZE + SIZE


def scratch(config, size, num_sms):
    return helper(size), 0


def calls(config, size, operands, scratch, num_sms):
    OTHER = scratch.calls
    return [helper(OTHER)]
'''


def test_what_differs_is_renamed_and_what_is_the_same_is_written_once() -> None:
    parts = [
        sections.Section("f", "one", SCRIPT.format(size=1)),
        sections.Section("f", "two", SCRIPT.format(size=2)),
        sections.Section("g", "two", SCRIPT.format(size=1)),
    ]
    space = sections.merge(parts)
    assert space.imports == ()
    assert space.names["f", "one", "calls"] == space.names["g", "two", "calls"] == "calls_one"
    assert space.names["f", "two", "scratch"] == "scratch_two"
    assert space.text.count("def helper_") == 2 and "OTHER = 1" not in space.text
    names: dict[str, Any] = {}
    exec(space.text, names)

    class Thing:
        SIZE, calls = 10, None

    Thing.calls = Thing  # type: ignore[assignment]
    assert names["scratch_one"](None, Thing, 0) == (11, 0)
    assert names["calls_two"](None, None, None, Thing, 0) == [12]


def test_two_families_of_a_class_keep_their_own_functions() -> None:
    parts = [sections.Section(family, "one", SCRIPT.format(size=size)) for size, family in enumerate("fg")]
    space = sections.merge(parts)
    assert space.names["f", "one", "calls"] == "calls_f_one" and space.names["g", "one", "calls"] == "calls_g_one"
    with pytest.raises(ValueError, match="has no scratch"):
        sections.merge([sections.Section("f", "one", "def calls():\n    pass\n")])


def test_the_template_is_named_when_it_is_not_there(tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    templates.mkdir()
    for path in samples.TEMPLATES.glob("*.j2"):
        if path.name != "module.py.j2":
            documents.write_text_atomically(templates / path.name, path.read_text(encoding="utf-8"))
    with pytest.raises(UserError, match=r"module\.py\.j2 does not render"):
        write_module(H200, tmp_path / "gemm.py", templates)
