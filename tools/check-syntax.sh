#!/bin/bash
# check-syntax.sh LIMIT_S FLAG... <SOURCES: what a compiler says of each of those C++ sources with these flags besides its own, each by itself,
# without the precompiled header and without the other sources of its batch. CXX names the compiler, else it is that of the build. Nothing is
# generated or linked. A source without a compile command is left out. Needs what tools/compile-commands.sh makes, and generated headers; runs
# JOBS (default 2) at a time, and says how many were read. Exit status 1: a source has errors, also where LIMIT_S seconds were over before its end.
set -euo pipefail
cd "$(dirname "$0")/.."
limit_s=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Of each source its first command, a line `file<TAB>command`.
awk -v root="$PWD/" '
  /^  "command": / { command = $0; sub(/^  "command": "/, "", command); sub(/",$/, "", command) }
  /^  "file": / {
    file = $2; gsub(/[",]/, "", file)
    if (index(file, root) == 1 && !(file in seen)) { seen[file] = 1; print substr(file, length(root) + 1) "\t" command }
  }' build/sources/compile_commands.json |
  sed -E "s/\\\\([\"\\\\])/\1/g; s| -Winvalid-pch -include [^ ]*/cmake_pch\.hxx||${CXX:+; s|\t[^ ]+ |\t$CXX |}" | sort >"$work/commands"
sort | join -t $'\t' - "$work/commands" >"$work/chosen"
status=0
cut -f 2 "$work/chosen" | tr '\n' '\0' | timeout --kill-after=10 "$limit_s" xargs -0 -P "${JOBS:-2}" -I COMMAND \
  bash -c 'cd build && eval "$2 -fsyntax-only $1" || { touch "$0/failed"; exit 1; }' "$work" "$*" COMMAND || status=$?
[ ! -e "$work/failed" ] || exit 1
case $status in
  0) echo "$(wc -l <"$work/chosen") files" ;;
  124) echo "not all of $(wc -l <"$work/chosen") files were read, $limit_s s were over" ;;
  *) exit 1 ;;
esac
