#!/usr/bin/env bash
# Builds the package in a kept tree and installs it into the environment in editable form, offline.
# usage: build-package.sh BUILD CUDA WERROR
set -euo pipefail
build=$1 cuda=$2 werror=$3
log=$build/build.log
mkdir -p "$build"
# A tree that was configured elsewhere (a moved clone) cannot be used again.
if [ -f "$build/CMakeCache.txt" ] && ! grep -qx "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$build/CMakeCache.txt"; then
  rm -rf "$build" && mkdir -p "$build"
fi
echo "Building (log: $log)"
if ! python -m pip install --verbose --no-index --no-deps --no-build-isolation --editable . \
  --config-settings=build-dir="$build" \
  --config-settings=cmake.define.ANDREA_CUDA="$cuda" \
  --config-settings=cmake.define.ANDREA_WERROR="$([ -n "$werror" ] && echo ON || echo OFF)" 2>&1 |
  tee "$log" | { grep --line-buffered -E '^ *\[[0-9]+/[0-9]+\]|warning:|error:' || true; }; then
  echo "The build failed; the end of $log:" >&2
  grep -v '^ *WARNING' "$log" | tail -30 >&2
  exit 1
fi
