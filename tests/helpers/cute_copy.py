"""A small kernel in CuTe DSL itself, of our own; importing this needs no DSL.

Annotations are objects here: the DSL looks names of texts up in the module, which has none of the DSL's.
"""

from typing import Any


def copy(threads: int, fault: str = "") -> tuple[Any, tuple[Any, ...], Any]:
    """Copies rows of (M, threads) bf16, one block a row."""
    import os

    from cutlass import BFloat16, cute
    from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

    @cute.kernel  # type: ignore[untyped-decorator]
    def rows(x: cute.Tensor, y: cute.Tensor) -> None:
        thread, _, _ = cute.arch.thread_idx()
        row, _, _ = cute.arch.block_idx()
        y[row, thread] = x[row, thread]

    @cute.jit  # type: ignore[untyped-decorator]
    def launch(x: cute.Tensor, y: cute.Tensor, stream: Any) -> None:
        rows(x, y).launch(grid=[cute.size(x, mode=[0]), 1, 1], block=[threads, 1, 1], stream=stream)

    if fault == "aborts":
        os.abort()
    tensors = (make_fake_compact_tensor(BFloat16, (cute.sym_int(), threads), stride_order=(1, 0)) for _ in range(2))
    return launch, (*tensors, make_fake_stream(use_tvm_ffi_env_stream=True)), rows
