#!/bin/bash
# Whether the C++ sources that tidy.sh --list names are C++ under AddressSanitizer and UBSan, too, which take some constant expressions for none
# (gcc 12), and each by itself, without the precompiled header and without the other sources of its batch, which may bring an include that it
# lacks. Nothing is generated or linked: that is for `make asan`. Needs what tools/compile-commands.sh makes, and generated headers;
# SANITIZERS_SECONDS (default 300) bounds it as TIDY_SECONDS does tidy.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-2}
limit_s=${SANITIZERS_SECONDS:-300}

sources=$(tools/tidy.sh --list)
if [ -z "$sources" ]; then
  echo "no C++ source has changed"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Of each source its first command, a line `file<TAB>command`.
awk -v root="$PWD/" '
  /^  "command": / { command = $0; sub(/^  "command": "/, "", command); sub(/",$/, "", command) }
  /^  "file": / {
    file = $2; gsub(/[",]/, "", file)
    if (index(file, root) == 1 && !(file in seen)) { seen[file] = 1; print substr(file, length(root) + 1) "\t" command }
  }' build/sources/compile_commands.json | sed -E 's/\\(["\\])/\1/g; s| -Winvalid-pch -include [^ ]*/cmake_pch\.hxx||' | sort >"$work/commands"
join -t $'\t' <(echo "$sources" | sort) "$work/commands" >"$work/chosen"
status=0
cut -f 2 "$work/chosen" | tr '\n' '\0' | timeout --kill-after=10 "$limit_s" xargs -0 -P "$jobs" -I COMMAND \
  bash -c 'cd build && eval "$1 -fsyntax-only -fsanitize=address,undefined -fno-sanitize-recover=all"' _ COMMAND || status=$?
case $status in
  0) echo "$(wc -l <"$work/chosen") files" ;;
  124) echo "not all of $(wc -l <"$work/chosen") files were read, $limit_s s were over" ;;
  *) exit 1 ;;
esac
