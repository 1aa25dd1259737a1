"""A file with the interface of NVIDIA's example for Blackwell."""

from __future__ import annotations

from typing import Any

from cutlass import cute


class CantImplementError(Exception):
    pass


class PersistentDenseGemmKernel:
    def __init__(
        self,
        acc_dtype: str,
        use_2cta_instrs: bool,
        mma_tiler_mn: tuple[int, int],
        cluster_shape_mn: tuple[int, int],
        use_tma_store: bool,
    ) -> None:
        assert acc_dtype == "f32"
        self.two, self.tile, self.cluster, self.tma = use_2cta_instrs, mma_tiler_mn, cluster_shape_mn, use_tma_store

    def check_mma_tiler_and_cluster_shape(self) -> None:
        if not self.two or self.cluster[0] % 2:
            raise CantImplementError("not one CTA" if not self.two else "no pair of CTAs")

    @cute.kernel
    def kernel(self) -> dict[str, int]:
        return {"static": 64, "dynamic": 16 * self.tile[1] * (1 + self.tma), "values": self.tile[0] // 8 + 4 * self.tma}

    def __call__(self, a: Any, b: Any, c: Any, max_active_clusters: int, stream: Any) -> None:
        assert stream is True and max_active_clusters > 0
        assert {shape[-1] for _, shape, *_ in (a, b, c)} == {1} and a[2] == c[2] == (1, 0, 2)
        self.kernel()
