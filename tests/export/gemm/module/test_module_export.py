"""The exported module as a text: what is in it, what is left out, which configuration it gives a size."""

from __future__ import annotations

import ast
import itertools
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import samples
from exported_modules import H200, PLAIN, choice, loaded, written

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device
from gemm_tuner.export.gemm.module import ModuleFile, sections, write_module
from gemm_tuner.export.gemm.module.fallback import general_configs, pointer_fallback
from gemm_tuner.gemm.config import CONFIG_FIELDS, KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.space import prune
from gemm_tuner.store import results
from gemm_tuner.store.results import Row
from gemm_tuner.system import documents

VALIDITY = prune.load_rules(samples.RULES, heuristics=False)


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
    again = tmp_path / out.name  # the folder of its kernels, which the text names, is named after it
    write_module(H200, again)
    assert again.read_text(encoding="utf-8") == text


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
    headers = sorted((found.header_of(row) for row in found.rows), key=lambda header: header["date"])
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
