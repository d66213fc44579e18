#!/bin/bash
# Whether what a lock guards is used under it: clang's thread-safety analysis of the annotations of lib/base/mutex.h, and no other warning, on
# the C++ sources that tidy.sh --list names, of which those that see an annotated lock: that name one, or include a header that does. ALL=1: on
# all of those in the repository. CUDA's .cu files are left out, as is what has no compile command. Needs what check-syntax.sh needs;
# THREAD_SAFETY_SECONDS (default 300, with ALL=1 3600) bounds it as TIDY_SECONDS does tidy.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
all=${ALL:-}
limit_s=${THREAD_SAFETY_SECONDS:-$([ -n "$all" ] && echo 3600 || echo 300)}

names='lib/base/mutex\.h|ABSL_[A-Z_]*(GUARDED_BY|LOCKS_REQUIRED)\(|base::(Mutex|MutexLock|UniqueLock)'
headers=$(git grep -lE --untracked "$names" -- '*.h' || true)
see=$({
  git grep -lE --untracked "$names" -- '*.cc' || true
  [ -z "$headers" ] || git grep -lF --untracked -f <(sed 's|.*|#include "&"|' <<<"$headers") -- '*.cc' || true
} | sort -u)
sources=$see
[ -n "$all" ] || sources=$(comm -12 <(tools/tidy.sh --list | sort) <(echo "$see"))
if [ -z "$sources" ]; then
  echo "no changed source sees an annotated lock"
  exit 0
fi

# -w would switch the analysis off as well.
CXX=clang++-14 tools/check-syntax.sh "$limit_s" -Wno-everything -Werror=thread-safety <<<"$sources"
