#!/bin/sh
# Builds the kernels for this machine's GPU, runs their tests and gpu_bench, prints one table.
#
#   sh tests/gpu/run.sh [--out DIR] [--build DIR] [--build-only] [--skip-sanitizer]
#
# Needs nvcc of CUDA 13, CMake, a C++20 compiler, make or ninja, and one GPU. Installs nothing.
# --build-only compiles for sm_90a when there is no GPU. Exit status: 0 all passed, 1 something
# failed, 77 no GPU.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
out=
build=
build_only=no
sanitizer=yes
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2; shift ;;
    --build) build=$2; shift ;;
    --build-only) build_only=yes ;;
    --skip-sanitizer) sanitizer=no ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done

say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*"; }
stop() { printf 'run.sh: %s\n' "$1" >&2; exit "${2:-1}"; }

# ---- What this machine has ----------------------------------------------------------------------

nvcc=$(command -v nvcc || true)
if [ -z "$nvcc" ] && [ -x /usr/local/cuda/bin/nvcc ]; then
  nvcc=/usr/local/cuda/bin/nvcc
  PATH=/usr/local/cuda/bin:$PATH
fi
[ -n "$nvcc" ] || stop "nvcc was not found: put the CUDA 13 toolkit's bin folder on PATH"
command -v cmake > /dev/null || stop "cmake was not found: version 3.22 or newer is needed"
command -v "${CXX:-c++}" > /dev/null || stop "no C++ compiler: set CXX or install one (C++20)"
case $("$nvcc" --version) in
  *"release 13"*) ;;
  *) stop "CUDA 13 is needed, $nvcc is $("$nvcc" --version | grep release)" ;;
esac

capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1 ||
             true)
case $capability in
  [0-9]*.[0-9]*) ;;
  *) capability= ;;
esac
if [ -z "$capability" ]; then
  [ $build_only = yes ] || stop "no GPU: nvidia-smi shows none; --build-only builds without one" 77
  capability=9.0
fi
architecture=$(printf %s "$capability" | tr -d .)
# Kernels for 9.0 and 10.0 use instructions of these devices alone.
case $architecture in 90 | 100 | 103) architecture=${architecture}a ;; esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
out=${out:-$scratch/results}
keep_out=no
[ "$out" = "$scratch/results" ] || keep_out=yes
build=${build:-$scratch/build}
mkdir -p "$out" "$build"
out=$(cd "$out" && pwd)
build=$(cd "$build" && pwd)

# ---- Build --------------------------------------------------------------------------------------

cores=$(nproc 2> /dev/null || echo 4)
if command -v ninja > /dev/null; then generator=Ninja; else generator="Unix Makefiles"; fi
say "configuring for sm_$architecture in $build"
cmake -G "$generator" -S "$root/tests/gpu" -B "$build" -DCMAKE_BUILD_TYPE=Release \
  -DCUDAToolkit_ROOT="$(dirname "$(dirname "$nvcc")")" \
  -DDHS_CUDA_ARCHITECTURES="${architecture}-real" > "$out/configure.log" 2>&1 ||
  { tail -n 30 "$out/configure.log"; stop "CMake failed: $out/configure.log"; }
say "building on $cores cores"
cmake --build "$build" --parallel "$cores" > "$out/build.log" 2>&1 ||
  { grep -n -m 10 -i 'error' "$out/build.log"; stop "the build failed: $out/build.log"; }
if [ $build_only = yes ]; then
  say "built $(wc -l < "$build/tests.txt") test programs and gpu_bench"
  exit 0
fi

# ---- Tests --------------------------------------------------------------------------------------

failed=0
rows=$out/tests.tsv
: > "$rows"
# run_test LABEL COMMAND...: one row, PASS or FAIL, with the last line that the program printed.
run_test() {
  label=$1
  shift
  log=$out/$label.log
  status=0
  timeout 120 "$@" > "$log" 2>&1 || status=$?
  verdict=PASS
  if [ $status -ne 0 ]; then
    verdict="FAIL ($status)"
    failed=$((failed + 1))
    grep -m 5 -E 'FAILED|: .* == |cuda|CUDA|error' "$log" || true
  fi
  summary=$(tail -n 1 "$log" | tr '\t"\\' "   " | cut -c 1-100)
  printf '%s\t%s\t%s\n' "$label" "$verdict" "$summary" >> "$rows"
  say "$label: $verdict, $summary"
}

while read -r test; do
  run_test "$test" "$build/bin/$test"
done < "$build/tests.txt"

# A short selection: instrumented kernels are slow.
if [ $sanitizer = yes ] && command -v compute-sanitizer > /dev/null; then
  for tool in memcheck racecheck; do
    for op in gather resolve append top_k sparse_attention index_score; do
      [ -x "$build/bin/gpu_${op}_test" ] || continue
      first=$("$build/bin/gpu_${op}_test" --list | head -n 2 | paste -sd: -)
      run_test "${tool}_$op" compute-sanitizer --tool "$tool" --error-exitcode 1 \
        "$build/bin/gpu_${op}_test" "--gtest_filter=$first"
    done
  done
else
  say "no compute-sanitizer: memcheck and racecheck are left out"
fi

# ---- Bench --------------------------------------------------------------------------------------

bench=PASS
say "gpu_bench"
{
  status=0
  timeout 240 "$build/bin/gpu_bench" --out "$out" 2>&1 || status=$?
  echo $status > "$scratch/bench_status"
} | tee "$out/bench.log"
if [ "$(cat "$scratch/bench_status")" -ne 0 ]; then
  bench="FAIL ($(cat "$scratch/bench_status"))"
  failed=$((failed + 1))
fi

# ---- Results ------------------------------------------------------------------------------------

{
  printf '# Tests on %s\n\n' "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader |
                                head -n 1)"
  printf '| test | result | |\n|---|---|---|\n'
  awk -F '\t' '{ printf "| %s | %s | %s |\n", $1, $2, $3 }' "$rows"
  printf '| gpu_bench | %s | |\n\n' "$bench"
  [ ! -s "$out/bench.md" ] || cat "$out/bench.md"
} > "$out/table.md"
{
  printf '{"tests": ['
  awk -F '\t' '{ printf "%s\n  {\"name\": \"%s\", \"result\": \"%s\", \"summary\": \"%s\"}",
                 (NR > 1 ? "," : ""), $1, $2, $3 }' "$rows"
  printf '\n], "bench": '
  if [ -s "$out/bench.json" ]; then cat "$out/bench.json"; else printf 'null'; fi
  printf '}\n'
} > "$out/results.json"
cat "$out/table.md"
[ $keep_out = no ] || say "written to $out/table.md and results.json"
[ $failed -eq 0 ] || stop "$failed failed"
