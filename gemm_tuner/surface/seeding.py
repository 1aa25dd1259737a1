"""Random numbers that are the same each time, for functions of users that draw from the global generators."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Starts the global generators of random, numpy and torch (the CPU's and the current GPU's) at a seed; they go on
    afterwards as if nothing had been drawn. numpy and torch only where they are imported already."""
    state = random.getstate()
    with contextlib.ExitStack() as after:
        after.callback(random.setstate, state)
        random.seed(seed)
        if numpy := sys.modules.get("numpy"):
            after.callback(numpy.random.set_state, numpy.random.get_state())
            numpy.random.seed(seed)
        if torch := sys.modules.get("torch"):
            gpus = [torch.cuda.current_device()] if torch.cuda.is_available() else []
            after.enter_context(torch.random.fork_rng(gpus))
            # torch.manual_seed would seed all GPUs, whose states are not restored.
            torch.default_generator.manual_seed(seed)
            if gpus:
                torch.cuda.manual_seed(seed)
        yield
