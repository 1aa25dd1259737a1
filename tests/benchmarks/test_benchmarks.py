"""The scripts of benchmarks/ that make tables: figures worked out by hand, and ncu's files as ncu writes them."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from itertools import islice
from pathlib import Path
from threading import Condition
from types import ModuleType
from typing import Any

import pytest
import samples
from nvml_recording import Gpu, h200, install
from result_files import write_choices

from gemm_tuner.core.choice import Choice
from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.markers import BEGIN_SYMBOL, END_SYMBOL
from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem, Layout
from gemm_tuner.launch.plan import Plan
from gemm_tuner.profilers.base import TraceError
from gemm_tuner.store import results

DATA = samples.ROOT / "tests" / "data" / "profilers"
HEADER = results.Header(
    *("0.1.0", "2026-01-31T12:00:00Z", "NVIDIA H200", "sm_90", 132, "570", "3.6.0", "2.11.0", "3.12.3"),
    *("nsys", "2025.3", "randn", 0, "flushed", "measured"),
)
LARGE = GemmProblem(4096, 4096, 4096)
SMALL = GemmProblem(16, 4096, 4096)
NO_VENDOR = GemmProblem(1000, 1000, 1000)
COL = dataclasses.replace(LARGE, layout_b=Layout.COL)
PERSISTENT = samples.config(family="gemm_persistent", GROUP_SIZE_M=8, EPILOGUE_SUBTILE=2, PROGRAMS_PER_SM=1)


def load(name: str) -> ModuleType:
    """A script of benchmarks/, which is no package."""
    path = samples.ROOT / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


kernels_table, limits, sustained_rate = load("kernels_table"), load("limits"), load("sustained_rate")


def choice(problem: GemmProblem, ours_us: float, vendor_us: float | None, config: KernelConfig | None = None) -> Choice:
    return Choice(
        *(problem, config or samples.config(), "measured", Verified.TRUE, ours_us, ours_us, ours_us, 30, vendor_us),
        *(0.01, 0.001, "", None, False, 70.0),
    )


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """137.438953472 GFLOP in 200 us is 687.2 TFLOP/s; 33816576 bytes in 10 us are 3382 GB/s. Ratios 0.96 and 1.5."""
    path = tmp_path / "tuned.yaml"
    choices = [choice(LARGE, 200.0, 192.0, PERSISTENT), choice(SMALL, 10.0, 15.0), choice(NO_VENDOR, 9.0, None)]
    predicted = dataclasses.replace(
        choice(COL, 190.0, None), source="predicted", p20_us=None, p80_us=None, num_samples=0
    )  # fmt: skip
    write_choices(path, HEADER, [*choices, predicted], [(GemmProblem(8, 8, 8), "no configuration")])
    return path


def cells(text: str, key: str) -> list[str]:
    """The cells of a size's line in a markdown table."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {key} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_line_holds_what_the_row_says_and_what_follows_from_it(tuned: Path) -> None:
    text = kernels_table.document(tuned, None, None, "")
    large = ["gemm_persistent", "128x128x64 W4 S3 GM8 ES2 PS1", "200.00", "687.2 TFLOP/s", "0.960", "70.0"]
    assert cells(text, LARGE.key) == [LARGE.key, *large]
    small = ["gemm_tile", "128x128x64 W4 S3", "10.00", "3382 GB/s", "1.500", "70.0"]
    assert cells(text, SMALL.key) == [SMALL.key, *small]


def test_the_summary_leaves_out_what_has_no_time_and_says_so(tuned: Path) -> None:
    text = kernels_table.document(tuned, None, None, "")
    assert "geometric mean: 1.200 over 2 sizes; M <= 32: 1.500 over 1 size;" in text  # sqrt(0.96 * 1.5)
    assert f"lowest: 0.960 ({LARGE.key}); under 0.97: 1." in text
    assert f"Without a time of torch.mm, so not among the ratios: {NO_VENDOR.key}." in text
    assert f"Not measured, so left out: {COL.key}." in text
    assert "Without a config: 8x8x8_bf16_nn (no configuration)." in text


def test_a_ratio_counts_as_low_where_the_table_shows_it_so(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    write_choices(path, HEADER, [choice(LARGE, 1000.0, 969.6), choice(SMALL, 1000.0, 969.4)])
    text = kernels_table.document(path, None, None, "")
    assert (cells(text, LARGE.key)[-2], cells(text, SMALL.key)[-2]) == ("0.970", "0.969")
    assert "under 0.97: 1." in text


def test_a_baseline_has_its_own_column_and_mean(tuned: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    write_choices(other, HEADER, [choice(LARGE, 250.0, None), choice(SMALL, 12.8, None)])
    text = kernels_table.document(tuned, None, other, "vLLM-default")
    assert [cells(text, problem.key)[-1] for problem in (LARGE, SMALL, NO_VENDOR)] == ["1.250", "1.280", "-"]
    assert "vLLM-default / ours, geometric mean: 1.265 over 2 sizes." in text  # sqrt(1.25 * 1.28)
    assert f"Without a time of vLLM-default: {NO_VENDOR.key}." in text


def test_the_sustained_rate_is_for_large_sizes_of_its_type(tuned: Path, tmp_path: Path) -> None:
    rate = tmp_path / "rate.json"
    rate.write_text(json.dumps({"multiply": {"dtype": "bf16", "tflops": 800.0}}))
    text = kernels_table.document(tuned, kernels_table.Rate.read(rate), None, "")
    assert [cells(text, problem.key)[-1] for problem in (LARGE, SMALL)] == ["85.9", "-"]
    other = kernels_table.document(tuned, kernels_table.Rate("fp16", 800.0), None, "")
    assert cells(other, LARGE.key)[-1] == "-"


def test_the_table_goes_to_a_file_or_the_terminal(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tuned.with_name("kernels.md")
    assert kernels_table.main([str(tuned), "-o", str(out)]) == 0
    assert kernels_table.main([str(tuned)]) == 0
    assert capsys.readouterr().out == out.read_text()


def test_a_file_of_another_kind_is_refused(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kernels_table.main([str(tuned), "--rate", str(tuned)]) == 2
    assert "sustained_rate.py --json" in capsys.readouterr().err


def test_the_state_of_the_gpu_is_read_while_a_block_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = install(monkeypatch, h200("GPU-1", ClockInfo=1755, PowerUsage=650_000, Temperature=61))
    watch = Condition()

    def answers(gpu: Gpu, *_: object) -> int:
        with watch:
            watch.notify()
        return 61

    with watch, sustained_rate.watched("GPU-1") as state:
        monkeypatch.setattr(recording, "nvmlDeviceGetTemperature", answers, raising=False)
        assert watch.wait(240)
    assert "sm_clock_mhz 1755 (1755 to 1755), power_w 650" in str(state)
    install(monkeypatch, init_error="Driver Not Loaded")
    with sustained_rate.watched("GPU-1") as state:
        pass
    assert str(state) == "unknown: NVML: Driver Not Loaded"


@pytest.mark.parametrize(("seconds", "calls"), [(3.0, 1500), (0.001, 1)])
def test_a_block_is_as_long_as_asked_for(seconds: float, calls: int) -> None:
    assert sustained_rate.calls_in(seconds, sustained_rate.Block(calls=4, seconds=0.008)) == calls


TENSOR = "sm__inst_executed_pipe_tensor.sum"
REGISTERS = "launch__registers_per_thread"


def test_the_details_page_of_a_real_run_is_read() -> None:
    path = DATA / "ncu_2025.3.1_metrics_h200_triton_matmul.csv"
    first, second, *_ = limits.read_kernels(path, [TENSOR, REGISTERS])
    assert first.name == "matmul_kernel"
    assert first.values == {limits.METRIC: 30816.0, REGISTERS: 124.0, TENSOR: 262144.0}
    assert second.values[limits.METRIC] == 30112.0


def test_the_raw_page_is_read() -> None:
    (kernel,) = limits.read_kernels(DATA / "ncu_2022.3_import_raw_units_base.csv", [REGISTERS, "dram__bytes_read.sum"])
    assert kernel.values == {limits.METRIC: 239008.0, REGISTERS: 16.0, "dram__bytes_read.sum": 25170048.0}


def test_numbers_of_another_locale_are_refused() -> None:
    with pytest.raises(TraceError, match="another locale"):
        limits.read_kernels(DATA / "ncu_2022.3_import_raw_base_LOCALE_de_DE.csv", [REGISTERS])


LISTING = """\
Device NVIDIA H200 (GH100)
--------------------------------------------- ------- ------- -----------
Metric Name                                   Type    Unit    Description
--------------------------------------------- ------- ------- -----------
lts__throughput                               Throughput %    LTS throughput
sm__pipe_tensor_op_hmma_cycles_active         Counter cycle   # of cycles where the HMMA pipe was active
"""


def metrics_by_title(listing: str) -> dict[str, str]:
    found = limits.available(limits.COUNTERS, limits.metric_names(listing))
    return {counter.title: metric for counter, metric in found.items()}


def test_only_counters_that_the_gpu_has_are_asked_for() -> None:
    found = metrics_by_title(LISTING + "launch__registers_per_thread Counter register/thread Registers\n")
    assert found == {
        "us": limits.METRIC,
        "tensor %": "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        "L2 %": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
        "registers": REGISTERS,
    }


def test_without_a_list_the_first_names_are_taken_on_trust() -> None:
    assert list(metrics_by_title("")) == [counter.title for counter in limits.COUNTERS]
    assert {"waves", "registers", "cluster"} <= set(metrics_by_title(LISTING))


def written_plan(folder: Path, tuned: Path) -> Plan:
    rows = limits.chosen_rows(results.read(tuned), ["4096x4096x4096", SMALL.key], "row", tuned)
    plan = limits.write_plan(folder, rows, samples.device("sm_90").target)
    assert isinstance(plan, Plan)
    return plan


def test_the_plan_holds_the_named_sizes_with_their_configurations(tuned: Path, tmp_path: Path) -> None:
    plan = written_plan(tmp_path, tuned)
    assert Plan.read(tmp_path / "plan.json") == plan
    assert [work.problem for work in plan.work] == [LARGE, SMALL]
    for work in plan.work:
        ((script, name),) = work.entries
        assert work.vendor and name in Path(plan.scripts[script]).read_text()


@pytest.mark.skipif(importlib.util.find_spec("quack") is None, reason="CuTe DSL is not installed")
def test_kernels_that_are_only_launched_under_ncu_are_compiled_before(tmp_path: Path) -> None:
    path, of_cute = tmp_path / "tuned.yaml", KernelConfig("gemm_cute", 64, 64, 64, 8, 1, 0, 0)
    write_choices(path, HEADER, [choice(LARGE, 1000.0, 970.0, of_cute)])
    limits.write_plan(tmp_path, list(results.read(path).rows), samples.device("sm_90").target)
    assert [one.parent.parent.name for one in tmp_path.rglob("kernel.so")] == ["cache"]


def test_a_configuration_that_does_not_compile_is_named(tmp_path: Path) -> None:
    path, of_cute = tmp_path / "tuned.yaml", KernelConfig("gemm_cute", 320, 256, 64, 8, 1, 0, 0)
    write_choices(path, HEADER, [choice(LARGE, 1000.0, 970.0, of_cute)])
    with pytest.raises(UserError, match=r"gemm_cute_BM320_BN256.*: does not compile: "):
        limits.write_plan(tmp_path, list(results.read(path).rows), samples.device("sm_90").target)


def test_a_size_that_no_row_has_is_refused(tuned: Path) -> None:
    with pytest.raises(UserError, match="no size 1x2x3"):
        limits.chosen_rows(results.read(tuned), ["1x2x3"], None, tuned)


def kernel(name: str, us: float = 1.0, **values: Any) -> Any:
    return limits.Kernel(name, {limits.METRIC: us * 1e3, **values})


def call(*kernels: Any) -> list[Any]:
    return [kernel(BEGIN_SYMBOL), *kernels, kernel(END_SYMBOL)]


def test_kernels_between_markers_belong_to_one_call(tuned: Path, tmp_path: Path) -> None:
    plan = written_plan(tmp_path, tuned)
    name = PERSISTENT.name
    recorded = [
        *call(kernel(name, 200.0, launch__registers_per_thread=168.0)),
        *call(kernel("v" * 60, 190.0)),
        *call(kernel("main_part"), kernel("reduce_part")),
        *call(),
    ]
    metrics = {counter: counter.metrics[0] for counter in limits.COUNTERS if counter.title in ("us", "registers")}
    text = limits.table(plan, limits.kernels_by_call(recorded), metrics).splitlines()
    assert text[2:] == [
        f"| {LARGE.key} | ours | {name} | 200.00 | 168 |",
        f"| {LARGE.key} | torch.mm | {'v' * 48} | 190.00 | - |",
        f"| {SMALL.key} | ours | main_part | 1.00 | - |",
        f"| {SMALL.key} | ours | reduce_part | 1.00 | - |",
        f"| {SMALL.key} | torch.mm | (torch has no such call) | - | - |",
    ]
    with pytest.raises(EnvironmentFault, match="recorded 3 calls and not 4"):
        limits.table(plan, limits.kernels_by_call(recorded[:-2]), metrics)


def test_a_silence_is_named_by_the_line_before_it() -> None:
    signs = load("signs_of_life")
    written = [(0.2, "starting\r\n"), (1.0, "\x1b[?25l\r\x1b[2Kcompile 0/3"), (4.0, "\x1b[?25h"), (4.5, "done\r\n")]
    assert signs.silences(written, 4.75) == [
        (3.0, 1.0, "compile 0/3"), (0.8, 0.2, "starting"), (0.5, 4.0, "compile 0/3"), (0.25, 4.5, "done")
    ]  # fmt: skip


def test_a_command_on_a_terminal_is_heard_as_it_writes() -> None:
    signs = load("signs_of_life")
    code = "import sys; print(sys.stdout.isatty(), flush=True); sys.exit(3)"
    written, seconds, status = signs.run([sys.executable, "-c", code])
    assert "".join(text for _, text in written).strip() == "True"
    assert status == 3 and 0 < written[0][0] <= seconds


def test_random_sizes_of_a_kind_are_the_seeds_in_their_order() -> None:
    random_sizes = load("random_sizes")
    of_seed = list(islice(random_sizes.sizes(7, "all"), 60))
    aligned, unaligned = (list(islice(random_sizes.sizes(7, kind), 8)) for kind in ("aligned", "unaligned"))
    assert aligned == [one for one in of_seed if one[1] % 8 == one[2] % 8 == 0][:8]
    assert unaligned == [one for one in of_seed if one[1] % 8 or one[2] % 8][:8]
