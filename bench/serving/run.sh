#!/bin/sh
# Serving benches on the demo checkpoint, in one process, without the wire.
#   sh bench/serving/run.sh residency   the residency table: modes x arena sizes, tokens compared
#   sh bench/serving/run.sh decode      decode step time at rising context
#   sh bench/serving/run.sh fair        token times while a long prompt is computed beside them
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
cmake --preset release >/dev/null
cmake --build --preset release --target residency_table decode_step fair_steps >/dev/null
case "${1:-}" in
  residency) exec build/release/bin/residency_table tests/models/demo ;;
  decode) exec build/release/bin/decode_step tests/models/demo ;;
  fair) exec build/release/bin/fair_steps tests/models/demo ;;
  *)
    echo "usage: sh bench/serving/run.sh residency|decode|fair" >&2
    exit 2
    ;;
esac
