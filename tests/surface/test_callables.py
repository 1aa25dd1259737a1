"""gt.callables: what is compiled, tuned and kept, in the manner of CuTe DSL's guide to tuning."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from said_times import Said

import gemm_tuner as gt
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Device, Status

SPACE = {
    "mma_tiler_mn": [(128, 128), [256, 128], (256, 256)],
    "cluster_shape_mn": [(2, 1), (1, 1)],
    "use_2cta_instrs": [True, False],
    "use_tma_store": [True],
}


class FakeDsl:
    """Compiles a product that says how long it takes; the best tile is 256 x 128 with two CTAs, in a cluster of one."""

    def __init__(self) -> None:
        self.clock = Said()
        self.compiled: list[dict[str, Any]] = []

    def compile(self, config: dict[str, Any]) -> Callable[..., None]:
        self.compiled.append(config)
        rows, columns = config["mma_tiler_mn"]
        if (rows, columns) == (256, 256) and not config["use_2cta_instrs"]:
            raise ValueError("tile needs two CTAs")
        us = 10 + abs(rows - 256) / 64 + abs(columns - 128) / 64
        us += 3 * (not config["use_2cta_instrs"]) + config["cluster_shape_mn"][0]

        def launch(a: Any, b: Any, c: Any) -> None:
            self.clock.us = us
            c[...] = a @ b

        return launch


def operands(m: int, n: int = 4, k: int = 4, dtype: str = "float32") -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    return rng.random((m, k), dtype), rng.random((k, n), dtype), np.zeros((m, n), dtype)


def tunable(dsl: FakeDsl, **more: Any) -> Any:
    product = {"reference": lambda a, b, c: a @ b, "outputs": lambda a, b, c: [c], "clock": dsl.clock}
    return gt.callables(dsl.compile, SPACE, output_dir=None, **{**product, **more})


def test_the_best_kernel_is_compiled_once_kept_and_launched() -> None:
    dsl = FakeDsl()
    gemm = tunable(dsl)
    a, b, c = operands(8)
    gemm(a, b, c)
    assert np.allclose(c, a @ b)
    tuned = gemm.tune(a, b, c)
    assert tuned.config == {
        "mma_tiler_mn": [256, 128], "cluster_shape_mn": (1, 1), "use_2cta_instrs": True, "use_tma_store": True,
    }  # fmt: skip
    assert (gemm.tunings, gemm.compiles, len(dsl.compiled)) == (1, 12, 12)
    gemm(a, b, c)
    assert (gemm.tunings, gemm.compiles) == (1, 12)
    assert gemm.best(a, b, c) is tuned.kernel
    failed = [row for row in tuned.rows if row.status is Status.COMPILE_ERROR]
    assert len(failed) == 2 and all("two CTAs" in row.reason for row in failed)


def test_two_sizes_share_what_was_compiled_unless_shapes_are_static() -> None:
    dsl = FakeDsl()
    gemm = tunable(dsl)
    for m in (8, 16):
        gemm(*operands(m))
    assert gemm.tunings == 2 and len([one for one in dsl.compiled if one["mma_tiler_mn"] == (128, 128)]) == 4
    gemm(*operands(8, dtype="float64"))
    assert len([one for one in dsl.compiled if one["mma_tiler_mn"] == (128, 128)]) == 8
    static = FakeDsl()
    gemm = gt.callables(lambda config, a, b, c: static.compile(config), SPACE, output_dir=None, clock=static.clock)
    for m in (8, 16):
        gemm(*operands(m))
    assert len([one for one in static.compiled if one["mma_tiler_mn"] == (128, 128)]) == 8


def test_derived_values_are_computed_once_a_configuration_and_shown() -> None:
    dsl, asked = FakeDsl(), []

    def max_active_clusters(config: dict[str, Any], device: Device) -> int:
        asked.append(config)
        rows, columns = config["cluster_shape_mn"]
        return int(device.num_sms // (rows * columns))

    gemm = tunable(dsl, derived={"max_active_clusters": max_active_clusters, "twice": lambda config: 2})
    gemm(*operands(8))
    gemm(*operands(16))
    tuned = gemm.tune(*operands(8))
    assert len(asked) == 12
    assert all(one["max_active_clusters"] >= 1 and one["twice"] == 2 for one in dsl.compiled)
    assert "max_active_clusters" in tuned.table[0]
    with pytest.raises(UserError, match="derived value bad raised ZeroDivisionError"):
        tunable(FakeDsl(), derived={"bad": lambda config: 1 // 0})(*operands(8))


def test_a_benchmark_of_the_users_decides_and_is_named() -> None:
    dsl, timed = FakeDsl(), []

    def benchmark(function: Callable[[], Any]) -> float:
        function()
        timed.append(dsl.clock.us)
        if dsl.clock.us == 11.0:
            raise RuntimeError("the fastest is refused")
        return dsl.clock.us / 1e3

    gemm = tunable(dsl, benchmark=benchmark, benchmark_unit="ms")
    tuned = gemm.tune(*operands(8))
    assert len(timed) == 10 and tuned.latency_us == pytest.approx(12.0)
    assert tuned.method == "user" and {row.method for row in tuned.rows if row.us is not None} == {"user"}
    assert "is refused" in next(row.reason for row in tuned.rows if row.status is Status.LAUNCH_ERROR)
    with pytest.raises(UserError, match="accepted: s, ms, us, ns"):
        tunable(dsl, benchmark=benchmark, benchmark_unit="min")


def test_none_left_names_the_commonest_reason() -> None:
    def build(config: dict[str, Any]) -> Callable[..., Any]:
        raise RuntimeError("no such instruction")

    gemm = gt.callables(build, {"B": [1, 2]}, output_dir=None)
    with pytest.raises(ValueError, match=r"No best kernel found: 2 of 2 .*no such instruction"):
        gemm(1)
    with pytest.raises(ValueError, match="No best kernel found"):  # and what failed is tried again
        gemm(1)
    with pytest.raises(UserError, match="No configurations to tune"):
        gt.callables(build, {"B": []})


def power_of_2(number: int) -> int:
    return 1 << (number - 1).bit_length()


def test_the_reference_is_computed_once_for_each_case() -> None:
    dsl, cases = FakeDsl(), []

    def reference(a: Any, b: Any, c: Any) -> Any:
        cases.append(a.shape)
        return a @ b

    gemm = tunable(dsl, reference=reference)
    for m in (8, 16, 8):
        gemm(*operands(m))
    assert gemm.tunings == 2 and cases == [(8, 4), (16, 4)]


def test_calls_of_one_key_share_a_configuration_and_its_cost_is_measured() -> None:
    clock = Said()

    def build(config: dict[str, Any]) -> Callable[..., Any]:
        def launch(x: Any) -> Any:
            clock.us = 10 + abs(len(x) - config["B"]) / 100
            return x

        return launch

    by_bucket = gt.callables(
        build, {"B": [900, 1000]}, key=lambda x: power_of_2(len(x)), validate_key=1, clock=clock, output_dir=None
    )
    for size in (900, 1000, 950, 900):
        by_bucket(np.zeros(size))
    assert list(by_bucket.found) == [1024] and by_bucket.tunings == 2
    (validation,) = by_bucket.validations
    assert validation.config == {"B": 900} and validation.best == {"B": 1000}
    assert validation.us == pytest.approx(11.0) and validation.loss_pct == pytest.approx(10.0)


def test_a_kernel_that_changes_what_it_reads_needs_restore() -> None:
    def build(config: dict[str, Any]) -> Callable[..., Any]:
        def add(x: Any) -> Any:
            x += config["B"]
            return x

        return add

    x = np.zeros(2)
    with pytest.raises(ValueError, match=r"No best kernel found: 1 of 1 are unstable"):
        gt.callables(build, {"B": [1]}, output_dir=None)(x)
    restored = gt.callables(build, {"B": [1]}, restore=lambda x: x.fill(0), output_dir=None)
    assert restored.tune(x).config == {"B": 1}


def test_threads_that_call_at_once_tune_once() -> None:
    dsl, barrier = FakeDsl(), threading.Barrier(4)
    gemm = tunable(dsl)

    def call(_: int) -> Any:
        barrier.wait()
        return gemm.tune(*operands(8))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(call, range(4)))
    assert gemm.tunings == 1 and all(one is found[0] for one in found)


# As CuTe DSL's guide has it: loops over lists, a dictionary of compiled kernels, the user's benchmark, the best kernel.
def autotune_gemm(
    dsl: FakeDsl,
    a: Any,
    b: Any,
    c: Any,
    use_2cta_instrs_list: tuple[bool, ...] = (True,),
    use_tma_store_list: tuple[bool, ...] = (True,),
    mma_tiler_m_list: tuple[int, ...] = (256,),
    mma_tiler_n_list: tuple[int, ...] = (256,),
    cluster_shape_m_list: tuple[int, ...] = (2,),
    cluster_shape_n_list: tuple[int, ...] = (1,),
) -> Any:
    space = {
        "use_2cta_instrs": use_2cta_instrs_list,
        "use_tma_store": use_tma_store_list,
        "mma_tiler_mn": list(itertools.product(mma_tiler_m_list, mma_tiler_n_list)),
        "cluster_shape_mn": list(itertools.product(cluster_shape_m_list, cluster_shape_n_list)),
    }
    return gt.callables(dsl.compile, space, clock=dsl.clock, output_dir=None).best(a, b, c)


def test_autotune_gemm_of_the_guide_returns_the_best_compiled_kernel() -> None:
    dsl = FakeDsl()
    a, b, c = operands(8)
    kernel = autotune_gemm(dsl, a, b, c, mma_tiler_n_list=(128, 256), cluster_shape_m_list=(1, 2))
    assert len(dsl.compiled) == 4
    partial(kernel, a, b, c)()
    assert dsl.clock.us == 11.0 and np.allclose(c, a @ b)
    assert autotune_gemm(dsl, a, b, c) is not None
    with pytest.raises(ValueError, match="No best kernel found"):
        autotune_gemm(dsl, a, b, c, use_2cta_instrs_list=(False,))
