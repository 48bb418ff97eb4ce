#!/bin/sh
# Builds the daemon and the client, serves the demo model, sends three prompts at once, one of them
# long, and shows the answers and where their memory was. Stops the daemon and exits 0 when all of
# that worked.
# The first run installs packages and compiles (minutes); later runs take seconds.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

echo "== packages"
sh cmake/setup.sh
echo "== configure and build (release)"
cmake --preset release
cmake --build --preset release --target dhisparsed dhisparse

bin="$root/build/release/bin"
scratch=$(mktemp -d)
log="$scratch/daemon.log"
daemon=""

finish() {
  status=$?
  trap - EXIT INT TERM
  if [ -n "$daemon" ]; then
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
  fi
  if [ "$status" -ne 0 ] && [ -f "$log" ]; then
    echo "demo: failed; the daemon's log:" >&2
    cat "$log" >&2
  fi
  rm -rf "$scratch"
  exit "$status"
}
trap finish EXIT
trap 'exit 1' INT TERM

echo "== start dhisparsed on a free port, with less device memory than the long prompt needs"
"$bin/dhisparsed" --config configs/demo.yaml --set server.listen=127.0.0.1:0 \
  --set server.metrics=off --set device.memory=6MiB --set device.chunk=256KiB 2>"$log" &
daemon=$!
address=""
seconds=0
while [ -z "$address" ]; do
  kill -0 "$daemon" 2>/dev/null || { echo "demo: the daemon ended" >&2; exit 1; }
  [ "$seconds" -lt 120 ] || { echo "demo: not ready after $seconds s" >&2; exit 1; }
  sleep 1
  seconds=$((seconds + 1))
  address=$(sed -n 's/.*READY listening on \([^,]*\),.*/\1/p' "$log")
done
echo "ready on $address"

ask() { # ask NAME --prompt TEXT | --prompt-file FILE: to NAME.text, the summary to NAME.summary
  name=$1
  shift
  "$bin/dhisparse" generate --server "$address" "$@" --max-tokens 160 --temperature 0.7 \
    --top-p 0.95 --seed 7 --timeout 120 >"$scratch/$name.text" 2>"$scratch/$name.summary"
}

show() { # show NAME PROMPT
  printf '\n> %s\n' "$2"
  cat "$scratch/$1.text" "$scratch/$1.summary"
}

echo "== three prompts at once"
head -c 12000 tests/models/demo/held_out.txt >"$scratch/passage"
ask first --prompt "In the beginning" &
first=$!
ask second --prompt "And the LORD said unto" &
second=$!
ask third --prompt-file "$scratch/passage" &
third=$!
# The state while they run: the last one that still had a running request.
while kill -0 "$first" 2>/dev/null || kill -0 "$second" 2>/dev/null ||
  kill -0 "$third" 2>/dev/null; do
  "$bin/dhisparse" state --server "$address" >"$scratch/state"
  if grep -q 'running [1-9]' "$scratch/state"; then
    mv "$scratch/state" "$scratch/running"
  fi
done
failed=0
wait "$first" || failed=1
wait "$second" || failed=1
wait "$third" || failed=1
show first "In the beginning"
show second "And the LORD said unto"
show third "(12,000 characters of text) ...$(tail -c 80 "$scratch/passage")"
[ "$failed" -eq 0 ] || { echo "demo: a request failed" >&2; exit 1; }

if [ -f "$scratch/running" ]; then
  printf '\n== where the memory was while they ran\n'
  cat "$scratch/running"
fi
printf '\n== and after they ended\n'
"$bin/dhisparse" state --server "$address" | tee "$scratch/state"
accepted=$(sed -n 's/^drafts .*mean accepted length \([0-9.]*\).*/\1/p' "$scratch/state")
[ -n "$accepted" ] || { echo "demo: no draft was verified" >&2; exit 1; }
printf '\nmean accepted length of the DFlash2 draft: %s tokens a step\n' "$accepted"

echo "== stop"
kill "$daemon"
stopped=0
wait "$daemon" || stopped=$?
daemon=""
[ "$stopped" -eq 0 ] || { echo "demo: the daemon ended with status $stopped" >&2; exit 1; }
echo "demo: done"
