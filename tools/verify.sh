#!/bin/bash
# The checks of `make verify`, cheapest first; every check runs, the failures are listed at the end. Needs a configured build/.
# JOBS: processes at a time. VERIFY_BASE: the commit that clang-tidy compares with (tidy.sh says what it does without).
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-2}
failed=()

check() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  if "$@"; then
    echo "-- $name: ok, $((SECONDS - start)) s"
  else
    echo "-- $name: FAILED, $((SECONDS - start)) s"
    failed+=("$name")
  fi
}

format() { git ls-files -z '*.h' '*.cc' | xargs -0 -r clang-format-14 --dry-run -Werror; }

shell_syntax() {
  local status=0 file
  while IFS= read -r file; do
    bash -n "$file" || status=1
    case $file in
      *_lib.sh) ;;
      *) [ -x "$file" ] || { echo "$file: not executable"; status=1; } ;;
    esac
  done < <(git ls-files '*.sh' .ci/run)
  return $status
}

repository_lint() {
  cmake --build build -j "$jobs" --target tidy_tests &&
    FUSIONLLM_SOURCE_DIR=$PWD build/tests/tidy_tests --test_file=tests/tidy/repository_lint_test.cc --gtest_brief=1
}

header_sets() { cmake --build build -j "$jobs" --target all_verify_interface_header_sets; }

check "clang-format" format
check "shell syntax" shell_syntax
check "repository lint" repository_lint
check "self-contained headers" header_sets
check "generated files" tools/check-generated.sh
check "a compile command of each source" tools/compile-commands.sh
check "changed files under sanitizers" tools/check-sanitizers.sh
check "locks of changed files" tools/check-thread-safety.sh
check "clang-tidy on changed files" tools/tidy.sh

if [ ${#failed[@]} -gt 0 ]; then
  printf 'verify: failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "verify: all checks passed"
