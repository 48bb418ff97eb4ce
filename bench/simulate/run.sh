#!/bin/sh
# The trace suite: what the row cache's policy and its sizes are worth. Prints a table and writes
# trace_suite.csv, trace_suite.json and trace_suite.svg into FOLDER, by default docs/results.
#   sh bench/simulate/run.sh [FOLDER]              selections drawn from the model of locality
#   sh bench/simulate/run.sh FOLDER TRACE_FILE     a recorded trace (residency.trace)
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/docs/results}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
trace=${2:+$(realpath "$2")}
cd "$root"
cmake --preset release >/dev/null
cmake --build --preset release --target trace_suite >/dev/null
build/release/bin/trace_suite "$folder" ${trace:+"$trace"}
python3 bench/simulate/trace_picture.py "$folder/trace_suite.csv" "$folder/trace_suite.svg"
