"""``--kernel_from``: extracts a server's fused MoE kernel from the text of its source file or installed package."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gemm_tuner.core.errors import UserError
from gemm_tuner.kernels.taken import TakenKernel, functions_of, parsed, taken
from gemm_tuner.moe.launch import Tensors, values
from gemm_tuner.moe.problem import MoeProblem
from gemm_tuner.moe.servers import SERVERS, Server
from gemm_tuner.system.documents import show
from gemm_tuner.system.input_files import printable, read_text

FUNCTION = "fused_moe_kernel"
# For integers with scales of groups.
GROUPED = "fused_moe_kernel_gptq_awq"
FLAG = "--kernel_from"
MAX_BYTES = 8 * 2**20
# Arguments of every version; a kernel without one of these is another kernel.
NEEDED = (
    *("a_ptr", "b_ptr", "c_ptr", "a_scale_ptr", "b_scale_ptr", "topk_weights_ptr", "sorted_token_ids_ptr"),
    *("expert_ids_ptr", "num_tokens_post_padded_ptr", "N", "K", "EM", "num_valid_tokens"),
    *("group_n", "group_k", "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M"),
    *("MUL_ROUTED_WEIGHT", "top_k", "compute_type", "use_fp8_w8a8", "use_int8_w8a16"),
)
NEEDED_OF_GROUPED = (
    *("a_ptr", "b_ptr", "c_ptr", "b_scale_ptr", "b_zp_ptr", "topk_weights_ptr", "sorted_token_ids_ptr"),
    *("expert_ids_ptr", "num_tokens_post_padded_ptr", "N", "K", "EM", "num_valid_tokens", "group_size"),
    *("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "MUL_ROUTED_WEIGHT", "top_k", "compute_type"),
    *("has_zp", "use_int4_w4a16", "use_int8_w8a16"),
)


def read_all(given: Sequence[str], *, grouped: bool = False) -> dict[str, TakenKernel]:
    """The kernels by server. given: texts [SERVER=]PATH_OR_PACKAGE. grouped: those for integers with scales of groups.
    Raises UserError."""
    found: dict[str, TakenKernel] = {}
    for text in given:
        name, equals, place = text.partition("=")
        if not equals:
            name, place = "", text
        elif name not in SERVERS:
            raise UserError(f"{show(name)} is no server", where=FLAG, accepted=", ".join(SERVERS))
        server, kernel = read(place, SERVERS.get(name), grouped=grouped)
        if server.name in found:
            raise UserError(f"two kernels of {server.name} are given", where=FLAG, accepted="one of each server")
        found[server.name] = kernel
    return found


def read(place: str, of: Server | None = None, *, grouped: bool = False) -> tuple[Server, TakenKernel]:
    """(server, kernel) from a file, a folder or an installed package; the server follows from the kernel's arguments.
    Raises UserError."""
    file = _file(place, of)
    source = read_text(file, "fused MoE kernel", "Python", MAX_BYTES)
    module = parsed(source, file)
    name = GROUPED if grouped else FUNCTION
    function = functions_of(module).get(name)
    if function is None:
        accepted = f"source that defines {name}, or a package that has it"
        raise UserError(f"defines no {name}", where=printable(file), accepted=accepted)
    kernel = taken(source, module, function, file, "give the server's source file as it is")
    server = of or _server_of(kernel, file)
    check_arguments(kernel, server, file)
    return server, kernel


def _file(place: str, of: Server | None) -> Path:
    path = Path(place)
    if path.is_file():
        return path
    if path.is_dir():
        root = path
    elif re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", place):
        # For a name without a dot, find_spec does not execute the package.
        spec = importlib.util.find_spec(place)
        if spec is None or not spec.submodule_search_locations:
            accepted = "a .py file, a folder, or an installed package"
            raise UserError(f"no package {show(place)} is installed", where=FLAG, accepted=accepted)
        root = Path(next(iter(spec.submodule_search_locations)))
    else:
        raise UserError(f"{show(place)} is not there", where=FLAG, accepted="a .py file, a folder, or a package")
    servers = [of] if of else list(SERVERS.values())
    for candidate in (base / known for one in servers for known in one.places for base in (root, root.parent)):
        if candidate.is_file():
            return candidate
    accepted = ", ".join(known for one in servers for known in one.places)
    raise UserError(f"{printable(root)} has no {FUNCTION} where it is known to be", where=FLAG, accepted=accepted,
                    hint="name the file")  # fmt: skip


def _server_of(kernel: TakenKernel, file: Path) -> Server:
    found = fitting(kernel)
    if len(found) == 1:
        return found[0]
    accepted = "; ".join(f"{one.name}: has {' and '.join(marks(one, kernel))}" for one in SERVERS.values())
    where = f"{printable(file)}, {kernel.function}"
    raise UserError("is of no server by its arguments", where=where, accepted=accepted,
                    hint=f"{FLAG} SERVER=PATH says whose it is")  # fmt: skip


def fitting(kernel: TakenKernel) -> list[Server]:
    """The servers whose kernels alone have such arguments."""
    return [one for one in SERVERS.values() if set(marks(one, kernel)) <= set(kernel.arguments)]


def none_given(server: str) -> UserError:
    """The error for a server whose kernel is needed."""
    accepted = "the server's source file or installed package: [SERVER=]PATH"
    return UserError(f"no kernel of {server} is given", where=FLAG, accepted=accepted)


def check_arguments(kernel: TakenKernel, server: Server, file: Path) -> None:
    """Raises UserError for an unknown argument without a default, and for a missing argument."""
    known = known_arguments(server)
    unknown = [name for name in kernel.arguments if name not in known and name not in kernel.optional]
    needed = NEEDED_OF_GROUPED if kernel.function == GROUPED else NEEDED
    missing = [name for name in (*needed, *marks(server, kernel)) if name not in kernel.arguments]
    if unknown or missing:
        parts = [f"{word} {', '.join(names)}" for word, names in (("lacks", missing), ("has", unknown)) if names]
        others = [one.name for one in fitting(kernel) if one is not server]
        raise UserError(
            f"is of a version that cannot be launched: it {' and '.join(parts)}",
            where=f"{printable(file)}, {kernel.function}",
            accepted=f"the arguments that it has in {server.version}",
            hint=f"it looks like {others[0]}'s: {FLAG} {others[0]}={printable(file)}"
            if others
            else f"{FLAG} takes the source file of that version",
        )


def marks(server: Server, kernel: TakenKernel) -> tuple[str, ...]:
    return server.marks_of_grouped if kernel.function == GROUPED else server.marks


def known_arguments(server: Server) -> Mapping[str, object]:
    problem = MoeProblem(server.name, 1, 1, 16, 16, 1)
    config = server.default(problem, "")
    return values(problem, config, "up", Tensors(), "")
