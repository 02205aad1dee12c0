#!/usr/bin/env bash
# Names everything that is missing on this machine in one line to type, and types it where it may.
# usage: check-tools.sh PYTHON [tests]
set -euo pipefail
python=${1:-python3}
missing=()

command -v "${CXX:-g++}" >/dev/null || missing+=(g++)
if ! command -v "$python" >/dev/null; then
  missing+=(python3 python3-venv python3-dev)
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  echo "$python is $("$python" -V 2>&1); 3.10 or newer is needed: make PYTHON=python3.12 ..." >&2
  exit 1
else
  "$python" -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
  "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' || missing+=(python3-dev)
fi
if [ "${2:-}" = tests ] && command -v "${CXX:-g++}" >/dev/null; then
  echo '#include <gtest/gtest.h>' | "${CXX:-g++}" -x c++ -std=c++17 -E - >/dev/null 2>&1 || missing+=(libgtest-dev)
fi
[ ${#missing[@]} -gt 0 ] || exit 0

line="apt-get install -y ${missing[*]}"
if ! command -v apt-get >/dev/null; then
  echo "Missing: ${missing[*]} (names of Debian's packages). Install them, then try again." >&2
  exit 1
fi
if [ "$(id -u)" = 0 ]; then
  sudo=()
elif [ "${CI:-}" = true ] && sudo -n true 2>/dev/null; then
  sudo=(sudo -n)
else
  echo "Missing: ${missing[*]}. Type:" >&2
  echo "  sudo $line" >&2
  exit 1
fi
echo "Missing: ${missing[*]}. Running: $line"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq
# shellcheck disable=SC2086
"${sudo[@]}" $line >/dev/null
