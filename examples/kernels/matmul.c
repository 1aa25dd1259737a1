/* A matrix product in tiles that are known when it is compiled, for  tune_gemm.py spec examples/kernels/matmul.yaml --tune
 *
 * C[M, N] = A[M, K] @ B[K, N], floats in row-major order. Prints the fastest of --runs calls in milliseconds, or ends
 * with status 1 when a result is wrong. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef TILE_M
#define TILE_M 8
#endif
#ifndef TILE_N
#define TILE_N 32
#endif
enum { M = 96, N = 128, K = 64 };
_Static_assert(M % TILE_M == 0 && N % TILE_N == 0, "tiles divide M and N");

static float a[M][K], b[K][N], c[M][N];

static void matmul(void) {
    for (int m = 0; m < M; m += TILE_M)
        for (int n = 0; n < N; n += TILE_N) {
            float sum[TILE_M][TILE_N] = {{0}};
            for (int k = 0; k < K; k++)
                for (int i = 0; i < TILE_M; i++)
                    for (int j = 0; j < TILE_N; j++) sum[i][j] += a[m + i][k] * b[k][n + j];
            for (int i = 0; i < TILE_M; i++) memcpy(&c[m + i][n], sum[i], sizeof sum[i]);
        }
}

static double now_ms(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e3 + at.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
    int runs = argc > 2 && strcmp(argv[1], "--runs") == 0 ? atoi(argv[2]) : 1;
    double best = 1e30;
    for (int i = 0; i < M * K; i++) a[i / K][i % K] = (float)(i % 7 - 3);
    for (int i = 0; i < K * N; i++) b[i / N][i % N] = (float)(i % 5 - 2);
    for (int run = 0; run < runs; run++) {
        double start = now_ms();
        matmul();
        double taken = now_ms() - start;
        if (taken < best) best = taken;
    }
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            float sum = 0; /* whole numbers: exact in any order */
            for (int k = 0; k < K; k++) sum += a[m][k] * b[k][n];
            if (sum != c[m][n]) return fprintf(stderr, "C[%d, %d] is %g and not %g\n", m, n, c[m][n], sum), 1;
        }
    printf("name,met (ms),iters,GFLOP/s\n");
    printf("matmul/TILE_M=%d/TILE_N=%d,%.6f,%d,%.3f\n", TILE_M, TILE_N, best, runs, 2.0 * M * N * K / best / 1e6);
    return 0;
}
