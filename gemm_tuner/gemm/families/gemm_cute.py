"""The kernels of quack-kernels in CuTe DSL for Hopper (clusters that load together, tiles in 16s and
with swapped operands in 8s, pingpong) and for Blackwell (clusters, tiles in 32s that one SM or two multiply).

What is said here of the library's classes was read in quack-kernels 0.6.5 and seen in compiling with them.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from gemm_tuner.core.dtypes import DTYPES
from gemm_tuner.gemm.descriptors import CHUNK_BYTES, whole_rows
from gemm_tuner.gemm.families.family import Family, Rates, rows_of

WARPS_OF_GROUP = 4
# Pipeline beyond its tiles: barriers, and what aligning the tiles takes.
BARRIERS_BYTES = 3072
EPILOGUE_COLUMNS = 32
# Parts of C that are stored together where its rows start anywhere, of tiles as they are and swapped; columns that go
# before the former; and what its rows are apart in shared memory beyond themselves (templates/_cute_rows.py.j2).
TOGETHER_BYTES, TOGETHER_SWAPPED_BYTES, LEAST_TOGETHER, ROW_GAP_BYTES = 36 << 10, 18 << 10, 64, 16
COLUMNS_OF_EIGHT = 8  # of a part of such a tile
COLUMNS_IN_EIGHTS = 16  # as many for tiles of odd multiples of 8: four parts, where others have two
ROOM_COLUMNS = 8  # of such a tile of 16 bits, in each block of K
MOST_STAGES = 12
# Of Blackwell's class: four for the epilogue, one each to multiply, to load operands and C_in, and to schedule.
BLACKWELL_WARPS = 8
BLACKWELL_EPILOGUE_ROWS = 128
ARCHITECTURES = ("sm_90", "sm_100", "sm_103")


def in_tensor_memory(device: Any) -> bool:
    """Whether sums are in tensor memory, as Blackwell's class has them, and not in registers."""
    return bool(device.target.facts.matrix == "tcgen05")


def stores_odd_rows(c: Any, problem: Any, device: Any) -> Any:
    """Whether the kernel that multiplies packed operands stores rows of C that are no multiple of 16 bytes itself. On
    Blackwell and with C_in another kernel does, from sums, as it adds up slices of K."""
    import numpy as np

    if whole_rows(problem)[2] or problem.reads_c or in_tensor_memory(device):
        return np.zeros(np.shape(c.SPLIT_K), dtype=bool)
    packs = rows_of(c.family, lambda family: family.packs and family.language == FAMILY.language)
    return packs & (c.SPLIT_K == 1)


def sms_of_tile(c: Any, device: Any) -> Any:
    """SMs that multiply a tile together, each half of its rows: on Blackwell two, for an even number of blocks along M
    and tiles of 128 rows or more."""
    import numpy as np

    pairs = (c.CLUSTER_M % 2 == 0) & (c.BLOCK_SIZE_M >= 128)
    return np.where(pairs & in_tensor_memory(device), 2, 1)


def are_beside_each_other(c: Any) -> Any:
    """Whether two warp groups have the columns of a tile between them, not its rows."""
    wide = (c.BLOCK_SIZE_M == 320) | ((c.BLOCK_SIZE_M == 192) & (c.BLOCK_SIZE_N > 128))
    return wide & (c.PINGPONG == 0)


def warp_groups(c: Any) -> Any:
    """Warp groups that multiply, without the one that loads."""
    import numpy as np

    together = np.where(are_beside_each_other(c), 2, np.minimum(c.BLOCK_SIZE_M // 64, 3))
    together = np.where(c.BLOCK_SIZE_M == 256, 2, together)
    return np.where(c.PINGPONG == 1, 2, together)


def groups_above_each_other(c: Any) -> Any:
    """Warp groups that have the rows of a tile between them."""
    import numpy as np

    return np.where((c.PINGPONG == 1) | are_beside_each_other(c), 1, np.maximum(1, warp_groups(c)))


def accumulators(c: Any) -> Any:
    """Elements of C that a thread sums."""
    import numpy as np

    tiles = np.where(c.PINGPONG == 1, 1, warp_groups(c))
    return c.BLOCK_SIZE_M * c.BLOCK_SIZE_N // (128 * np.maximum(1, tiles))


def stages(c: Any, problem: Any, device: Any) -> Any:
    """Blocks of K in shared memory: as many as fit beside the part of C that is stored, and of C_in that is loaded."""
    import numpy as np

    size_a, size_b, size_c = (DTYPES[t].size_bytes for t in (problem.dtype_a, problem.dtype_b, problem.dtype_c))
    if problem.dtype_a != problem.dtype_b:
        size_a = size_b = max(size_a, size_b)
    in_eights = np.asarray(c.BLOCK_SIZE_N) % 16 != 0
    columns = c.BLOCK_SIZE_N + np.where(in_eights & (size_b == 2), ROOM_COLUMNS, 0)
    ring_bytes = c.BLOCK_SIZE_K * (c.BLOCK_SIZE_M * size_a + columns * size_b) // sms_of_tile(c, device)
    in_place = rows_of(c.family, lambda family: family.in_place)  # its rows are 16 bytes apart, against conflicts
    ring_bytes = ring_bytes + np.where(in_place, CHUNK_BYTES * np.maximum(c.BLOCK_SIZE_M, c.BLOCK_SIZE_K), 0)
    rows = BLACKWELL_EPILOGUE_ROWS if in_tensor_memory(device) else 64 * np.maximum(1, warp_groups(c))
    part = np.minimum(rows, c.BLOCK_SIZE_M) * np.where(in_eights, COLUMNS_IN_EIGHTS, EPILOGUE_COLUMNS)
    size_of_part = np.where(c.SPLIT_K > 1, 4, size_c)
    part_bytes = part * (2 * size_of_part + (4 * size_c if problem.reads_c else 0))
    odd = stores_odd_rows(c, problem, device)
    if odd.any():
        part_bytes = np.where(odd, 0, part_bytes)
        part_rows = np.minimum(64 * groups_above_each_other(c), c.BLOCK_SIZE_M)
        sides = np.stack(np.broadcast_arrays(part_rows, c.BLOCK_SIZE_M, c.BLOCK_SIZE_N, c.SWAP_AB))[:, odd]
        tiles, tile = np.unique(sides.astype(int), axis=1, return_inverse=True)
        of_tiles = [together_bytes(high, rows, wide, swap, size_c) for high, rows, wide, swap in tiles.T.tolist()]
        part_bytes[odd] = np.array(of_tiles)[tile.reshape(-1)]
    return np.minimum(MOST_STAGES, (device.shared_memory_bytes - BARRIERS_BYTES - part_bytes) // ring_bytes)


def together_bytes(part_rows: int, rows: int, columns: int, swapped: int, element_bytes: int) -> int:
    """Shared memory of the parts of a tile that are stored together where rows of C start anywhere, bytes.

    part_rows: of a part. rows, columns: of the kernel's tile, where a row of C is a row or, swapped, a column.
    """
    of_part = COLUMNS_OF_EIGHT if columns % 16 else math.gcd(EPILOGUE_COLUMNS, columns)
    count = columns // of_part
    sides = [side for side in range(1, count + 1) if count % side == 0]
    most_bytes, high = (TOGETHER_SWAPPED_BYTES, rows) if swapped else (TOGETHER_BYTES, part_rows)
    side = max((one for one in sides if high * one * of_part * element_bytes <= most_bytes), default=1)
    if swapped:
        return side * of_part * (rows * element_bytes + ROW_GAP_BYTES)
    if side * of_part < LEAST_TOGETHER:
        side = next((one for one in sides if one * of_part >= LEAST_TOGETHER), sides[-1])
    return part_rows * (side * of_part * element_bytes + ROW_GAP_BYTES)


def short_rows(c: Any, problem: Any) -> Any:
    """Whether the second operand is not along K, and its tile is no multiple of 64 bytes: such a tile lies in shared
    memory in rows of 32 bytes, the narrowest swizzle."""
    import numpy as np

    along_k = np.where(np.asarray(c.SWAP_AB) == 1, problem.layout_a == "row", problem.layout_b == "col")
    return ~along_k & (np.asarray(c.BLOCK_SIZE_N) * DTYPES[problem.dtype_b].size_bytes % 64 != 0)


def order_of_clusters(group: Any, first: Any, second: Any) -> tuple[Any, Any]:
    """(whether groups lie along the first side of the class's C, clusters in a group) of first x second clusters.

    As TileScheduler of quack 0.6.5 walks: groups lie along the shorter side, both rounded up to whole groups, the
    second if these are equal, and have at most the clusters of that side. Within a group it walks along the other side.
    A side of one cluster leaves a single order.
    """
    import numpy as np

    of_first = np.ceil(second / group) * group > np.ceil(first / group) * group
    single = np.minimum(first, second) == 1
    return of_first | single, np.where(single, 1, np.minimum(group, np.where(of_first, first, second)))


def completed(c: Any, problem: Any, device: Any) -> Any:
    """The columns with, for rows of these families, the warps and stages that the library takes; the tile of one SM;
    tiles and clusters along M and N of C where operands are swapped; and ``short_rows``, where wgmma reads its second
    operand in rows of 32 bytes."""
    import numpy as np

    if hasattr(c, "columns"):  # arithmetic with columns of pandas takes several times as long as with arrays
        c = SimpleNamespace(**{axis: c[axis] if axis == "family" else c[axis].to_numpy() for axis in c.columns})
    own = rows_of(c.family, lambda family: family.language == FAMILY.language)
    swapped = own & (np.asarray(c.SWAP_AB) == 1)
    columns = dict(vars(c))
    warps = BLACKWELL_WARPS if in_tensor_memory(device) else WARPS_OF_GROUP * warp_groups(c)
    columns["num_warps"] = np.where(own, warps, c.num_warps)
    columns["num_stages"] = np.where(own, np.maximum(1, stages(c, problem, device)), c.num_stages)
    columns["short_rows"] = own & short_rows(c, problem) & (not in_tensor_memory(device))
    columns["BLOCK_SIZE_M"] = np.where(own, c.BLOCK_SIZE_M // sms_of_tile(c, device), c.BLOCK_SIZE_M)
    for one, other in (("BLOCK_SIZE_M", "BLOCK_SIZE_N"), ("CLUSTER_M", "CLUSTER_N")):
        first, second = np.asarray(columns[one]), np.asarray(columns[other])
        columns[one], columns[other] = np.where(swapped, second, first), np.where(swapped, first, second)
    return SimpleNamespace(**columns)


FAMILY = Family(
    "gemm_cute",
    by_descriptors=True,
    is_tiled=False,
    language="cute",
    equal_slices_are_views=True,
    takes_whole_sm=True,
    rates=Rates(reached=0.995, full_intensity=67.6, power=0.794, l2_reuse=2.5),
)
