#!/bin/sh
# Simulated experiments (docs/RESULTS.md). Each writes docs/results/NAME.json, .csv and .svg.
#   sh bench/simulate/run.sh e1|e2|e3|e4|e5|e6|e7    beside published values
#   sh bench/simulate/run.sh sensitivity|groups      what they rest on
#   sh bench/simulate/run.sh speed                   what simulating costs
#   sh bench/simulate/run.sh all
# Runs are kept in build/simulate and used again.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
cmake --preset release >/dev/null
cmake --build --preset release --target dhisparse >/dev/null
exec python3 bench/simulate/experiments.py "$@"
