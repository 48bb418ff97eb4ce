#!/bin/sh
# Runs the kernel benchmarks of a build and prints one table: what, time, rate, limit, percent.
# usage: bench/kernels/run.sh BUILD_DIR [benchmark filter]
set -eu
bin=${1:?usage: run.sh BUILD_DIR [filter]}/bin
filter=${2:-.}
printf '%-52s %12s %16s %10s %7s\n' benchmark time rate limit percent
for bench in "$bin"/*_bench; do
  "$bench" --benchmark_filter="$filter" --benchmark_format=csv --benchmark_repetitions=3 \
    --benchmark_report_aggregates_only=true 2>/dev/null
done | awk -F, '
  /^name,/ { delete column; for (i = 1; i <= NF; i++) { gsub(/"/, "", $i); column[$i] = i }; next }
  /_median/ {
    name = $1; gsub(/"|\/real_time|_median/, "", name)
    rate = ""; if (column["GB_s"]) rate = $column["GB_s"]
    unit = "GB/s"; if (rate == "") { rate = $column["GFLOP_s"]; unit = "GFLOP/s" }
    limit = column["limit"] ? $column["limit"] : ""; percent = column["pct"] ? $column["pct"] : ""
    printf "%-52s %9.2f %s %8.1f %-7s %10.1f %6.1f%%\n", name, $column["real_time"],
           $column["time_unit"], rate, unit, limit, percent
  }'
