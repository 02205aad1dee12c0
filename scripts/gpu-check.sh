#!/usr/bin/env bash
# Checks andrea on this machine's GPU: builds with CUDA, runs the suites, compute-sanitizer on small shapes, the
# Python tests that use the GPU, a run killed with -9 and resumed, and the benchmark; prints a summary. Full logs stay
# in the build folder. What cannot run here (no ninja, no compute-sanitizer, no pytest) is listed as absent.
#
#   scripts/gpu-check.sh [--build DIR] [--sizes NANO,12M,120M] [--precisions fp16,fp32] [--batch 8]
#                        [--no-build] [--no-sanitizer] [--no-python] [--no-bench]
#
# Needs a driver, cmake >= 3.24, a C++ compiler, GoogleTest (libgtest-dev), and nvcc: of the CUDA toolkit, or of the
# wheels that the build names when it finds none. Sizes too large for the memory of the GPU are listed as too large,
# not as failures.
# Exit code: 0 if everything that ran passed, 1 otherwise, 69 if there is no GPU.
set -u -o pipefail
cd "$(dirname "$0")/.."

build=build-gpu sizes=NANO,12M,120M precisions=fp16,fp32 batch=8
do_build=1 do_sanitizer=1 do_python=1 do_bench=1
while [ $# -gt 0 ]; do
  case "$1" in
    --build | --sizes | --precisions | --batch)
      [ $# -ge 2 ] || { echo "gpu-check: $1 needs a value" >&2; exit 64; }
      case "$1" in --build) build=$2 ;; --sizes) sizes=$2 ;; --precisions) precisions=$2 ;; --batch) batch=$2 ;; esac
      shift ;;
    --no-build) do_build=0 ;;
    --no-sanitizer) do_sanitizer=0 ;;
    --no-python) do_python=0 ;;
    --no-bench) do_bench=0 ;;
    -h | --help) awk 'NR == 1 { next } !/^#/ { exit } { print substr($0, 3) }' scripts/gpu-check.sh; exit 0 ;;
    *) echo "gpu-check: unknown argument $1 (see --help)" >&2; exit 64 ;;
  esac
  shift
done

smi=$(command -v nvidia-smi || ls /usr/lib/wsl/lib/nvidia-smi /usr/local/nvidia/bin/nvidia-smi 2>/dev/null | head -n 1)
if [ -z "$smi" ] || ! "$smi" -L >/dev/null 2>&1; then
  echo "gpu-check: no NVIDIA GPU answers (nvidia-smi -L): is the driver installed?" >&2
  exit 69
fi
mkdir -p "$build/logs"
build=$(cd "$build" && pwd)
logs=$build/logs
summary=()
failed=0

note() { summary+=("$(printf '%-28s %s' "$1" "$2")"); }

# step NAME COMMAND...: runs it with a log, notes how it ended and how long it took
step() {
  local name=$1 start=$SECONDS code
  shift
  "$@" >"$logs/$name.log" 2>&1
  code=$?
  if [ $code = 0 ]; then
    note "$name" "ok $((SECONDS - start)) s"
  else
    note "$name" "FAIL (exit $code) $((SECONDS - start)) s"
    failed=1
    echo "---- $name failed; the end of $logs/$name.log:"
    tail -n 40 "$logs/$name.log"
  fi
  return $code
}

finish() {
  printf '\nsummary\n'
  printf '%s\n' "${summary[@]}"
  exit $failed
}

"$smi" --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader
python=$(command -v python3 || command -v python || true)
if [ $do_build = 1 ]; then
  for tool in cmake c++; do
    command -v $tool >/dev/null && continue
    echo "gpu-check: $tool is not there: apt-get install g++, pip install cmake ninja" >&2
    note $tool absent
    failed=1
    finish
  done
  generator=() module=OFF
  if command -v ninja >/dev/null; then generator=(-G Ninja); else note ninja "absent: make builds"; fi
  [ -n "$python" ] && "$python" -c 'import nanobind' 2>/dev/null && module=ON
  step configure cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DANDREA_CUDA=ON \
    -DANDREA_TESTS=ON -DANDREA_PYTHON=$module || finish
  step build cmake --build "$build" -j "$(nproc)" || finish
fi
binary=$(find "$build" -name microgpt_train -type f -perm -u+x | head -n 1)
tests=$(find "$build" -name kernel_tests -type f -perm -u+x | head -n 1)
if [ -z "$binary" ] || [ -z "$tests" ]; then
  echo "gpu-check: nothing built in $build; run it without --no-build" >&2
  note build "absent"
  failed=1
  finish
fi

# A test that skips itself for want of a GPU would prove nothing here.
cuda_works() { "$tests" --gtest_filter='*MemoryRule*_cuda' | tee /dev/stderr | grep -q '\[  PASSED  \] 1 test'; }
step gpu_is_used cuda_works || finish

for suite in kernel_tests model_tests; do
  step "$suite" "$(find "$build" -name $suite -type f | head -n 1)" --gtest_filter='*cuda*:*Cuda*:Plan*' --gtest_brief=1
  tail -n 3 "$logs/$suite.log"
done
# Where the GPU has kernels of its own, the ones that every GPU can run are tested too.
ANDREA_PORTABLE_KERNELS=1 step portable_kernels "$tests" --gtest_filter='*Attention*cuda*:*Determinism*cuda*' --gtest_brief=1
step determinism_again "$tests" --gtest_filter='*Determinism*cuda*:*SameBits*cuda*' --gtest_repeat=3 --gtest_brief=1

if [ $do_sanitizer = 1 ]; then
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -n 1)
  if [ -n "$sanitizer" ]; then
    for tool in memcheck racecheck; do
      # One layer forward and backward and an update in every precision, and decoding: all kernels at small sizes.
      step "sanitizer_$tool" "$sanitizer" --tool "$tool" --error-exitcode 9 \
        "$tests" --gtest_filter='*DeterminismTest.RunAfterRun/cuda_*:*DecodeFollows*/cuda_*' --gtest_brief=1
      grep -E "ERROR SUMMARY|RACECHECK SUMMARY" "$logs/sanitizer_$tool.log" | tail -n 1
    done
  else
    note sanitizer "absent: compute-sanitizer comes with the CUDA toolkit"
  fi
fi

if [ $do_python = 1 ]; then
  module=$(find "$build" -name '_core*.so' | head -n 1)
  if [ -z "$module" ]; then
    note python "absent: no module was built (pip install nanobind)"
  elif ! "$python" -c 'import pytest, numpy, typer' 2>/dev/null; then
    note python "absent: pip install pytest numpy typer rich msgspec pydantic xxhash psutil"
  else
    # A package folder of its own: sources as they are, module and binary of this build.
    rm -rf "$build/package"
    mkdir -p "$build/package"
    cp -r python/andrea "$build/package/andrea"
    rm -f "$build"/package/andrea/{_core*,microgpt_train}
    cp "$module" "$binary" "$build/package/andrea/"
    ANDREA_TEST_DEVICE=cuda PYTHONPATH=$build/package${PYTHONPATH:+:$PYTHONPATH} step python_tests \
      "$python" -m pytest -q -p no:cacheprovider tests/py/test_gpu.py -rs
    tail -n 3 "$logs/python_tests.log"
  fi
fi

if [ $do_bench = 1 ]; then
  for size in ${sizes//,/ }; do
    for precision in ${precisions//,/ }; do
      name=bench_${size}_$precision
      "$binary" --bench --config "experiments/ANDREA-$size-TRAIN.json" --device cuda --precision "$precision" \
        --batch-size "$batch" --micro-batches 1 >"$logs/$name.log" 2>&1
      code=$?
      if [ $code = 0 ]; then
        note "$name" "$(grep -m 1 '^step:' "$logs/$name.log" | cut -d' ' -f2-)"
        cat "$logs/$name.log"
      elif [ $code = 78 ]; then
        note "$name" "too large or refused: $(tail -n 1 "$logs/$name.log")"
      else
        note "$name" "FAIL (exit $code)"
        failed=1
        tail -n 20 "$logs/$name.log"
      fi
    done
  done
fi
finish
