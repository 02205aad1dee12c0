#!/usr/bin/env bash
# Checks andrea on this machine's GPU: builds with CUDA, runs the suites, compute-sanitizer on small shapes and the
# benchmarks, and prints a summary. Full logs stay in the build folder.
#
#   scripts/gpu-check.sh [--build DIR] [--shapes 12M,120M] [--precisions fp16,fp32] [--batch 8]
#                        [--no-build] [--no-sanitizer] [--no-bench]
#
# Exit code: 0 if everything that ran passed, 1 otherwise, 69 if there is no GPU or no compiler.
set -u -o pipefail
cd "$(dirname "$0")/.."

build=build-gpu shapes=12M,120M precisions=fp16,fp32 batch=8
do_build=1 do_sanitizer=1 do_bench=1
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=$2; shift ;;
    --shapes) shapes=$2; shift ;;
    --precisions) precisions=$2; shift ;;
    --batch) batch=$2; shift ;;
    --no-build) do_build=0 ;;
    --no-sanitizer) do_sanitizer=0 ;;
    --no-bench) do_bench=0 ;;
    -h | --help) sed -n '2,9p' "$0" | cut -c3-; exit 0 ;;
    *) echo "gpu-check: unknown argument $1 (see --help)" >&2; exit 64 ;;
  esac
  shift
done

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
  echo "gpu-check: no NVIDIA GPU answers (nvidia-smi -L)" >&2
  exit 69
fi
mkdir -p "$build/logs"
logs=$build/logs
summary=()
failed=0

# step NAME COMMAND...: runs it with a log, notes how it ended and how long it took
step() {
  local name=$1 start=$SECONDS code
  shift
  "$@" >"$logs/$name.log" 2>&1
  code=$?
  summary+=("$(printf '%-28s %-7s %5d s' "$name" "$([ $code = 0 ] && echo ok || echo "FAIL $code")" $((SECONDS - start)))")
  if [ $code != 0 ]; then
    failed=1
    echo "---- $name failed; the end of $logs/$name.log:"
    tail -n 40 "$logs/$name.log"
  fi
  return $code
}

nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader
if [ $do_build = 1 ]; then
  generator=()
  command -v ninja >/dev/null && generator=(-G Ninja)
  step configure cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DANDREA_CUDA=ON \
    -DANDREA_TESTS=ON -DANDREA_BENCH=ON || exit 1
  step build cmake --build "$build" -j "$(nproc)" --target kernel_tests cuda_kernels cuda_step || exit 1
fi

tests=$(find "$build" -name kernel_tests -type f -perm -u+x | head -n 1)
step suites "$tests" --gtest_filter='*cuda*' --gtest_brief=1
tail -n 3 "$logs/suites.log"
step suites_again "$tests" --gtest_filter='*Determinism*cuda*:*SameBits*cuda*' --gtest_repeat=3 --gtest_brief=1

if [ $do_sanitizer = 1 ]; then
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
      # One layer forward and backward and an update in every precision, and decoding: all kernels at small sizes.
      step "sanitizer_$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 \
        "$tests" --gtest_filter='*DeterminismTest.RunAfterRun/cuda_*:*DecodeFollows*/cuda_*' --gtest_brief=1
      grep -E "ERROR SUMMARY|RACECHECK SUMMARY" "$logs/sanitizer_$tool.log" | tail -n 1
    done
  else
    summary+=("$(printf '%-28s %-7s' sanitizer "absent")")
  fi
fi

if [ $do_bench = 1 ]; then
  step bench_kernels "$(find "$build" -name cuda_kernels -type f | head -n 1)" "$shapes" "$precisions" "$batch"
  grep -vE "^  " "$logs/bench_kernels.log"
  step bench_step "$(find "$build" -name cuda_step -type f | head -n 1)" "$shapes" "$precisions" "$batch"
  cat "$logs/bench_step.log"
fi

printf '\nsummary\n'
printf '%s\n' "${summary[@]}"
exit $failed
