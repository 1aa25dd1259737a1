"""A second kernel language goes through the whole tuner: C on this machine's CPU, timed by the host's clock.

``tests/helpers/row_sum_kind`` is the kind of problem whose kernels are written in it; nothing here stands in for
anything.
"""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest
import row_sum_kind
from fault_runs import Machine, require_complete_states, statuses_of
from row_sum_kind.workload import RowSumProblem

from gemm_tuner import profilers
from gemm_tuner.core.errors import EnvironmentFault
from gemm_tuner.core.language import language_of
from gemm_tuner.core.records import Status, Verified
from gemm_tuner.languages.c import library
from gemm_tuner.languages.c.library import Source
from gemm_tuner.launch.journal import OPERANDS, ROUNDS
from gemm_tuner.measure.phases import PHASES, REPORTING
from gemm_tuner.store import results, run_record

KIND = Path(row_sum_kind.__file__).parent
SPACE = "space_x86_64.yaml"
SIZES = "- {kind: row_sum, rows: 64, columns: 4001}\n"
# Copies beyond the caches, so that no call needs them emptied first; few rounds.
FLAGS = ("--rotating_tensor", "256", "--iters", "2")
TAIL = "for (; column < columns; ++column) part[0] += x[column];"
FAULTS = f"""
#if PARTS == 2
#error no such kernel
#elif PARTS == 3
if (columns > 100) part[0] = *(volatile float *)8;
#elif PARTS != 4
{TAIL}
#endif
"""
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is here")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """After a run with three kernels that have faults beside the right ones: one does not compile, one leaves out the
    end of a row, and one reads where no memory is."""
    folder = tmp_path_factory.mktemp("c")
    kinds = folder / "kinds"
    for name in ("row_sum_kind", "row_sum_kind-1.0.dist-info"):
        shutil.copytree(KIND.parent / name, kinds / name, ignore=shutil.ignore_patterns("__pycache__"))
    template = kinds / "row_sum_kind" / "templates" / "row_sum.py.j2"
    text = template.read_text()
    assert TAIL in text
    template.write_text(text.replace(TAIL, FAULTS))
    machine = Machine(folder / "run", folder / "cache", sizes=SIZES)
    space = (KIND / "rules" / SPACE).read_text()
    assert "[1, 4, 16]" in space and "[O1, O3]" in space
    (machine.folder / "space.yaml").write_text(
        space.replace("[1, 4, 16]", "[2, 3, 4, 8, 16]").replace("[O1, O3]", "[O1]")
    )
    machine.env["PYTHONPATH"] = str(kinds)
    done = machine.run(*FLAGS, "--compare", "all")
    assert done.status == 0, done.err
    assert "vs numpy.sum" in done.out
    return machine


@needs_compiler
def test_c_is_compiled_screened_timed_checked_and_written(machine: Machine) -> None:
    found = results.read(machine.run_folder() / "tuned.yaml")
    assert (found.header["profiler"], found.header["arch"]) == ("clock", platform.machine())
    require_complete_states(machine)
    (row,) = found.rows
    assert (row.problem, row.verified) == (RowSumProblem(64, 4001), Verified.TRUE)
    assert row.config is not None and row.config.options()["PARTS"] in (8, 16)
    assert row.facts["processes"] >= 3 and row.facts["vendor_us"] > 0
    table = run_record.read_table(machine.run_folder(), row.problem.key).set_index("name")
    right = table.loc[[name_of(8), name_of(16)]]
    assert (right["screen_us"] > 0).all()
    # A busy machine may have interrupted both calls by which screening finds the slow ones.
    finals = right[right["status"] != Status.EARLY_STOPPED.value]
    assert (finals["status"] == Status.OK.value).all() and (finals["finals_us"] > 0).all(), table.to_string()
    assert row.config.name in finals.index


@needs_compiler
def test_the_starts_of_a_stage_say_where_their_time_went(machine: Machine) -> None:
    record = machine.record()
    finals = record.notes["starts"]["finals"]
    assert finals["number"] >= 3 and finals["seconds"].keys() >= {*PHASES, *REPORTING, OPERANDS, ROUNDS}
    assert 0 < sum(finals["seconds"][phase] for phase in PHASES) < finals["number"] * record.seconds


@needs_compiler
def test_faults_of_c_kernels_cost_themselves(machine: Machine) -> None:
    (statuses,) = statuses_of(machine).values()
    assert [statuses[name_of(parts)] for parts in (2, 3, 4)] == ["compile_error", "crashed", "wrong"]
    table = run_record.read_table(machine.run_folder(), "row_sum_64x4001").set_index("name")
    assert "no such kernel" in table["message"][name_of(2)]


def name_of(parts: int) -> str:
    return f"row_sum_PARTS{parts}_OPTIMIZEO1"


def test_the_clock_is_offered_for_the_cpu_only() -> None:
    assert profilers.select("auto", "cpu").name == "clock"
    for backend in ("cuda", "hip"):
        with pytest.raises(EnvironmentFault, match="clock cannot time"):
            profilers.select("clock", backend)
    with pytest.raises(EnvironmentFault, match="nsys cannot time"):
        profilers.select("nsys", "cpu")


@needs_compiler
def test_a_library_made_in_one_folder_is_a_hit_in_another(tmp_path: Path) -> None:
    source = Source("twice", "long twice(long n) { return 2 * n; }")
    entry, was_there = library.compiled(source, tmp_path / "one")
    assert not was_there
    language = language_of("c")
    language.unpack(language.pack(tmp_path / "one", entry), tmp_path / "two")
    assert library.compiled(source, tmp_path / "two") == (entry, True)
    other = Source("twice", "long twice(long n) { return 2 * n; }", flags=("-O3",))
    assert library.compiled(other, tmp_path / "two")[0] != entry


@pytest.mark.parametrize(
    ("name", "define", "flag"), [("a b", "N", "-O2"), ("f", "N -o x", "-O2"), ("f", "N", "-o/tmp/x"), ("f", "N", "@x")]
)
def test_a_script_cannot_have_the_compiler_write_elsewhere(name: str, define: str, flag: str) -> None:
    class Function:
        symbol, text, defines, flags = name, "", {define: 1}, (flag,)

    with pytest.raises(ValueError, match="is no"):
        Source.of(Function)
