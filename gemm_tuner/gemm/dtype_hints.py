"""What somebody meant who wrote a type by another of its names. A hint only: no other name is taken."""

from __future__ import annotations

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.system.values import did_you_mean

_E4M3 = ("fp8_e4m3", "fp8_e4m3_fnuz")
_E5M2 = ("fp8_e5m2", "fp8_e5m2_fnuz")
_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    **{name: (t.name,) for t in DTYPES.values() for name in (t.torch_name, t.triton_name)},
    **{t.torch_name.removeprefix("float8_"): (t.name,) for t in DTYPES.values() if t.is_fp8},
    **dict.fromkeys(("fp8", "float8", "f8", "e4m3", "float8_e4m3", "fp8e4m3"), _E4M3),
    **dict.fromkeys(("bf8", "e5m2", "fp8e5m2"), _E5M2),
    **dict.fromkeys(("f16", "half"), ("fp16",)),
    **dict.fromkeys(("bf", "bfp16", "b16"), ("bf16",)),
    **dict.fromkeys(("f32", "float", "single"), ("fp32",)),
    **dict.fromkeys(("i8", "s8", "uint8", "char"), ("int8",)),
    **dict.fromkeys(("i32", "s32", "int"), ("int32",)),
}
_USED_BY = {**dict.fromkeys(_E4M3 + _E5M2, " (OCP)"), **dict.fromkeys((_E4M3[1], _E5M2[1]), " (MI300)")}


def dtype_hint(name: str, accepted: tuple[str, ...]) -> str:
    """What to write in place of a name that is not accepted; empty when nothing is near.

    accepted: INPUT_DTYPES or OUTPUT_DTYPES.
    """
    folded = name.strip().casefold()[:60]
    if folded == "tf32":
        return "tf32 is a way to multiply fp32: write fp32, and tf32 for precision"
    meant = tuple(n for n in DTYPES if n == folded) or _OTHER_NAMES.get(folded, ())
    possible = [f"{other}{_USED_BY.get(other, '')}" for other in meant if other in accepted]
    if possible:
        return f"did you mean {' or '.join(possible)}?"
    if meant:
        return f"{meant[0]} is for {'C' if meant[0] == 'int32' else 'A and B'} only"
    return did_you_mean(folded, accepted)
