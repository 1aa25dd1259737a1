"""The inputs for tuning a kernel: given tensors, a user's function, or random tensors by type and shape."""

from __future__ import annotations

import contextlib
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.surface.seeding import seeded

FLOATS = ("float16", "bfloat16", "float32", "float64")
SEED = 0


class TensorSupplyType(Enum):
    """The distribution of random inputs.

    Auto:    uniform in [-1, 1) for 16 and 32 bit floats, small integers for the rest.
    Integer: integers from -2 to 2; 0 to 2 for unsigned types, 0 and 1 for bool.
    Uniform: [-1, 1). Normal: mean -1, standard deviation 1, as in TileLang. Randn: mean 0, standard deviation 1.
    """

    Integer = 1
    Uniform = 2
    Normal = 3
    Randn = 4
    Zero = 5
    One = 6
    Auto = 7


@dataclass(frozen=True, slots=True)
class KernelParam:
    """An argument of a kernel. dtype: torch's name, such as ``float16``. shape: integers, or names for dimensions that
    are unknown at compile time; empty for a scalar."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def is_scalar(self) -> bool:
        return not self.shape


_of_this_thread: ContextVar[tuple[tuple[Any, ...], ...]] = ContextVar("autotune_inputs", default=())
_open_blocks: list[tuple[Any, ...]] = []
_blocks_lock = threading.Lock()


@contextlib.contextmanager
def set_autotune_inputs(*args: Any) -> Iterator[None]:
    """A context in which all configurations are tuned with these tensors: ``with set_autotune_inputs(a, b, c):``, or
    one list of them. Threads without their own block use the innermost open one."""
    tensors = tuple(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
    token = _of_this_thread.set((*_of_this_thread.get(), tensors))
    with _blocks_lock:
        _open_blocks.append(tensors)
    try:
        yield
    finally:
        _of_this_thread.reset(token)
        with _blocks_lock:
            # By identity, because == on tensors compares elements.
            del _open_blocks[next(at for at in reversed(range(len(_open_blocks))) if _open_blocks[at] is tensors)]


def given_inputs() -> tuple[Any, ...] | None:
    """The tensors of the innermost ``set_autotune_inputs``; None outside of one."""
    own = _of_this_thread.get()
    if own:
        return own[-1]
    with _blocks_lock:
        return _open_blocks[-1] if _open_blocks else None


@dataclass(frozen=True, slots=True)
class Supply:
    """The source of inputs: ``given`` is preferred to ``program``, and that to ``kind``."""

    kind: TensorSupplyType = TensorSupplyType.Auto
    program: Callable[..., Sequence[Any]] | None = None
    given: tuple[Any, ...] | None = None

    def warn_of_unused(self) -> None:
        """Warns if several sources of inputs are given, and says which is used."""
        taken = "set_autotune_inputs" if self.given is not None else "supply_prog" if self.program else ""
        unused = ["supply_prog"] if self.given is not None and self.program else []
        unused += ["supply_type"] if taken and self.kind is not TensorSupplyType.Auto else []
        if unused:
            warnings.warn(f"{' and '.join(unused)} not used: inputs come from {taken}", stacklevel=3)

    def inputs(self, params: Sequence[KernelParam] | None, what: str, device: str = "") -> list[Any]:
        """The inputs of a kernel; random ones, also those that ``program`` draws, are equal from call to call.

        params: its arguments, without outputs that it creates itself; None if unknown.
        Raises UserError naming an argument that cannot be created.
        """
        if self.given is not None:
            return list(self.given)
        if self.program is not None:
            with seeded(SEED):
                return list(self.program(params) if _takes_an_argument(self.program) else self.program())
        if params is None:
            raise UserError(
                f"the types and shapes of {what}'s arguments are not known",
                hint="give inputs: with gt.set_autotune_inputs(a, b), or supply_prog=",
            )
        return random_inputs(params, self.kind, device)


def _takes_an_argument(program: Callable[..., Any]) -> bool:
    try:
        inspect.signature(program).bind(None)
        return True
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True


def random_inputs(params: Sequence[KernelParam], kind: TensorSupplyType, device: str = "") -> list[Any]:
    """A tensor for each argument, on the current GPU if there is one."""
    if not params:
        return []
    import torch

    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator(device=place).manual_seed(SEED)
    return [_tensor(param, kind, generator) for param in params]


def _tensor(param: KernelParam, kind: TensorSupplyType, generator: Any) -> Any:
    import torch

    instead = "give it: with gt.set_autotune_inputs(...), or supply_prog="
    if param.is_scalar():
        raise UserError(f"{param.name} is a scalar ({param.dtype}), which no distribution gives", hint=instead)
    unknown = [str(size) for size in param.shape if not isinstance(size, int)]
    if unknown:
        raise UserError(f"{param.name} has a shape that is not static ({', '.join(unknown)})", hint=instead)
    dtype = getattr(torch, param.dtype, None)
    if not isinstance(dtype, torch.dtype):
        needs = "; 8-bit floats need PyTorch 2.1" if param.dtype.startswith("float8") else ""
        raise UserError(f"{param.name} has a type that torch does not have: {param.dtype}{needs}", hint=instead)
    shape = tuple(int(size) for size in param.shape)
    return _values(kind, param.dtype, shape, generator).to(dtype)


def _values(kind: TensorSupplyType, dtype: str, shape: tuple[int, ...], generator: Any) -> Any:
    """Numbers of the distribution, in a type that can represent them."""
    import torch

    device = generator.device
    is_float = dtype.startswith(("float", "bfloat"))
    if kind in (TensorSupplyType.Zero, TensorSupplyType.One):
        return torch.full(shape, float(kind is TensorSupplyType.One), device=device)
    if kind is TensorSupplyType.Auto:
        kind = TensorSupplyType.Uniform if dtype in FLOATS else TensorSupplyType.Integer
    if not is_float and kind is not TensorSupplyType.Integer:
        # Uniform numbers would all be truncated to 0.
        kind = TensorSupplyType.Integer
    if kind is TensorSupplyType.Integer:
        low, high = (0, 2) if dtype == "bool" else (0, 3) if dtype.startswith("uint") else (-2, 3)
        return torch.randint(low, high, shape, generator=generator, device=device)
    if kind is TensorSupplyType.Uniform:
        return torch.rand(shape, generator=generator, device=device) * 2 - 1
    return torch.randn(shape, generator=generator, device=device) - (1 if kind is TensorSupplyType.Normal else 0)
