"""Which known architecture stands in for an unknown one."""

from __future__ import annotations

import pytest
from samples import ARCHS, RULES

from gemm_tuner.core.architecture import Architecture, nearest, plain
from gemm_tuner.export import devices
from gemm_tuner.space import space

RELATIVES = {
    "sm_80": "sm_80",
    "sm_87": "sm_86",
    "sm_88": "sm_86",
    "sm_91": "sm_90",
    "sm_101": "sm_100",
    "sm_104": "sm_103",
    "sm_110": "sm_100",
    "sm_121": "sm_120",
    "gfx940": "gfx942",
    "gfx941": "gfx942",
    "gfx908": "gfx90a",
    "gfx951": "gfx950",
    "gfx1101": "gfx1100",
    "gfx1151": "gfx1100",
    "gfx1200": "gfx1201",
    # Of an earlier generation, where none of its own is known.
    "sm_130": "sm_120",
    "gfx960": "gfx950",
    "gfx1310": "gfx1201",
}


@pytest.mark.parametrize("arch", RELATIVES)
def test_the_nearest_relative(arch: str) -> None:
    assert nearest(arch, ARCHS) == RELATIVES[arch]


@pytest.mark.parametrize("arch", ["sm_75", "sm_42", "gfx803", "gfx1030", "sm_", "gfx", "metal", "", "sm_9x", "sm_999x"])
def test_what_came_before_all_and_a_name_of_no_known_form_have_no_relative(arch: str) -> None:
    assert nearest(arch, ARCHS) is None


def test_nvidias_letters_are_left_to_the_compiler() -> None:
    names = {"sm_90a": "sm_90", "sm_100f": "sm_100", "sm_90": "sm_90", "gfx90a": "gfx90a", "sm_9x": "sm_9x", "": ""}
    assert {name: plain(name) for name in names} == names


def test_there_is_no_relative_in_another_line() -> None:
    assert nearest("sm_90", ("gfx942", "gfx1100")) is None and nearest("gfx942", ("gfx1100",)) is None


def test_a_lower_relative_is_preferred_to_a_nearer_higher_one() -> None:
    assert nearest("sm_88", ("sm_80", "sm_89")) == "sm_80"
    assert nearest("sm_88", ("sm_89",)) == "sm_89"


def test_only_wgmma_and_tcgen05_multiply_by_warp_groups() -> None:
    kinds = {kind for kind in ("mma", "wgmma", "tcgen05", "mfma", "wmma") if Architecture(kind, True).by_warp_groups}
    assert kinds == {"wgmma", "tcgen05"}


def test_every_gpu_of_export_is_named_once_and_has_its_own_architecture() -> None:
    table = devices.table(RULES)
    names = [limit.name.casefold() for limit in table]
    assert len(names) == len(set(names))
    known = {limit.name: (limit.arch, limit.shared_memory_bytes) for limit in table}
    assert known["L40S"] == ("sm_89", 101376) and known["A10"] == ("sm_86", 101376)
    assert known["RTX5090"] == ("sm_120", 101376) and known["B300"] == ("sm_103", 232448)
    assert known["RX7900XTX"] == ("gfx1100", 65536) and known["MI300X"] == ("gfx942", 65536)
    assert {limit.arch for limit in table} == set(ARCHS) == set(space.known_archs(RULES))
