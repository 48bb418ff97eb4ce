#!/bin/sh
# Builds everything and runs every test: what has to pass before a change goes in. Ends with ctest's
# summary and exits nonzero when anything failed.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

sh cmake/setup.sh
cmake --preset release
cmake --build --preset release
ctest --preset release --parallel "$(nproc)"
