#!/usr/bin/env bash
# What has to be seen on GPUs and has not been since the code changed: one call, a short table last.
#   benchmarks/gpu_checks.sh OUT_DIR [PART ...]     parts: tests module faults twice regret growth seed fp8 moe gpus wide
#                                                   (default: all but gpus, which needs two GPUs, growth, seed and fp8,
#                                                   which need the extra cute, and moe)
# twice, regret, growth, fp8, gpus: on the sizes of SUITES, size files or seeds (default: public and hard sizes, ten of
# seed 1). seed: on sizes of SEED (default: the commit, so that no kernel was made for them). moe: VLLM_KERNEL and
# SGLANG_KERNEL name the files of servers' kernels.
set -uo pipefail
out=${1:?usage: benchmarks/gpu_checks.sh OUT_DIR [tests|module|faults|twice|regret|growth|seed|fp8|moe|gpus|wide ...]}
shift
parts=${*:-tests module faults twice regret wide}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
sizes="$out/sizes.yaml"
for suite in ${SUITES:-benchmarks/public_sizes.yaml benchmarks/hard_sizes.yaml 1}; do
    if [ -f "$suite" ]; then cat "$suite"; else "$python" benchmarks/random_sizes.py "$suite" 10; fi
done | sed 's/}$/, dtype: bf16}/' > "$sizes"

tune() { # NAME FLAG ...
    local name=$1
    shift
    "$python" tune_gemm.py --gemm_size_file "$sizes" --output_dir "$out/runs_$name" -o "$out/$name.yaml" --time_breakdown "$@" \
        > "$out/$name.log" 2>&1 || echo "$name ended with $?: $(tail -n 1 "$out/$name.log")"
    grep -E "^(search|compile|screen|finals|check) |noise floor|sizes with" "$out/$name.log"
}

triton=gemm_tile,gemm_persistent,gemm_split_k,gemm_stream_k,gemm_packed,gemv # families without an extra
for part in $parts; do
    echo "== $part"
    case $part in
        tests) "$python" -m pytest -q -m gpu tests/gpu -p no:cacheprovider 2>&1 | tail -n 8 ;;
        module)
            "$python" -m pytest -q -m gpu tests/gpu/test_module_on_gpu.py -p no:cacheprovider 2>&1 | tail -n 4
            "$python" benchmarks/module_overhead.py results/tuned/nvidia_h200_bf16.yaml 2> "$out/module.err" | tee "$out/module.md" | tail -n 12
            ;;
        faults) "$python" -m pytest -q -s -m gpu tests/faults -p no:cacheprovider 2>&1 | tee "$out/faults.md" | tail -n 20 ;;
        twice) # the same sizes twice, and the winners against each other in one finals
            tune first --compare --fresh
            tune second --compare --fresh
            "$python" benchmarks/rematch.py "$out/first.yaml" "$out/second.yaml" 2> "$out/twice.err" | tee "$out/twice.md" | tail -n 3
            ;;
        regret) # the guided winners against those of a full search, in one finals
            [ -f "$out/first.yaml" ] || tune first --compare --fresh
            tune full --search full --fresh --profiler proton
            "$python" benchmarks/rematch.py "$out/full.yaml" "$out/first.yaml" 2> "$out/regret.err" | tee "$out/regret.md" | tail -n 3
            ;;
        growth) # what the families of CuTe DSL add to the time of tuning, with empty caches and with full ones
            for caches in empty full; do
                GEMM_TUNER_CACHE_DIR="$out/cache_triton" tune "triton_$caches" --compare --fresh --families "$triton"
                GEMM_TUNER_CACHE_DIR="$out/cache_all" tune "all_$caches" --compare --fresh
            done
            grep -H "^in all " "$out"/{triton,all}_{empty,full}.log
            ;;
        seed) # the first 12 sizes whose rows start at 16 bytes, and the first 4 others, bf16
            seed=${SEED:-$((16#$(git rev-parse --short=8 HEAD)))}
            for many in "aligned 12" "unaligned 4"; do
                read -r kind count <<< "$many"
                "$python" benchmarks/random_sizes.py "$seed" "$count" --rows "$kind" | sed 's/}$/, dtype: bf16}/' > "$out/seed_sizes_$kind.yaml"
                sizes="$out/seed_sizes_$kind.yaml" tune "seed_$kind" --compare --fresh
                echo "seed $seed, $kind:"
                "$python" benchmarks/kernels_table.py "$out/seed_$kind.yaml" | tee "$out/seed_$kind.md" | tail -n 18
            done
            ;;
        fp8) # sizes that torch._scaled_mm takes, with a scale a tensor; fast accumulation on both sides
            "$python" -c '
import re, sys
for m, n, k in re.findall(r"M: (\d+), N: (\d+), K: (\d+)", sys.stdin.read()):
    if int(n) % 16 == int(k) % 16 == 0:
        print(f"- {{M: {m}, N: {n}, K: {k}, dtype: fp8_e4m3, scaling: tensor, layout_b: col}}")' < "$sizes" > "$out/fp8_sizes.yaml"
            sizes="$out/fp8_sizes.yaml" tune fp8 --compare --fresh
            "$python" benchmarks/kernels_table.py "$out/fp8.yaml" | tee "$out/fp8.md" | tail -n 40
            ;;
        moe) # this package's own kernels beside those of servers, GEMMs and whole calls
            layer=(moe --E 128 --N 768 --K 2048 --topk 8 --fresh --output_dir "$out/runs_moe")
            for run in "bf16 64,512,4096 vllm=$VLLM_KERNEL sglang=$SGLANG_KERNEL" "fp8_w8a8+--block_shape+128,128 1,64,1024 vllm=$VLLM_KERNEL" \
                "int4_w4a16+--group_size+128 1,64,1024 sglang=$SGLANG_KERNEL"; do
                read -r kind ms first second <<< "$run"
                "$python" tune_gemm.py "${layer[@]}" --dtype ${kind//+/ } --m "$ms" --kernel_from "$first" ${second:+--kernel_from "$second"} \
                    -o "$out/moe_${kind%%+*}.yaml" > "$out/moe_${kind%%+*}.log" 2>&1 || echo "$kind ended with $?"
                tail -n 24 "$out/moe_${kind%%+*}.log"
            done
            ;;
        gpus) # the sizes with B in both layouts on one GPU and on two, with the caches that a run before has filled
            { cat "$sizes"; sed 's/}$/, layout_b: col}/' "$sizes"; } > "$out/both_layouts.yaml"
            for run in "gpus_before 0,1" "gpus_one 0" "gpus_two 0,1"; do
                read -r name ids <<< "$run"
                sizes="$out/both_layouts.yaml" tune "$name" --compare --profiler nsys --fresh --families "$triton" --gpu_ids "$ids"
            done
            grep -HE "^(in all|from first screening) " "$out"/gpus_{one,two}.log
            ;;
        wide)
            "$python" tune_gemm.py -m 4096 -n 4096 -k 4096 --no_heuristics --space benchmarks/wide_space_sm_90.yaml --search full \
                --fresh --profiler proton --time_breakdown --output_dir "$out/runs_wide" > "$out/wide.log" 2>&1
            grep -E "^(search|compile|screen|finals|check) |compile pool|sizes with" "$out/wide.log"
            ;;
        *) echo "unknown part $part" >&2; exit 2 ;;
    esac
done
