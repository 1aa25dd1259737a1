"""The routing of tokens to experts: drawn from a distribution, or recorded.

The experts of a token are distinct. A draw depends only on the distribution, the sizes and the seed, so that every
configuration and every server gets the same routing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.system.carried_files import path_here
from gemm_tuner.system.documents import show

if TYPE_CHECKING:  # the command line imports this module without needing numpy
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.int32]

FORM = "uniform, balanced, zipf:1.0, dirichlet:0.3, or a file .npy of expert ids [tokens, topk]"
MAX_PARAMETER = 100.0


@dataclass(frozen=True, slots=True)
class Routing:
    """kind: uniform, balanced, zipf, dirichlet or file. parameter: of zipf and dirichlet. path: of a file."""

    kind: str
    parameter: float = 0.0
    path: str = ""


def parse(text: str) -> Routing:
    """Parses a text in the form FORM. Raises UserError for an invalid one."""
    if text in ("uniform", "balanced"):
        return Routing(text)
    named = re.fullmatch(r"(zipf|dirichlet):([0-9]+(?:\.[0-9]+)?)", text)
    if named and 0 < float(named[2]) <= MAX_PARAMETER:
        return Routing(named[1], float(named[2]))
    if text.endswith(".npy"):
        return Routing("file", path=text)
    hint = f"numpy.save('ids.npy', torch.load({text!r}, weights_only=True)) makes one" if text.endswith(".pt") else ""
    raise UserError(f"{show(text)} is no routing", where="--routing", accepted=FORM, hint=hint)


def files(texts: Iterable[str]) -> tuple[str, ...]:
    """The paths of recorded ones."""
    return tuple(one.path for one in map(parse, texts) if one.kind == "file")


def ids(text: str, tokens: int, topk: int, experts: int, seed: int) -> Ids:
    """Expert ids, shape (tokens, topk). Raises UserError for an unusable file."""
    found = _ids(text, tokens, topk, experts, seed)
    found.flags.writeable = False
    return found


@lru_cache(maxsize=64)
def _ids(text: str, tokens: int, topk: int, experts: int, seed: int) -> Ids:
    import numpy as np

    one, generator = parse(text), np.random.default_rng([seed, tokens, topk, experts])
    if one.kind == "file":
        return _recorded(one.path, tokens, topk, experts, generator)
    if one.kind == "balanced":
        first = np.arange(tokens * topk, dtype=np.int64) % experts
        return np.asarray(generator.permutation(experts)[first].reshape(tokens, topk), dtype=np.int32)
    # Gumbel top-k trick: the topk largest of log p + Gumbel noise are a sample without replacement with weights p.
    noise = generator.gumbel(size=(tokens, experts))
    if one.kind == "zipf":
        noise -= one.parameter * np.log(1 + generator.permutation(experts))
    elif one.kind == "dirichlet":
        noise += np.log(np.maximum(generator.dirichlet(np.full(experts, one.parameter)), 1e-300))
    return np.argpartition(-noise, topk - 1, axis=1)[:, :topk].astype(np.int32)


def _recorded(path: str, tokens: int, topk: int, experts: int, generator: np.random.Generator) -> Ids:
    """``tokens`` consecutive rows of a recorded array from a random start, repeated if it has fewer."""
    import numpy as np

    array = _loaded(path)
    if array.ndim != 2 or array.shape[1] != topk or not len(array) or array.dtype.kind not in "iu":
        what = f"holds {array.dtype} of shape {array.shape}"
        raise UserError(what, where=path, accepted=f"expert ids of shape [tokens, {topk}]")
    if array.min() < 0 or array.max() >= experts:
        accepted = f"ids from 0 to {experts - 1}"
        raise UserError(f"has ids from {array.min()} to {array.max()}", where=path, accepted=accepted)
    start = int(generator.integers(len(array)))
    return np.asarray(array[(start + np.arange(tokens)) % len(array)], dtype=np.int32)


@lru_cache(maxsize=8)
def _loaded(path: str) -> npt.NDArray[Any]:
    """The array of a file, loaded without unpickling."""
    import numpy as np

    try:
        with path_here(path).open("rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)  # type: ignore[no-untyped-call]
            return np.asarray(array)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        accepted = "expert ids as numpy.save wrote them"
        raise UserError(f"cannot be read: {reason}", where=path, accepted=accepted) from error


def counts(found: Ids, experts: int) -> npt.NDArray[np.intp]:
    """Number of rows of each of the first experts."""
    import numpy as np

    return np.bincount(found.ravel(), minlength=experts)[:experts]


def padded_rows(found: Ids, experts: int, block: int) -> int:
    """Number of rows after padding every expert to whole blocks."""
    return int((-(-counts(found, experts) // block) * block).sum())
