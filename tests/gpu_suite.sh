#!/usr/bin/env bash
# All tests that need a GPU, plain and under compute-sanitizer, with a short table at the end.
# Contract: `gpu_suite.sh [--no-sanitizer] DIR` runs every gpu_*_test of DIR (a build's tests folder) and exits 0 where all passed, 1 where one failed. Without a
# usable GPU it says so loudly and exits 0, or 77 with --require. Logs: DIR/gpu_suite.NAME.log.
set -uo pipefail

sanitizer=1 require=0
while [[ ${1-} == --* ]]; do
  case $1 in
    --no-sanitizer) sanitizer=0 ;;
    --require) require=1 ;;
    *) echo "gpu_suite.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
dir=${1:?usage: gpu_suite.sh [--no-sanitizer] [--require] DIR}
logs=${LOGS:-$dir}

if ! ls "$dir"/gpu_*_test >/dev/null 2>&1; then
  echo "gpu_suite.sh: $dir holds no gpu_*_test; build them first (ninja tests)" >&2
  exit 2
fi
probe=$("$dir"/gpu_ops_test --gtest_filter='GpuOp.ErrorsAreOneLineAndHelp' 2>&1)
if [[ $probe == *"NOT TESTED"* ]]; then
  echo "################################################################"
  echo "## NO GPU TEST WAS RUN: $(grep -o 'NOT TESTED.*' <<<"$probe" | head -1)"
  echo "################################################################"
  exit $((require ? 77 : 0))
fi

failed=0
rows=()
run() { # name, what, command…
  local name=$1 what=$2 log=$logs/gpu_suite.$1.log start=$SECONDS verdict summary
  shift 2
  if "$@" >"$log" 2>&1; then verdict=ok; else verdict=FAILED; failed=1; fi
  summary=$(grep -E '^\[  (PASSED|FAILED)  \]|ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tr '\n' ' ' | cut -c1-110)
  rows+=("$(printf '%-7s %4ds  %-10s %-18s %s' "$verdict" $((SECONDS - start)) "$what" "$name" "$summary")")
}

for test in "$dir"/gpu_*_test; do
  name=$(basename "$test")
  run "$name" plain "$test"
done

if [[ $sanitizer == 1 ]]; then
  tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
  if [[ -z $tool ]]; then
    rows+=("skipped        compute-sanitizer is not installed")
  else
    export LOGITGATE_GPU_QUICK=1
    declare -A filter=(
      [gpu_ops_test]='GpuOp.*-*LmHead*:*Replay*:*Errors*'
      [gpu_matmul_test]='*AgreesWithTheReference:*Gemv*'
      [gpu_attention_test]='*AgreesWithTheReference:*Causal*:*OtherRecords*'
    )
    for name in gpu_ops_test gpu_matmul_test gpu_attention_test; do
      for check in memcheck racecheck initcheck; do
        run "$name.$check" "$check" timeout "${LIMIT:-240}" "$tool" --tool "$check" --error-exitcode 9 \
          "$dir/$name" --gtest_filter="${filter[$name]}"
      done
    done
  fi
fi

echo "verdict  time  check      test               summary"
printf '%s\n' "${rows[@]}"
exit $failed
