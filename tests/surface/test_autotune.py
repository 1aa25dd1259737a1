"""``gt.autotune`` over kernels under triton.jit (interpreted), factories as TileLang's, and plain functions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import tilelang_stand_in as stand_in
import torch
import triton
from autotuned import BLOCKS, tuned
from scale_kernel import scale
from tilelang_stand_in import matmul

import gemm_tuner as gt
from gemm_tuner.core.errors import UserError

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(scope="module")
def kernels() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        yield importlib.import_module("interpreted_kernels")
        del sys.modules["interpreted_kernels"]


def by_block(ms: dict[int, float], timed: list[int]) -> Callable[..., list[float]]:
    """A ``do_bench`` by the block of the call that ran last."""

    def do_bench(call: Callable[[], Any], quantiles: Sequence[float]) -> list[float]:
        call()
        return [ms[timed[-1]]] * len(quantiles)

    return do_bench


def test_a_factory_is_tuned_once_for_each_tuple_of_arguments() -> None:
    factory = tuned(configs=BLOCKS)(matmul)
    kernel = factory(64, 64, 64)
    assert kernel.block == 32, "the fastest"
    assert factory(64, 64, 64) is kernel and factory.runs == 1
    assert factory(128, 64, 64).block == 32 and factory.runs == 2
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    assert torch.equal(kernel(a, b), a @ b)
    assert factory.best_config == {"block_M": 32}


def test_a_function_of_the_calls_arguments_gives_the_configurations() -> None:
    def space(m: int, n: int, k: int) -> Iterator[dict[str, int]]:
        for block in (16, 64) if m < 128 else (64, 128):
            yield {"block_M": block}

    factory = tuned(configs=space)(matmul)
    assert factory(64, 64, 64).block == 64 and factory(256, 64, 64).block == 64
    assert {one.block for one in stand_in.BUILT} == {16, 64, 128}


def test_a_configuration_that_fails_costs_that_one_and_the_reason_is_kept() -> None:
    factory = tuned(configs=[{"block_M": 128}, {"block_M": 16}])(matmul)
    assert factory(64, 64, 64).block == 16
    (result,) = factory.results.values()
    rows = {row["block_M"]: row for row in result.table}
    assert rows[128]["status"] == "compile_error" and "128 is above 64" in rows[128]["reason"]
    with pytest.raises(gt.NoBestKernel, match="1 of 2 are compile_error: ValueError: block_M"):
        tuned(configs=[{"block_M": 128}, {"block_M": 64}])(matmul)(8, 8, 8)


def test_what_the_call_sets_itself_is_not_tuned() -> None:
    factory = tuned(configs=BLOCKS)(matmul)
    assert factory(64, 64, 64).block == 32
    assert factory(64, 64, 64, block_M=16).block == 16
    assert tuned(configs=BLOCKS)(matmul)(64, 64, 64, 64).block == 64


def test_arguments_that_do_not_specialize_share_a_result() -> None:
    factory = tuned(configs=BLOCKS, do_not_specialize=["n"])(matmul)
    factory(64, 64, 64)
    factory(64, 32, 64)
    assert factory.runs == 1
    with pytest.raises(UserError, match="'rows' is no argument"):
        tuned(configs=BLOCKS, do_not_specialize=["rows"])(matmul)


@pytest.mark.parametrize(("key", "runs"), [(["m"], 2), (["pow2(m)", "n"], 1), (lambda named: named["n"], 1), (None, 2)])
def test_keys_are_names_expressions_or_a_function(key: Any, runs: int) -> None:
    factory = tuned(configs=BLOCKS, key=key)(matmul)
    factory(90, 64, 64)
    factory(100, 64, 64)
    factory(100, 64, 64)
    assert factory.runs == runs


def test_inputs_of_a_block_are_the_same_for_all_and_its_outputs_may_be_among_them() -> None:
    a, b, c = (torch.randn(64, 64) for _ in range(3))
    factory = tuned(configs=BLOCKS, ref_prog=lambda a, b, c: torch.allclose(c, a @ b))(matmul)
    with gt.set_autotune_inputs(a, b, c):
        kernel = factory(64, 64, 64)
    seen = {pointers for one in stand_in.BUILT for pointers in one.seen}
    assert seen == {(a.data_ptr(), b.data_ptr())}
    assert {row["verified"] for row in next(iter(factory.results.values())).table} == {"true"}
    assert kernel.block == 32


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("kind", ["tensor", "verdict", "raises", "by hand", "by hand with expected"])
def test_references_in_all_forms_find_what_is_wrong(made: bool, kind: str) -> None:
    """Outputs that the kernel makes, and outputs among its inputs; each form finds the fastest one wrong."""

    def verdict(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None = None) -> bool:
        assert c is not None
        return torch.allclose(c, a @ b, atol=1e-3)

    def raises(*args: torch.Tensor) -> None:
        assert verdict(*args), "differs"

    def expected(a: torch.Tensor, b: torch.Tensor, c: Any = None) -> torch.Tensor:
        return a @ b

    inputs = [torch.randn(64, 64) for _ in range(3)]
    right = inputs[0] @ inputs[1]
    checks: dict[str, dict[str, Any]] = {
        "tensor": {"ref_prog": expected},
        "verdict": {"ref_prog": verdict},
        "raises": {"ref_prog": raises},
        "by hand": {"manual_check_prog": lambda output: torch.testing.assert_close(output, right)},
        "by hand with expected": {
            "ref_prog": expected,
            "manual_check_prog": lambda outputs, wanted: torch.testing.assert_close(outputs, wanted),
        },
    }
    configs = [{"block_M": 32, "offset": 0.5}, {"block_M": 64}, {"block_M": 16}]
    factory = tuned(configs=configs, **checks[kind])(partial(matmul, made=made))
    with gt.set_autotune_inputs(*inputs):
        assert factory(64, 64, 64).block == 64
    (result,) = factory.results.values()
    rows = {row["block_M"]: (row["status"], row["verified"]) for row in result.table if not row["baseline"]}
    assert rows == {32: ("wrong", "false"), 64: ("ok", "true"), 16: ("ok", "true")}


def test_a_skipped_check_is_not_verified_and_without_a_reference_the_most_that_agree_are_right() -> None:
    configs = [{"block_M": 32, "offset": 0.5}, {"block_M": 64}, {"block_M": 16}]
    skipping = tuned(configs=configs, skip_check=True, ref_prog=lambda a, b: a @ b)(matmul)
    assert skipping(64, 64, 64).block == 32
    assert {row["verified"] for row in next(iter(skipping.results.values())).table} == {"false"}
    agreeing = tuned(configs=configs)(matmul)
    assert agreeing(64, 64, 64).block == 64
    table = next(iter(agreeing.results.values())).table
    assert {row["block_M"]: (row["status"], row["verified"]) for row in table} == {
        32: ("wrong", "false"), 64: ("ok", "agreed"), 16: ("ok", "agreed"),
    }  # fmt: skip


@pytest.mark.parametrize(("wrong", "status"), [(9, "ok"), (11, "wrong")])
def test_one_percent_of_elements_may_be_wrong(wrong: int, status: str) -> None:
    def build(size: int, errors: int = 0) -> Callable[[], torch.Tensor]:
        return lambda: torch.arange(size) + 10 * size * (torch.arange(size) < errors)

    factory = gt.autotune(
        configs={"errors": [wrong, 0]}, ref_prog=lambda: torch.arange(1000), supply_prog=lambda: [], rep=1, warmup=1,
        output_dir=None,
    )(build)  # fmt: skip
    factory(1000)
    (result,) = factory.results.values()
    assert {row["errors"]: row["status"] for row in result.table if not row["baseline"]} == {wrong: status, 0: "ok"}


def test_a_function_that_does_the_work_itself_returns_its_value() -> None:
    timed: list[int] = []

    def total(x: torch.Tensor, chunk: int = 1) -> torch.Tensor:
        timed.append(chunk)
        return torch.stack([one.sum() for one in x.split(chunk)]).sum()

    do_bench = by_block({1: 5.0, 4: 1.0, 8: 2.0}, timed)
    function = gt.autotune(configs={"chunk": [1, 4, 8]}, do_bench=do_bench, output_dir=None)(total)
    x = torch.arange(64.0)
    assert function(x) == x.sum() and function.best_config == {"chunk": 4}
    runs = len(timed)
    assert function(x + 1) == x.sum() + 64
    assert timed[runs:] == [4], "one call with the best"


def launched(kernels: Any, ms: dict[int, float], **options: Any) -> tuple[Any, list[int]]:
    """``scale`` under gt.autotune, and the blocks of its launches."""
    timed: list[int] = []
    run = kernels.scale.run

    class Counted(type(kernels.scale)):  # type: ignore[misc]
        def run(self, *args: Any, **kwargs: Any) -> Any:
            timed.append(kwargs["BLOCK"])
            return run(*args, **kwargs)

    function = Counted(kernels.scale.fn)
    return gt.autotune(do_bench=by_block(ms, timed), output_dir=None, **options)(function), timed


CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (16, 32, 64)]
MS = {16: 2.0, 32: 1.0, 64: 3.0}


def test_a_triton_kernel_is_tuned_by_key_and_launched_with_the_best(kernels: Any) -> None:
    kernel, timed = launched(kernels, MS, configs=CONFIGS, key=["n"], ref_prog=lambda x, out: x * 2)
    x, out = torch.arange(100.0), torch.full((100,), 7.0)
    kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, out, 100, 2.0)
    assert torch.equal(out, x * 2) and kernel.best_config["BLOCK"] == 32 and kernel.runs == 1
    launches = len(timed)
    kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, out, 100, 3.0)
    assert torch.equal(out, x * 3) and timed[launches:] == [32], "another factor, the same key"
    kernel[lambda meta: (triton.cdiv(50, meta["BLOCK"]),)](x[:50], out[:50], 50, 2.0)
    assert kernel.runs == 2
    (first, _) = kernel.results.values()
    assert {row["BLOCK"]: row["verified"] for row in first.table if not row["baseline"]} == dict.fromkeys(MS, "true")
    assert first.latency == pytest.approx(1.0) and first.ref_latency is not None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to launch on")
def test_without_a_gpu_a_launch_says_what_works_there() -> None:
    x = torch.ones(64)
    kernel = gt.autotune(configs=[{"BLOCK": 64}], output_dir=None)(scale)
    with pytest.raises(gt.NoBestKernel, match=r"no GPU here: gt\.par_compile .*TRITON_INTERPRET=1"):
        kernel[(1,)](x, torch.empty(64), 2.0, 64)


def test_a_reference_that_takes_other_arguments_is_no_fault_of_configurations(kernels: Any) -> None:
    kernel, timed = launched(kernels, MS, configs=CONFIGS, key=["n"], ref_prog=lambda x, out, n, factor: x * factor)
    x = torch.arange(100.0)
    with pytest.raises(UserError, match="ref_prog: missing a required argument: 'n'; accepted: a function of x, out"):
        kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, torch.empty(100), 100, 2.0)
    assert len(timed) == 1, "before any is timed"


@pytest.mark.parametrize("fault", ["WRONG", "PART"])
def test_a_wrong_triton_configuration_is_found_though_the_output_held_the_right_values(
    kernels: Any, fault: str
) -> None:
    """The first one that runs changes nothing; the fastest adds something, or leaves half of the output as it was."""
    configs = [{"BLOCK": 64}, {"BLOCK": 32, fault: 2}, {"BLOCK": 16}]
    kernel, _ = launched(kernels, MS, configs=configs, key=["n"])
    x = torch.arange(100.0)
    out = x * 2
    kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, out, 100, 2.0)
    assert kernel.best_config == {"BLOCK": 16} and torch.equal(out, x * 2)


def test_what_a_kernel_adds_to_is_put_back(kernels: Any) -> None:
    options = {"configs": {"BLOCK": [32, 64]}, "key": ["n"], "warmup": 1, "rep": 2, "output_dir": None}
    x, total = torch.arange(64.0), torch.ones(64)
    kernel = gt.autotune(restore_value=["total"], ref_prog=lambda x, total: x + total, **options)(kernels.accumulate)
    kernel[(2,)](x, total, 64)
    assert torch.equal(total, x + 1), "as one launch"
    kernel = gt.autotune(reset_to_zero=["total"], ref_prog=lambda x, total: x, **options)(kernels.accumulate)
    kernel[(2,)](x, total, 64)
    assert torch.equal(total, x)
    with pytest.raises(UserError, match=r"'sum' is no tensor of accumulate.*x, total"):
        gt.autotune(reset_to_zero=["sum"], **options)(kernels.accumulate)[(2,)](x, total, 64)


def test_hooks_get_all_arguments_and_pruning_is_triton_s(kernels: Any) -> None:
    hooked: list[int] = []
    configs = [
        triton.Config({"BLOCK": block}, pre_hook=lambda named: hooked.append(named["BLOCK"])) for block in (16, 32, 64)
    ]

    def early(configs: list[triton.Config], named: dict[str, Any], **kwargs: Any) -> list[triton.Config]:
        return [one for one in configs if one.kwargs["BLOCK"] <= named["n"]]

    prune = {"early_config_prune": early, "perf_model": lambda BLOCK, **_: -BLOCK, "top_k": 1}
    before: list[dict[str, Any]] = []
    kernel, timed = launched(
        kernels, MS, configs=configs, key=["n"], prune_configs_by=prune,
        pre_hook=lambda named, reset_only=False: before.append(named),
    )  # fmt: skip
    x, out = torch.arange(40.0), torch.empty(40)
    kernel[lambda meta: (triton.cdiv(40, meta["BLOCK"]),)](x, out, 40, 2.0)
    assert set(timed) == {32} and set(hooked) == {32}, "64 is above n, 16 ranks behind"
    assert before[0]["x"] is x and before[0]["BLOCK"] == 32


def test_heuristics_stand_above_and_below(kernels: Any) -> None:
    x, out = torch.arange(64.0), torch.empty(64)
    options = {"key": ["n"], "warmup": 1, "rep": 2, "output_dir": None}
    below = gt.autotune(configs={"BLOCK": [32, 64]}, **options)(
        triton.heuristics({"WRONG": lambda args: 1 if args["BLOCK"] else 0})(kernels.scale)
    )
    below[(2,)](x, out, 64, 2.0)
    assert torch.equal(out, x * 2 + 1)
    above = triton.heuristics({"BLOCK": lambda args: 64})(gt.autotune(configs={"WRONG": [3]}, **options)(kernels.scale))
    above[(1,)](x, out, 64, 2.0)
    assert torch.equal(out, x * 2 + 3)


def test_bad_input_is_one_line_with_the_mend() -> None:
    with pytest.raises(UserError, match="'block_m' is no argument; accepted: m, n, k, block_M"):
        tuned(configs=[{"block_m": 1}])(matmul)(64, 64, 64)
    with pytest.raises(ValueError, match="No configurations to tune"):
        tuned(configs=lambda m, n, k: [])(matmul)(64, 64, 64)
    with pytest.raises(UserError, match="'rows' is no argument"):
        tuned(configs=BLOCKS, key=["rows"])(matmul)
    with pytest.raises(UserError, match=r"configs=\.\.\."):
        gt.autotune(matmul)(64, 64, 64)  # as under a bare @gt.autotune
    with pytest.raises(UserError, match="needs configurations"):
        gt.autotune(triton.runtime.JITFunction(dynamic))
    with pytest.raises(UserError, match="early_stop_factor"):
        tuned(configs=BLOCKS, early_stop=True, early_stop_factor=0.5)
    with pytest.raises(UserError, match="set_autotune_inputs"):
        tuned(configs={"block": [1, 2]})(lambda size, block=1: lambda x: x)(64)
    with pytest.raises(
        UserError, match="missing a required argument: 'c'; accepted: a function of argument 1, argument 2"
    ):
        tuned(configs=BLOCKS, ref_prog=lambda a, b, c: a @ b)(matmul)(64, 64, 64)
    with pytest.raises(UserError, match="argument 1 has a shape that is not static"):
        tuned(configs=BLOCKS)(dynamic)(64, 64, 64)


def dynamic(m: int, n: int, k: int, block_M: int = 16) -> stand_in.MatmulKernel:
    kernel = matmul(m, n, k, block_M)
    kernel.params[0].shape = ("M", 64)
    return kernel
