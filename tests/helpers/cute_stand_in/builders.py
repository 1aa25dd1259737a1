"""Functions that make kernels of the stand-in, and one that the compiler does not survive."""

from __future__ import annotations

from typing import Any

from cutlass import cute


@cute.kernel
def of_shape(tile: tuple[int, int], shared: int) -> dict[str, int]:
    return {"static": tile[1], "dynamic": shared, "values": tile[0]}


def built(tile: tuple[int, int], shared: int, fault: str = "") -> tuple[Any, tuple[Any, ...], Any]:
    assert isinstance(tile, tuple)

    def once(*arguments: Any) -> None:
        of_shape(*arguments)

    def twice(*arguments: Any) -> None:
        of_shape(*arguments)
        of_shape(*arguments)

    if fault == "raises":
        raise ValueError(f"no tile {tile}")
    if fault == "aborts":
        import os

        os.abort()
    return twice if fault == "twice" else once, (tile, shared), of_shape
