"""The texts around the flags in ``tune_gemm.py --help``."""

from __future__ import annotations

USAGE = """\
tune_gemm.py --gemm_size_file FILE [flags]
       tune_gemm.py -m M -n N -k K [flags]
       tune_gemm.py SUBCOMMAND ...
"""
DESCRIPTION = """\
Finds the fastest correct kernel configuration on this GPU for every GEMM size in a list, and writes
them as a tuned-config YAML. Without a GPU, kernels are compiled for --arch, ranked by a model and checked in
Triton's interpreter; such rows say 'source: predicted'.

the usual jobs:
  tune a list of sizes
    tune_gemm.py --gemm_size_file sizes.yaml -o tuned.yaml
  look at what was found
    tune_gemm.py report results/20260131-120000-1a2b
  write the files of a server
    tune_gemm.py export tuned.yaml --to vllm -o out
"""
EXAMPLES = """\
examples:
  one size; the other types follow that of A
    tune_gemm.py -m 4096 -n 4096 -k 4096 --dtype_a fp16
  fp8 with scales, C in bf16
    tune_gemm.py -m 4096 -n 4096 -k 4096 --dtype fp8_e4m3 --scaling row_col
  what would be tried, and how long it takes
    tune_gemm.py -m 4096 -n 4096 -k 4096 --arch gfx942 --dry_run
  why is this configuration not tried?
    tune_gemm.py -m 64 -n 64 -k 64 --explain BLOCK_SIZE_M=256,num_warps=8
  time the configurations of a results file
    tune_gemm.py --gemm_size_file tuned.yaml --benchmark
  check them
    tune_gemm.py --gemm_size_file tuned.yaml --compare_wo_tuning
"""
EXIT_STATUS = """\
exit status: 0 every size has a verified configuration; 1 some size has none; 2 the command line or a file is
wrong; 3 the machine lacks something (GPU, profiler, disk); 70 a bug of the tuner; 130 interrupted.
"""
