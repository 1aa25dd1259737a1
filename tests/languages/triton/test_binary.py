"""Registers and spills out of real machine code, and out of what is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gemm_tuner.compile.compile_pool import CompilePool
from gemm_tuner.core.language import CompileTask
from gemm_tuner.core.records import CompileResult, Status
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.specialization import specialization
from gemm_tuner.languages import elf
from gemm_tuner.languages.triton import binary
from gemm_tuner.languages.triton.compile_call import code_hash
from gemm_tuner.languages.triton.language import LANGUAGE
from gemm_tuner.source import codegen
from gemm_tuner.space import space

ROOT = Path(__file__).resolve().parents[3]
PROBLEM = GemmProblem(64, 64, 64)
CUDA = KernelConfig("gemm_tile", 32, 32, 32, 1, 1, 4, 2)
HIP = KernelConfig("gemm_tile", 32, 32, 32, 1, 1, 4, 2, waves_per_eu=0, matrix_instr_nonkdim=16, kpack=1)
# Two integers of AMD's note as MessagePack: fixint 77, and 0xcc (8 bit) 130.
NOTE = b"\x82\xab.vgpr_count\x4d\xb1.vgpr_spill_count\xcc\x82"


def compiled_image(folder: Path, arch: str, config: KernelConfig, suffix: str) -> tuple[bytes, CompileResult]:
    """Machine code as Triton leaves it in its cache, and what the pool read from it."""
    target = space.load(space.space_path(ROOT / "rules", arch), arch).device.target
    script = codegen.write_script(ROOT / "templates", folder, "gemm_tile", PROBLEM, [config], target)
    task = CompileTask(script, config.kernel_symbol, specialization(PROBLEM, config, target), PROBLEM)
    with CompilePool(LANGUAGE, target, 1, folder / "cache", folder / "log.txt", folder) as pool:
        ((_, result),) = pool.run([task])
    assert result.status == Status.OK, result.message
    (image,) = (folder / "cache").rglob(f"*{suffix}")
    return image.read_bytes(), result


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, CompileResult]:
    return compiled_image(tmp_path_factory.mktemp("cubin"), "sm_90", CUDA, ".cubin")


@pytest.fixture(scope="module")
def hsaco(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, CompileResult]:
    return compiled_image(tmp_path_factory.mktemp("hsaco"), "gfx942", HIP, ".hsaco")


def test_a_cubin_tells_its_registers(cubin: tuple[bytes, CompileResult]) -> None:
    image, result = cubin
    found = binary.nvidia_resources(image, binary.cuobjdump_path())
    assert found == binary.Resources(result.registers, result.spills)
    assert 16 <= found.registers <= 255 and found.spills == 0


def test_a_code_object_tells_its_registers(hsaco: tuple[bytes, CompileResult]) -> None:
    image, result = hsaco
    found = binary.amd_resources(image)
    assert found == binary.Resources(result.registers, result.spills)
    assert 8 <= found.registers <= 512 and found.spills == 0


@pytest.mark.parametrize("image", [b"", b"\x7fELF", b"not machine code " * 100])
def test_what_is_no_cubin_is_a_value_error(image: bytes) -> None:
    with pytest.raises(ValueError, match="no REG line"):
        binary.nvidia_resources(image, binary.cuobjdump_path())


def test_a_cut_cubin_is_a_value_error(cubin: tuple[bytes, CompileResult]) -> None:
    with pytest.raises(ValueError, match="no REG line"):
        binary.nvidia_resources(cubin[0][:200], binary.cuobjdump_path())


def test_a_code_object_is_no_cubin(hsaco: tuple[bytes, CompileResult]) -> None:
    with pytest.raises(ValueError, match="no REG line"):
        binary.nvidia_resources(hsaco[0], binary.cuobjdump_path())


def test_a_cubin_is_no_code_object(cubin: tuple[bytes, CompileResult]) -> None:
    with pytest.raises(ValueError, match=r"no \.vgpr_count"):
        binary.amd_resources(cubin[0])


def section_at(image: bytes, kind: str) -> int:
    """Where the contents of the first section of a kind begin."""
    body = next(body for name, body in elf._sections(image) if name.startswith(kind) and body)
    return image.index(body)


@pytest.mark.parametrize("which", ["cubin", "hsaco"])
def test_code_is_told_without_the_name_of_the_kernel(which: str, request: pytest.FixtureRequest) -> None:
    image, result = request.getfixturevalue(which)
    code = elf.code_of(image)
    assert result.name.encode() in image and result.name.encode() not in code
    renamed = image.replace(result.name.encode(), b"x" * len(result.name))
    assert elf.code_of(renamed) == code


def test_the_hash_is_over_the_code_and_how_it_is_launched(cubin: tuple[bytes, CompileResult]) -> None:
    image, result = cubin
    metadata = SimpleNamespace(name=result.name, shared=1024, num_warps=4, tensordesc_meta=[])

    def hashed(registers: int = 64, **changes: Any) -> str:
        return code_hash([(image, SimpleNamespace(**{**vars(metadata), **changes}))], registers)

    assert hashed() == hashed(name="another") == code_hash([(image, metadata)], 64)
    others = {hashed(shared=2048), hashed(num_warps=8), hashed(tensordesc_meta=[{"swizzle": 1}]), hashed(registers=65)}
    assert len({hashed(), code_hash([(image, metadata)] * 2, 64), *others}) == 6


@pytest.mark.parametrize("kind", [".text", ".rodata"])
def test_another_instruction_or_kernel_descriptor_is_other_code(hsaco: tuple[bytes, CompileResult], kind: str) -> None:
    image = bytearray(hsaco[0])
    image[section_at(hsaco[0], kind)] ^= 1
    assert elf.code_of(bytes(image)) != elf.code_of(hsaco[0])


def test_another_instruction_or_constant_of_a_cubin_is_other_code(cubin: tuple[bytes, CompileResult]) -> None:
    for kind in (".text.", ".nv.constant0"):
        image = bytearray(cubin[0])
        image[section_at(cubin[0], kind)] ^= 1
        assert elf.code_of(bytes(image)) != elf.code_of(cubin[0])


@pytest.mark.parametrize("image", [b"", b"\x7fELF\x02\x01", b"\x7fELF\x01\x01" + bytes(100), b"not code " * 100])
def test_what_is_no_elf_file_has_no_code(image: bytes) -> None:
    with pytest.raises(ValueError, match="ELF"):
        elf.code_of(image)


def test_an_elf_file_without_instructions_has_no_code(cubin: tuple[bytes, CompileResult]) -> None:
    with pytest.raises(ValueError, match="no machine code"):
        elf.code_of(cubin[0].replace(b".text.", b".test."))


def test_a_cubin_cut_short_has_no_code(cubin: tuple[bytes, CompileResult]) -> None:
    with pytest.raises(ValueError, match=r"ELF file|no machine code"):
        elf.code_of(cubin[0][: len(cubin[0]) // 2])


def test_every_width_of_an_integer_is_read() -> None:
    assert binary.amd_resources(NOTE) == binary.Resources(77, 130)
    for value in (b"\xcd\x01\x00", b"\xce\x00\x00\x01\x00"):
        assert binary.amd_resources(NOTE[:-2] + value).spills == 256
    assert binary.amd_resources(NOTE[:-2] + b"\x7f").spills == 127


@pytest.mark.parametrize("end", range(len(NOTE)))
def test_a_note_cut_anywhere_is_a_value_error(end: int) -> None:
    with pytest.raises(ValueError, match=r"\.vgpr"):
        binary.amd_resources(NOTE[:end])


@pytest.mark.parametrize("value", [b"\xa1x", b"\xc0", b"\xff", b"\xcb" + bytes(8)])
def test_a_value_that_is_no_unsigned_integer_is_a_value_error(value: bytes) -> None:
    with pytest.raises(ValueError, match="no unsigned integer"):
        binary.amd_resources(NOTE[:-2] + value)
