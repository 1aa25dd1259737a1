#!/usr/bin/env bash
# Writes the table of docs/faults.md on the GPU at hand: what bad kernels cost.
#   benchmarks/faults.sh [FILE]      FILE: the markdown (default: faults_on_gpu.md); about 2 min
set -euo pipefail
out=$(realpath -m "${1:-faults_on_gpu.md}")
cd "$(dirname "$0")/.."
log=$(mktemp)
status=0
"${PYTHON:-python3}" -m pytest -m gpu tests/faults -s 2>&1 | tee "$log" || status=$?
grep -E '^\||, the finished run again ' "$log" > "$out" || true
rm -f "$log"
exit "$status"
