#!/bin/sh
# Load that comes and goes with drafts, on the real engine (about two minutes). Prints a table and
# writes speculation_load_step.csv, speculation_load_step.json and, where matplotlib is installed
# (bench/requirements.txt), speculation_load_step.svg into FOLDER.
#   sh bench/serving/speculation_load_step.sh [DRAFT] [FOLDER]      default dflash2, docs/results
# DHS_DRAFTS: the folder of the drafts; unset: the demo model's own.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
draft=${1:-dflash2}
folder=${2:-$root/docs/results}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$root"
if [ -z "${DHS_BIN_DIR:-}" ]; then
  cmake --preset release >/dev/null
  cmake --build --preset release --target speculation_load_step >/dev/null
fi
model=tests/models/demo
"${DHS_BIN_DIR:-build/release/bin}/speculation_load_step" "$model" "${DHS_DRAFTS:-$model}" \
  "$folder" "$draft"
if python3 -c 'import matplotlib' 2>/dev/null; then
  python3 bench/serving/speculation_load_step_picture.py "$folder"
else
  echo "no picture: pip install -r bench/requirements.txt" >&2
fi
