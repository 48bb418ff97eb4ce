#!/bin/sh
# Usage: lint.sh [BASE]. Checks the format of every C++ file, then runs clang-tidy on the files that
# differ from the commit BASE, new ones included; without BASE from where this branch left
# origin/main, or from the commit before the newest. Needs build/release (cmake --preset release;
# cmake --build --preset release), whose compile commands and generated headers it reads.
# Exits nonzero when anything was found.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
build=build/release
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM

fail() {
  echo "lint: $1" >&2
  exit 2
}

# The existing files among those git names, one a line.
existing() {
  while IFS= read -r file; do
    if [ -f "$file" ]; then printf '%s\n' "$file"; fi
  done
}

tracked() { # tracked PATTERN...: what git knows or would add
  git ls-files --cached --others --exclude-standard -- "$@" | sort -u | existing
}

default_base() { # prints nothing when there is no earlier commit
  git rev-parse -q --verify HEAD >/dev/null || return 0
  if git rev-parse -q --verify origin/main >/dev/null; then
    fork=$(git merge-base origin/main HEAD || true)
    if [ -n "$fork" ] && [ "$fork" != "$(git rev-parse HEAD)" ]; then
      printf '%s\n' "$fork"
      return 0
    fi
  fi
  git rev-parse -q --verify HEAD~1 || true
}

changed() { # changed BASE PATTERN...: without a base everything is new
  base=$1
  shift
  if [ -z "$base" ]; then
    tracked "$@"
    return 0
  fi
  {
    git diff --name-only --diff-filter=d "$base" -- "$@"
    git ls-files --others --exclude-standard -- "$@"
  } | sort -u | existing
}

# The units to compile so that every changed file is seen: sources stand for themselves, a header
# for the first source that includes it.
units_of() { # reads files
  while IFS= read -r file; do
    case $file in
      *.h) unit=$(tracked '*.cc' |
             xargs -r -d '\n' grep -l "#include .*[\"/]$(basename "$file")\"" | compiled |
             head -n 1) ;;
      *) unit=$(printf '%s\n' "$file" | compiled) ;;
    esac
    if [ -n "$unit" ]; then
      printf '%s\n' "$unit"
    else
      echo "lint: $file is in no unit of $build, so clang-tidy cannot read it" >&2
    fi
  done | sort -u
}

compiled() { # those that the release build compiles; the server is optional there
  while IFS= read -r file; do
    if grep -qF "\"$root/$file\"" "$build/compile_commands.json"; then printf '%s\n' "$file"; fi
  done
}

git rev-parse -q --is-inside-work-tree >/dev/null 2>&1 || fail "needs a git checkout"

tracked '*.cc' '*.h' '*.cu' '*.cuh' >"$scratch/all"
status=0
xargs -r -d '\n' clang-format --dry-run -Werror <"$scratch/all" || status=1
echo "lint: format of $(wc -l <"$scratch/all") files checked"

if [ $# -gt 0 ]; then
  base=$(git rev-parse -q --verify "$1^{commit}") || fail "no commit is called $1; fetch it first"
else
  base=$(default_base)
fi
changed "$base" '*.cc' '*.h' >"$scratch/changed"
if [ -s "$scratch/changed" ]; then
  [ -f "$build/compile_commands.json" ] ||
    fail "no $build/compile_commands.json; run cmake --preset release and build it"
  units_of <"$scratch/changed" >"$scratch/units"
  # Only what changed is judged: a unit also reads headers that did not.
  filter=$(sed 's/.*/{"name":"&"}/' "$scratch/changed" | paste -s -d ,)
  # The build is g++'s, some of whose -Wno- options clang does not know.
  xargs -r -d '\n' -n 1 -P "$(nproc)" clang-tidy --quiet -p "$build" "--line-filter=[$filter]" \
    --extra-arg=-Wno-unknown-warning-option <"$scratch/units" 2>"$scratch/stderr" || {
    status=1
    grep -v ' warnings\{0,1\} generated\.$' "$scratch/stderr" >&2 || true
  }
  echo "lint: clang-tidy read $(wc -l <"$scratch/units") units for" \
    "$(wc -l <"$scratch/changed") changed files"
else
  echo "lint: no C++ file changed since ${base:-the start}"
fi
[ "$status" -eq 0 ] || echo "lint: failed; clang-format -i FILE repairs the format" >&2
exit "$status"
