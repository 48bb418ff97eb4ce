#!/bin/sh
# Load that comes and goes on the real engine (about two minutes). Prints a table and writes
# load_step.csv, load_step.json and, where matplotlib is installed (bench/requirements.txt),
# load_step.svg into FOLDER.
#   sh bench/serving/load_step.sh [FOLDER]      default docs/results
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/docs/results}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$root"
cmake --preset release >/dev/null
cmake --build --preset release --target load_step >/dev/null
build/release/bin/load_step tests/models/demo "$folder"
if python3 -c 'import matplotlib' 2>/dev/null; then
  python3 bench/serving/load_step_picture.py "$folder"
else
  echo "no picture: pip install -r bench/requirements.txt" >&2
fi
