#!/usr/bin/env bash
# Formatters, clang-tidy, ruff and mypy --strict; says at the end which of them found something.
# usage: lint.sh BUILD   (BUILD has compile_commands.json and the stub of the module)
set -uo pipefail
build=$1
failed=()
step() {
  local name=$1
  shift
  echo "== $name"
  "$@" || failed+=("$name")
}

clang_format() {
  git ls-files 'cpp/*.cpp' 'cpp/*.h' 'cpp/*.cu' 'cpp/*.cuh' 'tests/*.cpp' 'tests/*.h' 'bench/*.cpp' |
    xargs clang-format --dry-run -Werror
}
# mypy needs the generated stub beside the sources.
mypy_strict() { cp "$build"/cpp/bindings/_core.pyi python/andrea/_core.pyi && mypy; }

step clang-format clang_format
step "ruff format" ruff format --check .
step "ruff check" ruff check .
step "mypy --strict" mypy_strict
step clang-tidy python scripts/tidy.py "$build"

if [ ${#failed[@]} -gt 0 ]; then
  echo "lint failed: ${failed[*]}" >&2
  exit 1
fi
echo "lint: all clean"
