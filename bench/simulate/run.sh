#!/bin/sh
# Simulated experiments (docs/RESULTS.md). Each writes NAME.json, .csv and .svg into docs/results.
# Runs are kept in build/simulate and used again.
#   sh bench/simulate/run.sh e1|e2|e3|e4|e5|e6|e7    beside published values
#   sh bench/simulate/run.sh auto                    adaptive draft lengths, beside e1 and e6
#   sh bench/simulate/run.sh sensitivity|groups      what they rest on
#   sh bench/simulate/run.sh speed                   what simulating costs
#   sh bench/simulate/run.sh all                     all of these
# The trace suite: what the row cache's policy and its sizes are worth. Prints a table and writes
# trace_suite.csv, trace_suite.json and trace_suite.svg into FOLDER, by default docs/results.
#   sh bench/simulate/run.sh [FOLDER]              selections drawn from the model of locality
#   sh bench/simulate/run.sh FOLDER TRACE_FILE     a recorded trace (residency.trace)
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build() {
  cmake --preset release >/dev/null
  cmake --build --preset release --target "$1" >/dev/null
}
case "${1:-}" in
  e[1-7] | auto | sensitivity | groups | speed | all)
    cd "$root"
    build dhisparse
    exec python3 bench/simulate/experiments.py "$@"
    ;;
esac
folder=${1:-$root/docs/results}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
trace=${2:+$(realpath "$2")}
cd "$root"
build trace_suite
build/release/bin/trace_suite "$folder" ${trace:+"$trace"}
python3 bench/simulate/trace_picture.py "$folder/trace_suite.csv" "$folder/trace_suite.svg"
