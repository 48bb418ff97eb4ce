#!/bin/sh
# Installs the Debian packages the build needs and says what it did. Works as root and through sudo.
# A second run finds everything present and does nothing.
set -eu

PACKAGES="g++ cmake ninja-build ccache mold pkg-config git python3 curl
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev
  prometheus-cpp-dev libcivetweb-dev
  libspdlog-dev libfmt-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  libpcre2-dev libutf8proc-dev libdnnl-dev libboost-context-dev clang clang-format clang-tidy"

is_installed() {
  [ "$(dpkg-query -W -f='${Status}' "$1" 2>/dev/null)" = "install ok installed" ]
}

missing=""
for package in $PACKAGES; do
  is_installed "$package" || missing="$missing $package"
done

if [ -z "$missing" ]; then
  echo "setup: every package is installed"
  exit 0
fi

if [ "$(id -u)" -eq 0 ]; then
  as_root=""
elif command -v sudo >/dev/null 2>&1; then
  as_root="sudo"
else
  echo "setup: these packages are missing and need root to install:$missing" >&2
  echo "setup: run 'apt-get install$missing' as root, then try again" >&2
  exit 1
fi

echo "setup: installing$missing"
$as_root apt-get update -qq
# shellcheck disable=SC2086  # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  $missing >/dev/null
echo "setup: done"
