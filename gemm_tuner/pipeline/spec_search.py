"""The genetic search over a spec's combinations, which runs only some of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gemm_tuner.kernels.program_spec import ProgramSpec
from gemm_tuner.search import SizeView
from gemm_tuner.search.genetic import Genetic

if TYPE_CHECKING:
    from gemm_tuner.pipeline.spec_rows import Row

# Smaller generations than for kernels, because every combination needs its own program run.
LEAST, SHARE = 6, 0.02


@dataclass(frozen=True)
class Program:
    """The spec's program in the role of a Problem, as searches require."""

    kind: ClassVar[str] = "program"
    flops: ClassVar[float] = 0.0
    bytes_moved: ClassVar[float] = 0.0
    rate_key: ClassVar[str] = ""
    key: str

    @property
    def signature(self) -> str:
        return self.key

    @property
    def subject(self) -> str:
        return self.key

    @property
    def shape(self) -> str:
        return self.key

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


def rounds(spec: ProgramSpec, rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yields the rows of each generation; the caller must run them before the next one. A row without a value then
    counts as failed."""
    import pandas as pd

    search, program, by_name = Genetic(least=LEAST, share=SHARE), Program(spec.name), {r.instance.name: r for r in rows}
    table = pd.DataFrame([dict(row.instance.values) for row in rows], index=list(by_name), dtype=object)
    # There is no model for programs, so the predicted order is random.
    table["predicted_us"] = random.Random(spec.name).sample(range(len(rows)), len(rows))
    asked: set[str] = set()
    while True:
        timed = {name: spec.metric.order(value) for name, row in by_name.items() if (value := row.value) is not None}
        view = SizeView(program, table, timed, frozenset(asked - timed.keys()))
        no_device: Any = None  # not used by this search
        names = search.propose([view], no_device).get(program, [])
        if not names:
            return
        asked.update(names)
        yield [by_name[name] for name in names]
