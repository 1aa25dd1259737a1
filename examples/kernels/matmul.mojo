# A matrix product on the CPU for  tune_gemm.py spec examples/kernels/matmul_mojo.yaml --tune
#
# TILE columns of C are summed at once, in vector registers. Written for Mojo 1.2.
from std.benchmark import Bench, BenchId, BenchMetric, ThroughputMeasure, keep
from std.sys import get_defined_int

comptime N = get_defined_int["N", 128]()
comptime TILE = get_defined_int["TILE", 8]()


def matmul(a: List[Float32], b: List[Float32], mut c: List[Float32]):
    for i in range(N):
        for j in range(0, N, TILE):
            var sum = SIMD[DType.float32, TILE](0)
            for k in range(N):
                sum += a[i * N + k] * b.unsafe_ptr().unsafe_load[width=TILE](k * N + j)
            c.unsafe_ptr().unsafe_store(i * N + j, sum)


def main() raises:
    comptime assert N % TILE == 0, "TILE divides N"
    var a = List[Float32](length=N * N, fill=1)
    var b = List[Float32](length=N * N, fill=2)
    var c = List[Float32](length=N * N, fill=0)

    def call() {mut c, a, b}:
        matmul(a, b, c)
        keep(c[0])

    var bench = Bench()
    var name = "matmul/N=" + String(N) + "/TILE=" + String(TILE)
    bench.bench_function(call, BenchId(name), [ThroughputMeasure(BenchMetric.flops, 2 * N * N * N)])
    for i in range(N * N):
        if c[i] != Float32(2 * N):
            raise Error("C is wrong at element " + String(i))
    bench.dump_report()
