#!/bin/bash
# Whether what a lock guards is used under it: clang's thread-safety analysis of the annotations of lib/base/mutex.h, and no other warning, on
# the C++ sources that tidy.sh --list names, of which those that see an annotated lock: that name one, or include a header that does. ALL=1: on
# all of those in the repository. CUDA's .cu files are left out, as is what has no compile command. Needs what tools/compile-commands.sh makes,
# and generated headers; THREAD_SAFETY_SECONDS (default 300, with ALL=1 3600) bounds it as TIDY_SECONDS does tidy.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-2}
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

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Of each source its first command, a line `file<TAB>command`, for clang.
awk -v root="$PWD/" '
  /^  "command": / { command = $0; sub(/^  "command": "/, "", command); sub(/",$/, "", command) }
  /^  "file": / {
    file = $2; gsub(/[",]/, "", file)
    if (index(file, root) == 1 && !(file in seen)) { seen[file] = 1; print substr(file, length(root) + 1) "\t" command }
  }' build/sources/compile_commands.json |
  sed -E 's/\\(["\\])/\1/g; s| -Winvalid-pch -include [^ ]*/cmake_pch\.hxx||; s|\t[^ ]+ |\tclang++-14 |' | sort >"$work/commands"
join -t $'\t' <(echo "$sources") "$work/commands" >"$work/chosen"
# -w would switch the analysis off as well.
status=0
cut -f 2 "$work/chosen" | tr '\n' '\0' | timeout --kill-after=10 "$limit_s" xargs -0 -P "$jobs" -I COMMAND \
  bash -c 'cd build && eval "$1 -fsyntax-only -Wno-everything -Werror=thread-safety" || { touch "$0/failed"; exit 1; }' "$work" COMMAND || status=$?
[ ! -e "$work/failed" ] || exit 1
case $status in
  0) echo "$(wc -l <"$work/chosen") files" ;;
  124) echo "not all of $(wc -l <"$work/chosen") files were read, $limit_s s were over" ;;
  *) exit 1 ;;
esac
