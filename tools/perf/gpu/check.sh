#!/bin/bash
# check.sh FOLDER_OF_PROGRAMS [SECONDS]: on a machine with a card, runs cuda_tests, and a short part of them under each of
# compute-sanitizer's memcheck, racecheck, initcheck and synccheck, so that all is done within SECONDS (default 540); prints a table last
# and fails where a line of it does. A sanitizer that runs out of its share of the time is told apart from one that has found something:
# what it saw until then was clean. The tests alone have to end.
set -uo pipefail
usage="usage: check.sh FOLDER_OF_PROGRAMS [SECONDS]"
bad_input() {
  echo "check.sh: $1" >&2
  exit 2
}
case ${1:-} in
  --help | -h) sed -n '2,/^set/{/^#/s/^# //p}' "$0"; exit 0 ;;
  '') bad_input "the folder of programs is missing; $usage" ;;
  -*) bad_input "'$1' is no folder of programs; $usage" ;;
esac
[ $# -le 2 ] || bad_input "more than two arguments; $usage"
programs=$1
seconds=${2:-540}
# Ten digits at most, so that it is a number of the shell's; below a minute a row's share is next to nothing.
[[ $seconds =~ ^[0-9]{1,10}$ ]] && seconds=$((10#$seconds)) && [ "$seconds" -ge 60 ] && [ "$seconds" -le 86400 ] ||
  bad_input "SECONDS is a number from 60 to 86400, not '$2'"
tests=$programs/cuda_tests
[ -f "$tests" ] && [ -x "$tests" ] || bad_input "there is no program $tests: make cuda-portable makes it"
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)

# One case of each kind of kernel: every op at the smallest size in both precisions, the optimizer, casts, codecs, and a whole training.
short='Sizes/CudaConformanceTest.*/0:Sizes/CudaBf16Test.*/0:One/*:CudaTensorCodecTest.*'
training='CudaStageTest.TiedGpt2LearnsInBf16AsTheReference:CudaStageTest.AResidualNetworkLearnsAsTheReference'
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
rows=()
failed=0

# run NAME SHARE_OF_SECONDS COMMAND...: a row of the table.
run() {
  local name=$1 limit=$(($2 * seconds / 100)) begin=$SECONDS code passed skipped errors verdict
  shift 2
  timeout --kill-after=5 "$limit" "$@" >"$out/$name" 2>&1
  code=$?
  passed=$(grep -c '^\[       OK \]' "$out/$name")
  skipped=$(grep -c '^\[  SKIPPED \] .*(' "$out/$name")
  errors=$(sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p;s/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$out/$name" | tail -n 1)
  # What a sanitizer found before its time was over counts.
  if [ -z "$errors" ]; then errors=$(grep -cE '^=+ +(Error|Invalid|Uninitialized|Race|Barrier|Misaligned|Unused)' "$out/$name"); fi
  # `timeout` gives 124 where it ended the program, and 137 where it had to kill it; so does whoever else kills it, and earlier.
  local late=0
  if [ $code -eq 124 ] || { [ $code -eq 137 ] && [ $((SECONDS - begin)) -ge "$limit" ]; }; then late=1; fi
  if grep -q '^\[  FAILED  \]' "$out/$name" || [ "$errors" -gt 0 ]; then
    verdict=FAILED
  elif [ $late -eq 1 ] && [ "$name" != cuda_tests ] && [ "$passed" -gt 0 ] && [ "$skipped" -eq 0 ]; then
    verdict="clean until its time was over"
  elif [ $late -eq 1 ]; then
    verdict="FAILED: not over after $limit s"
  elif [ $code -eq 137 ]; then
    verdict="FAILED: killed"
  elif [ $code -ne 0 ]; then
    verdict="FAILED, exit code $code"
  elif [ "$passed" -eq 0 ] || [ "$skipped" -gt 0 ]; then
    verdict="FAILED: skipped (is there a card?)"
  else
    verdict=ok
  fi
  if [[ $verdict == FAILED* ]]; then
    failed=1
    echo "== $name"
    grep -vE '^\[( RUN|       OK)' "$out/$name" | head -n 60
  fi
  rows+=("$(printf '| %-24s | %6s | %7s | %6s | %4s s | %s |' "$name" "$passed" "$skipped" "$errors" $((SECONDS - begin)) "$verdict")")
}

run cuda_tests 30 "$tests"
if [ -z "$sanitizer" ]; then
  echo "no compute-sanitizer in PATH or /usr/local/cuda/bin: the tests alone were run" >&2
else
  for tool in memcheck racecheck initcheck synccheck; do
    # Tests ask for devices and memory that are not there: that a call says so is no fault.
    check=("$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 1)
    # How kernels of NVIDIA's libraries use their own shared memory is theirs to check, and takes most of the time. What they are given to
    # read and write is ours, and initcheck must see all that is written.
    case $tool in racecheck | synccheck) check+=(--kernel-name kernel_substring=fusionllm) ;; esac
    run "$tool-kernels" 12 "${check[@]}" "$tests" --gtest_filter="$short"
    run "$tool-training" 5 "${check[@]}" "$tests" --gtest_filter="$training"
  done
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
echo "| what                     | passed | skipped | errors |   time | |"
echo "|---|---|---|---|---|---|"
printf '%s\n' "${rows[@]}"
exit $failed
