#!/usr/bin/env bash
# Tunes the public sizes under two profilers and compares what the two measure.
#
#   benchmarks/public_suite.sh OUT_DIR [PYTHON]
#
# Leaves in OUT_DIR: tuned_<profiler>.yaml and log_<profiler>.txt (with the time of each stage), configs.tar (every
# configuration of every size), times_<profiler>_<n>.yaml (the nsys winners over 20 us timed again, in turns), profilers.txt.
set -euo pipefail
out=${1:?usage: benchmarks/public_suite.sh OUT_DIR [PYTHON]}
python=${2:-python3}
sizes=benchmarks/public_sizes.yaml
mkdir -p "$out"
for profiler in nsys proton; do
  "$python" tune_gemm.py --gemm_size_file "$sizes" --search full --compare --profiler "$profiler" --time_breakdown \
    --output_dir "$out/runs_$profiler" --o "$out/tuned_$profiler.yaml" 2>&1 | tee "$out/log_$profiler.txt"
done
"$python" - "$out/tuned_nsys.yaml" "$out/long.yaml" <<'PYTHON'
import sys, yaml
document = yaml.safe_load(open(sys.argv[1]))
document["configs"] = [row for row in document["configs"] if row["median_us"] > 20]
yaml.safe_dump(document, open(sys.argv[2], "w"), sort_keys=False)
PYTHON
for turn in 1 2 3 4 5; do
  for profiler in nsys proton; do
    "$python" tune_gemm.py --gemm_size_file "$out/long.yaml" --benchmark --iters 200 --profiler "$profiler" \
      --output_dir "$out/runs_again" --o "$out/times_${profiler}_$turn.yaml" 2>&1 | tail -3
  done
done
tar -C "$out/runs_nsys" -cf "$out/configs.tar" .
"$python" benchmarks/compare_profilers.py --a "$out"/times_nsys_?.yaml --b "$out"/times_proton_?.yaml | tee "$out/profilers.txt"
