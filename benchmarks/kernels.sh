#!/usr/bin/env bash
# Measures tables of benchmarks/kernels.md on the GPU at hand, into OUT_DIR: public and hard sizes, layers of DeepSeek-V3.
#   benchmarks/kernels.sh OUT_DIR [PART ...]      parts: tests bf16 fp16 fp8 block deepseek limits (default: all)
set -euo pipefail
out=${1:?usage: benchmarks/kernels.sh OUT_DIR [tests|bf16|fp16|fp8|block|deepseek|limits ...]}
shift
parts=${*:-tests bf16 fp16 fp8 block deepseek limits}
cd "$(dirname "$0")/.."
mkdir -p "$out"
python=${PYTHON:-python3}

# sizes FILE KEYS LAYOUT ...: the public and the hard sizes with these keys, once for each layout of B
sizes() {
    "$python" - "$@" <<'PY'
import sys, yaml
path, keys, *layouts = sys.argv[1:]
rows = [row for name in ("public", "hard") for row in yaml.safe_load(open(f"benchmarks/{name}_sizes.yaml"))]
with open(path, "w") as file:
    for layout in layouts:
        for row in rows:
            shape = ", ".join(f"{key}: {value}" for key, value in row.items())
            file.write(f"- {{{shape}, layout_b: {layout}, {keys}}}\n")
PY
}

# layers FILE CONFIG: GEMMs of DeepSeek-V3 with block scales; CONFIG is empty or the keys of a config
layers() {
    local shape
    : > "$1"
    for shape in "1 7168 2048" "16 7168 2048" "64 4096 7168" "128 7168 2048" "128 24576 1536" "512 4096 7168" \
        "1024 7168 16384" "2048 2112 7168" "4096 7168 2048" "4096 24576 1536" "4096 4096 7168"; do
        read -r m n k <<< "$shape"
        echo "- {M: $m, N: $n, K: $k, layout_b: col, dtype: fp8_e4m3, scaling: block${2:+, $2}}" >> "$1"
    done
}

tune() { # NAME FLAG ...
    local name=$1
    shift
    "$python" tune_gemm.py --gemm_size_file "$out/$name.sizes.yaml" --time_breakdown --output_dir "$out/runs" \
        --o "$out/$name.yaml" "$@" 2>&1 | tee "$out/$name.log" | grep -v "kept (\|left$"
}

rate() { "$python" benchmarks/sustained_rate.py --dtype "$1" --json "$out/rate_$1.json"; }
table() { "$python" benchmarks/kernels_table.py "$out/$1.yaml" -o "$out/$1.md" "${@:2}"; tail -n 4 "$out/$1.md"; }

for part in $parts; do
    echo "== $part"
    case $part in
        tests) "$python" -m pytest -q -m gpu tests/gpu -p no:cacheprovider || echo "GPU tests failed" ;;
        bf16 | fp16)
            sizes "$out/$part.sizes.yaml" "dtype: $part" row col
            tune "$part" --compare
            rate "$part"
            table "$part" --rate "$out/rate_$part.json"
            ;;
        fp8)
            sizes "$out/fp8.sizes.yaml" "dtype: fp8_e4m3, scaling: tensor" col
            tune fp8 --compare
            table fp8
            ;;
        block)
            layers "$out/block.sizes.yaml" ""
            layers "$out/vllm.sizes.yaml" \
                "BLOCK_SIZE_M: 64, BLOCK_SIZE_N: 128, BLOCK_SIZE_K: 128, GROUP_SIZE_M: 32, num_warps: 4, num_stages: 2"
            tune block --compare
            tune vllm --benchmark
            table block --baseline "$out/vllm.yaml" --baseline_name "vLLM default"
            ;;
        deepseek)  # at TP 8, with what vLLM and SGLang can launch
            "$python" tune_gemm.py sizes --from tests/data/size_sources/deepseek_v3_config.json --tp 8 --m 1,16,64,256,1024,4096 \
                -o "$out/deepseek.all.yaml"
            grep "scaling: block" "$out/deepseek.all.yaml" > "$out/deepseek.sizes.yaml"
            tune deepseek --compare --serve vllm --serve sglang
            ;;
        limits)
            "$python" benchmarks/limits.py "$out/bf16.yaml" --layout_b row --size 5000x5000x5000 --size 1000x1000x1000 \
                --size 64x64x65536 --size 17x5120x5120 --size 4096x4096x4096 | tee "$out/limits.md"
            ;;
        *) echo "unknown part $part; parts: tests bf16 fp16 fp8 block deepseek limits" >&2; exit 2 ;;
    esac
done
