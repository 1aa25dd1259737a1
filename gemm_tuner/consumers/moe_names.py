"""Names of vLLM's and SGLang's files of fused MoE layers."""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = re.compile(
    r"E=(?P<E>\d+),N=(?P<N>\d+),device_name=(?P<device>[^/,]+?)(?:,dtype=(?P<dtype>\w+?))?"
    r"(?:,block_shape=\[(?P<rows>\d+), ?(?P<columns>\d+)\])?(?P<channel>,per_channel_quant=True)?(?P<down>_down)?\.json"
)


@dataclass(frozen=True)
class FileName:
    """The parts of a name. per_channel, down: SGLang's."""

    E: int
    N: int
    device: str
    dtype: str
    block_shape: tuple[int, int]
    per_channel: bool
    down: bool

    @classmethod
    def of(cls, name: str) -> FileName | None:
        found = NAME.fullmatch(name)
        if found is None:
            return None
        block = int(found["rows"] or 0), int(found["columns"] or 0)
        flags = bool(found["channel"]), bool(found["down"])
        return cls(int(found["E"]), int(found["N"]), found["device"], found["dtype"] or "", block, *flags)
