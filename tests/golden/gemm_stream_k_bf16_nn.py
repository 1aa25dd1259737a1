"""gemm_stream_k kernels for bf16_nn: 1 configurations. Generated; do not edit.

Time or check them by hand:  python THIS_FILE --plan plan.json   (--help shows a plan)
That needs gemm_tuner: installed, on PYTHONPATH, or in the folder that holds generated/.
Importing this file opens no GPU and imports neither torch nor gemm_tuner.
"""

import triton
import triton.language as tl


def symbol_name(specialisation):
    """The kernel's symbol: each binary has its own, so that a trace can be joined by exact name."""
    return specialisation.constants["NAME"]


@triton.jit
def finished(accumulator, rows, columns, M, N):
    """C[M, N] = A[M, K] @ B[K, N], from the sums of products; rows and columns broadcast to their shape."""
    value = accumulator.to(tl.float32)
    accumulator = value
    return accumulator

@triton.jit(repr=symbol_name, do_not_specialize=["M", "N", "K", "GROUP_SIZE_M"])
def gemm_stream_k(
    # C[M, N] = A[M, K] @ B[K, N]
    a_desc, b_desc, c_desc, 
    # partial sums, two slots of a whole tile for each program; a counter of summed blocks of K for each shared tile
    partial_ptr, locks_ptr,
    M, N, K, GROUP_SIZE_M,
    NAME: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
    EPILOGUE_SUBTILE: tl.constexpr,
):
    """Whole tiles in all full waves; the blocks of K of the tiles of the last, partial wave are shared out evenly.

    Osama, Merrill, Cecka, Garland and Owens, "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix
    Multiplication on the GPU", PPoPP 2023. The last to finish a shared tile adds its parts up in order of
    K, so that the result does not depend on which one that was.
    """
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    k_blocks = tl.cdiv(K, BLOCK_SIZE_K)
    tiles = num_pid_m * num_pid_n
    programs = tl.num_programs(0)
    program = tl.program_id(0)
    whole_tiles = tiles // programs
    shared_tiles = tiles - whole_tiles * programs
    share = tl.cdiv(shared_tiles * k_blocks, programs)  # blocks of K of one program
    begin = tl.minimum(program * share, shared_tiles * k_blocks)
    end = tl.minimum(begin + share, shared_tiles * k_blocks)
    first_tile = begin // k_blocks
    for shared in tl.range(first_tile, tl.where(end > begin, tl.cdiv(end, k_blocks), 0), num_stages=1):
        num_pid_in_group = GROUP_SIZE_M * num_pid_n
        first_pid_m = (shared // num_pid_in_group) * GROUP_SIZE_M
        group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
        pid_m = first_pid_m + (shared % num_pid_in_group) % group_size_m
        pid_n = (shared % num_pid_in_group) // group_size_m
        first_block = tl.maximum(begin - shared * k_blocks, 0)
        blocks = tl.minimum(end - shared * k_blocks, k_blocks) - first_block
        
        accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)

        for block in range(0, blocks):
            k = (first_block + block) * BLOCK_SIZE_K
            a = a_desc.load([pid_m * BLOCK_SIZE_M, k])
            b = b_desc.load([k, pid_n * BLOCK_SIZE_N])
            accumulator = tl.dot(a, b, accumulator, input_precision="ieee")



        if blocks == k_blocks:
            if EPILOGUE_SUBTILE == 1:
                part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
                part_columns = pid_n * BLOCK_SIZE_N + 0 + tl.arange(0, BLOCK_SIZE_N)[None, :]
                part = finished(accumulator, part_rows, part_columns, M, N)
                c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + 0], part.to(c_desc.dtype))

            else:
                halves = tl.permute(tl.reshape(accumulator, (BLOCK_SIZE_M, 2, BLOCK_SIZE_N // 2)), (0, 2, 1))
                left, right = tl.split(halves)
                if EPILOGUE_SUBTILE == 2:
                    part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
                    part_columns = pid_n * BLOCK_SIZE_N + 0 + tl.arange(0, BLOCK_SIZE_N // 2)[None, :]
                    part = finished(left, part_rows, part_columns, M, N)
                    c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + 0], part.to(c_desc.dtype))

                    part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
                    part_columns = pid_n * BLOCK_SIZE_N + BLOCK_SIZE_N // 2 + tl.arange(0, BLOCK_SIZE_N // 2)[None, :]
                    part = finished(right, part_rows, part_columns, M, N)
                    c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + BLOCK_SIZE_N // 2], part.to(c_desc.dtype))

                else:
                    quarters = tl.permute(tl.reshape(left, (BLOCK_SIZE_M, 2, BLOCK_SIZE_N // 4)), (0, 2, 1))
                    quarter_0, quarter_1 = tl.split(quarters)
                    part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
                    part_columns = pid_n * BLOCK_SIZE_N + 0 + tl.arange(0, BLOCK_SIZE_N // 4)[None, :]
                    part = finished(quarter_0, part_rows, part_columns, M, N)
                    c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + 0], part.to(c_desc.dtype))

                    part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
                    part_columns = pid_n * BLOCK_SIZE_N + BLOCK_SIZE_N // 4 + tl.arange(0, BLOCK_SIZE_N // 4)[None, :]
                    part = finished(quarter_1, part_rows, part_columns, M, N)
                    c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + BLOCK_SIZE_N // 4], part.to(c_desc.dtype))

                    quarters = tl.permute(tl.reshape(right, (BLOCK_SIZE_M, 2, BLOCK_SIZE_N // 4)), (0, 2, 1))
                    quarter_2, quarter_3 = tl.split(quarters)
                    part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
                    part_columns = pid_n * BLOCK_SIZE_N + BLOCK_SIZE_N // 2 + tl.arange(0, BLOCK_SIZE_N // 4)[None, :]
                    part = finished(quarter_2, part_rows, part_columns, M, N)
                    c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + BLOCK_SIZE_N // 2], part.to(c_desc.dtype))

                    part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
                    part_columns = pid_n * BLOCK_SIZE_N + 3 * BLOCK_SIZE_N // 4 + tl.arange(0, BLOCK_SIZE_N // 4)[None, :]
                    part = finished(quarter_3, part_rows, part_columns, M, N)
                    c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + 3 * BLOCK_SIZE_N // 4], part.to(c_desc.dtype))

        else:
            tile_rows = tl.arange(0, BLOCK_SIZE_M)[:, None] * BLOCK_SIZE_N
            slot_ptr = partial_ptr + (2 * program + tl.where(shared == first_tile, 0, 1)).to(tl.int64) * (BLOCK_SIZE_M * BLOCK_SIZE_N)
            tl.store(slot_ptr + tile_rows + tl.arange(0, BLOCK_SIZE_N)[None, :], accumulator)
            tl.debug_barrier()  # all of this program's partial sums are written before it reports
            if tl.atomic_add(locks_ptr + shared, blocks, sem="acq_rel") + blocks == k_blocks:
                tl.store(locks_ptr + shared, 0)  # as the next call expects it
                first = shared * k_blocks // share
                last = ((shared + 1) * k_blocks - 1) // share
                PART: tl.constexpr = BLOCK_SIZE_N // EPILOGUE_SUBTILE
                for part_number in tl.static_range(EPILOGUE_SUBTILE):
                    offsets = tl.arange(0, BLOCK_SIZE_M)[:, None] * BLOCK_SIZE_N + part_number * PART + tl.arange(0, PART)[None, :]
                    total = tl.zeros((BLOCK_SIZE_M, PART), dtype=tl.float32)
                    for i in range(first, last + 1):
                        slot_ptr = partial_ptr + (2 * i + tl.where(i * share // k_blocks == shared, 0, 1)).to(tl.int64) * (BLOCK_SIZE_M * BLOCK_SIZE_N)
                        # Past the nearest cache, which knows nothing of what other SMs wrote.
                        total += tl.load(slot_ptr + offsets, cache_modifier=".cg")
                    part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
                    part_columns = pid_n * BLOCK_SIZE_N + part_number * PART + tl.arange(0, PART)[None, :]
                    part = finished(total, part_rows, part_columns, M, N)
                    c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + part_number * PART], part.to(c_desc.dtype))

    for tile in tl.range(shared_tiles + program, tiles, programs, flatten=True):
        num_pid_in_group = GROUP_SIZE_M * num_pid_n
        first_pid_m = (tile // num_pid_in_group) * GROUP_SIZE_M
        group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
        pid_m = first_pid_m + (tile % num_pid_in_group) % group_size_m
        pid_n = (tile % num_pid_in_group) // group_size_m
        
        accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)

        for block in range(0, k_blocks):
            k = block * BLOCK_SIZE_K
            a = a_desc.load([pid_m * BLOCK_SIZE_M, k])
            b = b_desc.load([k, pid_n * BLOCK_SIZE_N])
            accumulator = tl.dot(a, b, accumulator, input_precision="ieee")



        if EPILOGUE_SUBTILE == 1:
            part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
            part_columns = pid_n * BLOCK_SIZE_N + 0 + tl.arange(0, BLOCK_SIZE_N)[None, :]
            part = finished(accumulator, part_rows, part_columns, M, N)
            c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + 0], part.to(c_desc.dtype))

        else:
            halves = tl.permute(tl.reshape(accumulator, (BLOCK_SIZE_M, 2, BLOCK_SIZE_N // 2)), (0, 2, 1))
            left, right = tl.split(halves)
            if EPILOGUE_SUBTILE == 2:
                part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
                part_columns = pid_n * BLOCK_SIZE_N + 0 + tl.arange(0, BLOCK_SIZE_N // 2)[None, :]
                part = finished(left, part_rows, part_columns, M, N)
                c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + 0], part.to(c_desc.dtype))

                part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
                part_columns = pid_n * BLOCK_SIZE_N + BLOCK_SIZE_N // 2 + tl.arange(0, BLOCK_SIZE_N // 2)[None, :]
                part = finished(right, part_rows, part_columns, M, N)
                c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + BLOCK_SIZE_N // 2], part.to(c_desc.dtype))

            else:
                quarters = tl.permute(tl.reshape(left, (BLOCK_SIZE_M, 2, BLOCK_SIZE_N // 4)), (0, 2, 1))
                quarter_0, quarter_1 = tl.split(quarters)
                part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
                part_columns = pid_n * BLOCK_SIZE_N + 0 + tl.arange(0, BLOCK_SIZE_N // 4)[None, :]
                part = finished(quarter_0, part_rows, part_columns, M, N)
                c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + 0], part.to(c_desc.dtype))

                part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
                part_columns = pid_n * BLOCK_SIZE_N + BLOCK_SIZE_N // 4 + tl.arange(0, BLOCK_SIZE_N // 4)[None, :]
                part = finished(quarter_1, part_rows, part_columns, M, N)
                c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + BLOCK_SIZE_N // 4], part.to(c_desc.dtype))

                quarters = tl.permute(tl.reshape(right, (BLOCK_SIZE_M, 2, BLOCK_SIZE_N // 4)), (0, 2, 1))
                quarter_2, quarter_3 = tl.split(quarters)
                part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
                part_columns = pid_n * BLOCK_SIZE_N + BLOCK_SIZE_N // 2 + tl.arange(0, BLOCK_SIZE_N // 4)[None, :]
                part = finished(quarter_2, part_rows, part_columns, M, N)
                c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + BLOCK_SIZE_N // 2], part.to(c_desc.dtype))

                part_rows = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)[:, None]
                part_columns = pid_n * BLOCK_SIZE_N + 3 * BLOCK_SIZE_N // 4 + tl.arange(0, BLOCK_SIZE_N // 4)[None, :]
                part = finished(quarter_3, part_rows, part_columns, M, N)
                c_desc.store([pid_m * BLOCK_SIZE_M, pid_n * BLOCK_SIZE_N + 3 * BLOCK_SIZE_N // 4], part.to(c_desc.dtype))



from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402


def descriptors_of(config, size, operands):
    """TMA descriptors of A, B and C. Tiles are zero outside their matrix and not stored there."""
    M, N, K, _ = size
    block_m, block_n, block_k = config["BLOCK_SIZE_M"], config["BLOCK_SIZE_N"], config["BLOCK_SIZE_K"]
    part = [block_m, block_n // config["EPILOGUE_SUBTILE"]]
    if block_n % 3 == 0:  # the first two thirds; see gemm_persistent
        block_n = block_n // 3 * 2
    return (
        TensorDescriptor(operands.a, [M, K], [K, 1], [block_m, block_k]),
        TensorDescriptor(operands.b, [K, N], [N, 1], [block_k, block_n]),
        TensorDescriptor(operands.c, [M, N], [N, 1], part),
    )

DESCRIPTORS = True


def programs_of(config, size, num_sms):
    """The persistent grid."""
    M, N, K, _ = size
    blocks = -(-M // config["BLOCK_SIZE_M"]) * -(-N // config["BLOCK_SIZE_N"]) * -(-K // config["BLOCK_SIZE_K"])
    return min(num_sms * config["PROGRAMS_PER_SM"], blocks)


def scratch(config, size, num_sms):
    """(fp32 elements of partial sums, int32 locks) that one call needs."""
    programs = programs_of(config, size, num_sms)
    return 2 * programs * config["BLOCK_SIZE_M"] * config["BLOCK_SIZE_N"], 2 * programs


def calls(config, size, operands, scratch, num_sms):
    """The launch of one GEMM, as [(symbol, kernel, grid, positional, keyword)]."""
    M, N, K, _ = size
    blocks = [config["BLOCK_SIZE_M"], config["BLOCK_SIZE_N"], config["BLOCK_SIZE_K"]]
    positional = (*descriptors_of(config, size, operands),)
    positional += (scratch.partial_sums, scratch.locks, M, N, K, config["GROUP_SIZE_M"], )
    positional += (config["binary"], *blocks, config["EPILOGUE_SUBTILE"])
    options = ('num_warps', 'num_stages')
    grid = (programs_of(config, size, num_sms),)
    return [(config["binary"], gemm_stream_k, grid, positional, {o: config[o] for o in options})]


FIELDS = ('name', 'binary', 'family', 'BLOCK_SIZE_M', 'BLOCK_SIZE_N', 'BLOCK_SIZE_K', 'GROUP_SIZE_M', 'SPLIT_K', 'num_warps', 'num_stages', 'EPILOGUE_SUBTILE', 'PROGRAMS_PER_SM', 'WARP_SPECIALIZE', 'NUM_XCDS', 'STREAM_B', 'ROW_STEP', 'PACK_BLOCK', 'CLUSTER_M', 'CLUSTER_N', 'PINGPONG', 'SWAP_AB', 'waves_per_eu', 'matrix_instr_nonkdim', 'kpack')
# fmt: off
CONFIGS = {row[0]: dict(zip(FIELDS, row)) for row in (
    ('gemm_stream_k_BM128_BN256_BK64_GM8_SK1_W8_S3_ES2_PS1', 'gemm_stream_k_BM128_BN256_BK64_SK1_W8_S3_ES2_PS', 'gemm_stream_k', 128, 256, 64, 8, 1, 8, 3, 2, 1, 0, 1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0),
)}
# fmt: on
CLASS = {'kind': 'gemm', 'm': 0, 'n': 0, 'k': 0, 'dtype_a': 'bf16', 'dtype_b': 'bf16', 'dtype_c': 'bf16', 'layout_a': 'row', 'layout_b': 'row', 'batch': 1, 'bias': False, 'activation': 'none', 'alpha': 1.0, 'beta': 0.0, 'scaling': 'none', 'precision': 'ieee'}


if __name__ == "__main__":
    import os
    import sys

    # From generated/RUN/ to a checkout around it; what is installed comes first. This text is the same on all machines.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(os.path.join(here, os.pardir, os.pardir))
    try:
        from gemm_tuner.launch.main import main
    except ModuleNotFoundError as error:
        if error.name != "gemm_tuner":
            raise
        print("error: gemm_tuner is not found: install it, or name the folder that holds it in PYTHONPATH", file=sys.stderr)
        sys.exit(3)

    status = main(scripts_dir=here)  # where the other scripts of a plan lie
    if status:  # a plain return lets a profiler inside the process (proton) write its report
        sys.exit(status)
