#!/usr/bin/env bash
# Makes sure that the system's packages for a task are there: compilers, headers, fonts.
#
#   tools/system-packages.sh build|test|lint|bench|sanitize|report
#
# Looks first and installs only what is missing, with apt-get, where it runs as root on Debian or
# Ubuntu. Elsewhere it names the missing packages and exits with 1.
set -euo pipefail

has_header() { printf '#include <%s>\n' "$1" | g++ -std=c++20 -fsyntax-only -x c++ - 2>/dev/null; }
missing=()
need() { # need PACKAGE CHECK...
  local package=$1; shift
  "$@" >/dev/null 2>&1 || missing+=("$package")
}

case "${1:-build}" in
  build)
    need g++ g++ --version
    need cmake cmake --version
    need ninja-build ninja --version
    need nlohmann-json3-dev has_header nlohmann/json.hpp ;;
  test) need doctest-dev has_header doctest/doctest.h ;;
  lint) need clang-format clang-format --version ;;
  bench) need libbenchmark-dev has_header benchmark/benchmark.h ;;
  sanitize) need clang clang --version
            need libclang-rt-14-dev test -e /usr/lib/clang ;;
  report)
    need chromium chromium --version
    need fonts-noto-cjk test -e /usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc ;;
  *) echo "usage: $0 build|test|lint|bench|sanitize|report" >&2; exit 2 ;;
esac
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  echo "Installing with apt-get: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
  echo "These packages are missing: ${missing[*]}" >&2
  echo "Install them (Debian, Ubuntu: sudo apt-get install ${missing[*]}) and run the command again." >&2
  exit 1
fi
