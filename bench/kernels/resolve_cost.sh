#!/bin/sh
# Instructions of one resolve pass (CPU version) by capacity and misses, counted by callgrind. A
# pass costs O(selected + misses), whatever the capacity: fails when 64 times the slots cost more
# than 2 % more, or when a missed row costs more than the bound below.
#   sh bench/kernels/resolve_cost.sh
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
top_k=2048
passes=4
smallest=16384 # fewer slots have fewer classes than there are misses
growth=64
max_growth_percent=2
max_per_miss=800 # the sampled clock looks at 32 candidates

command -v valgrind >/dev/null 2>&1 || {
  echo "resolve_cost: valgrind is missing; install it with 'apt-get install valgrind'" >&2
  exit 2
}
program=build/release/bin/resolve_cost
[ -x "$program" ] || {
  echo "resolve_cost: no $program; run cmake --preset release and build resolve_cost" >&2
  exit 2
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

count() { # count SLOTS MISSES: instructions within launch_resolve, a pass
  valgrind --tool=callgrind --callgrind-out-file="$scratch/out" --collect-atstart=no \
    --toggle-collect='dhs::launch_resolve(*' "$program" "$1" "$top_k" "$2" "$passes" \
    >/dev/null 2>"$scratch/stderr" || {
    cat "$scratch/stderr" >&2
    exit 1
  }
  total=$(awk '/^(totals|summary):/ { print $2; exit }' "$scratch/out")
  [ "${total:-0}" -gt 0 ] || {
    echo "resolve_cost: callgrind counted nothing within launch_resolve" >&2
    exit 1
  }
  echo $((total / passes))
}

status=0
printf '%8s %8s %14s %14s %10s\n' slots misses instructions per_selected per_miss
for misses in 0 64 512; do
  first=""
  slots=$smallest
  while [ "$slots" -le $((smallest * growth)) ]; do
    instructions=$(count "$slots" "$misses")
    if [ "$misses" -eq 0 ]; then
      hits_only=$instructions # of the largest capacity, in the end: all are alike
      per_miss=-
    else
      per_miss=$(((instructions - hits_only) / misses))
      [ "$per_miss" -le "$max_per_miss" ] || status=1
    fi
    printf '%8d %8d %14d %14d %10s\n' "$slots" "$misses" "$instructions" \
      $((instructions / top_k)) "$per_miss"
    first=${first:-$instructions}
    [ $((instructions * 100)) -le $((first * (100 + max_growth_percent))) ] || status=1
    slots=$((slots * 4))
  done
done
if [ "$status" -ne 0 ]; then
  echo "resolve_cost: a pass is above its bound: +$max_growth_percent % over a capacity of" \
    "$growth times, $max_per_miss instructions a missed row" >&2
fi
exit "$status"
