#!/bin/sh
# What drafts are worth on the demo model (about 40 minutes): output, accepted length,
# verify rows and host fetches of every draft and length, at several concurrencies. Prints tables
# and writes speculation.json and speculation.svg into FOLDER.
#   sh bench/serving/speculation.sh [--quick] [--rounds N] [FOLDER]      default docs/results
# DHS_BIN_DIR: where the program already is; unset: it is built. DHS_DRAFTS: the folder of the
# drafts; unset: the demo model's own.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$root/docs/results
options=""
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) options="$options --quick" ;;
    --rounds)
      options="$options --rounds $2"
      shift
      ;;
    *) folder=$1 ;;
  esac
  shift
done
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$root"
if [ -z "${DHS_BIN_DIR:-}" ]; then
  cmake --preset release >/dev/null
  cmake --build --preset release --target speculation >/dev/null
fi
model=tests/models/demo
# shellcheck disable=SC2086
"${DHS_BIN_DIR:-build/release/bin}/speculation" "$model" "${DHS_DRAFTS:-$model}" "$folder" $options
python3 -B bench/serving/speculation_report.py "$folder"
