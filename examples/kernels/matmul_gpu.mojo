# A matrix product on a GPU for  tune_gemm.py spec examples/kernels/matmul_gpu_mojo.yaml
#
# A block of TILE x THREAD_ROWS threads computes TILE x TILE elements of C. Written for Mojo 1.2 with MAX 26.7.
from max.gpu import barrier, block_idx, thread_idx
from max.gpu.host import DeviceContext
from max.gpu.memory import AddressSpace
from std.memory import stack_allocation
from std.sys import get_defined_int
from std.time import perf_counter_ns

comptime N = get_defined_int["N", 1024]()
comptime TILE = get_defined_int["TILE", 16]()
comptime EACH = get_defined_int["EACH", 4]()  # elements of C that a thread sums, one below another
comptime THREAD_ROWS = TILE // EACH
comptime LAUNCHES = 20

comptime Matrix = Pointer[Float32, MutAnyOrigin]


def matmul(a: Matrix, b: Matrix, c: Matrix):
    var a_tile = stack_allocation[TILE * TILE, Float32, address_space=AddressSpace.SHARED]()
    var b_tile = stack_allocation[TILE * TILE, Float32, address_space=AddressSpace.SHARED]()
    var column = Int(thread_idx.x)
    var first = Int(thread_idx.y) * EACH
    var above = Int(block_idx.y) * TILE
    var left = Int(block_idx.x) * TILE
    var sums = SIMD[DType.float32, EACH](0)
    for depth in range(0, N, TILE):
        comptime for i in range(EACH):
            var at = (first + i) * TILE + column
            a_tile.unsafe_store(at, a.unsafe_load((above + first + i) * N + depth + column))
            b_tile.unsafe_store(at, b.unsafe_load((depth + first + i) * N + left + column))
        barrier()
        comptime for k in range(TILE):
            var of_b = b_tile.unsafe_load(k * TILE + column)
            comptime for i in range(EACH):
                sums[i] += a_tile.unsafe_load((first + i) * TILE + k) * of_b
        barrier()
    comptime for i in range(EACH):
        c.unsafe_store((above + first + i) * N + left + column, sums[i])


def main() raises:
    comptime assert N % TILE == 0 and TILE % EACH == 0, "EACH divides TILE, and TILE divides N"
    var gpu = DeviceContext()
    var a = gpu.enqueue_create_buffer[DType.float32](N * N)
    var b = gpu.enqueue_create_buffer[DType.float32](N * N)
    var c = gpu.enqueue_create_buffer[DType.float32](N * N)
    a.enqueue_fill(1)
    b.enqueue_fill(2)
    var best_us = Float64.MAX
    for _ in range(LAUNCHES):
        gpu.synchronize()
        var start = perf_counter_ns()
        gpu.enqueue_function[matmul](
            a.unsafe_ptr(),
            b.unsafe_ptr(),
            c.unsafe_ptr(),
            grid_dim=(N // TILE, N // TILE),
            block_dim=(TILE, THREAD_ROWS),
        )
        gpu.synchronize()
        best_us = min(best_us, Float64(perf_counter_ns() - start) / 1000)
    with c.map_to_host() as computed:
        for i in range(N * N):
            if computed[i] != Float32(2 * N):
                raise Error("C is wrong at element " + String(i))
    print("least_us:", best_us)
