#!/bin/sh
# Runs the kernel benchmarks and prints one table: median time, rate, the limit measured in the same
# process, percent of it. Use an idle machine.
#   sh bench/kernels/run.sh [filter]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
filter=${1:-.}
cmake --preset release >/dev/null
cmake --build --preset release >/dev/null
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for bench in build/release/bin/*_bench; do
  echo "running $(basename "$bench")" >&2
  "$bench" --benchmark_filter="$filter" --benchmark_repetitions=3 \
    --benchmark_out="$scratch/$(basename "$bench").json" --benchmark_out_format=json >/dev/null 2>&1
done
python3 bench/kernels/table.py "$scratch"/*.json
