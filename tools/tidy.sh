#!/bin/bash
# clang-tidy (.clang-tidy) on the C++ sources that differ from a base commit. Needs what tools/compile-commands.sh makes, and generated headers.
# The base: VERIFY_BASE if set; else where HEAD left origin/main; else (nothing there, or HEAD is origin/main) the commit before HEAD.
# A changed header is checked through the .cc file of its name and its test, or else through a source that includes it. TIDY_SECONDS
# (default 600) bounds the whole; files that it leaves unchecked are listed and are no failure: the bound keeps a huge change from eating a CI
# run. With --list it prints the sources it would check and ends.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-2}
limit_s=${TIDY_SECONDS:-600}

base=${VERIFY_BASE:-}
if [ -z "$base" ]; then
  base=$(git merge-base HEAD origin/main 2>/dev/null || true)
  if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
    base=$(git rev-parse --verify --quiet HEAD~1 || git hash-object -t tree /dev/null)
  fi
fi

changed=$(git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.h' && git ls-files --others --exclude-standard -- '*.cc' '*.h')
sources=$(while IFS= read -r file; do
  case $file in
    *.cc) echo "$file" ;;
    # `if`, not `&&`: a last header without a test would end the loop, and with it the script, with a failure of `[`.
    *.h)
      stand_ins=$(for source in "${file%.h}.cc" "${file%.h}_test.cc"; do if [ -f "$source" ]; then echo "$source"; fi; done)
      [ -n "$stand_ins" ] || stand_ins=$(git grep -l --max-count=1 --fixed-strings "#include \"$file\"" -- '*.cc' | head -n 1 || true)
      [ -z "$stand_ins" ] || echo "$stand_ins"
      ;;
  esac
done <<<"$changed" | sort -u)
known=$(sed -n 's|^  "file": "'"$PWD"'/\(.*\)".*|\1|p' build/sources/compile_commands.json | sort -u)
sources=$(comm -12 <(echo "$sources") <(echo "$known"))
if [ "${1:-}" = --list ]; then
  [ -z "$sources" ] || echo "$sources"
  exit 0
fi
if [ -z "$sources" ]; then
  echo "no C++ source differs from $base"
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "$(wc -l <<<"$sources") files differ from $base"
# The compiler's precompiled headers are nothing to clang.
sed 's| -Winvalid-pch -include [^ ]*/cmake_pch\.hxx||' build/sources/compile_commands.json >"$work/compile_commands.json"
# Each file leaves a mark when it is through; what has no mark was stopped by the time limit.
export work
status=0
timeout --kill-after=10 "$limit_s" xargs -P "$jobs" -I FILE bash -c '
  name=$(tr / _ <<<"$1")
  if clang-tidy-14 -p "$work" --quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-optimization-argument "$1" \
      >"$work/$name.out" 2>"$work/$name.err"; then
    touch "$work/$name.passed"
  else
    cat "$work/$name.out" "$work/$name.err"
    touch "$work/$name.failed"
  fi' _ FILE <<<"$sources" || status=$?
while IFS= read -r file; do
  name=$(tr / _ <<<"$file")
  if [ -e "$work/$name.failed" ]; then
    echo "clang-tidy: $file: failed"
  elif [ ! -e "$work/$name.passed" ]; then
    echo "clang-tidy: $file: not checked, $limit_s s were over"
  fi
done <<<"$sources"
if compgen -G "$work/*.failed" >/dev/null; then
  exit 1
fi
# 124: the time limit. Anything else is a failure of the machinery itself.
[ "$status" -eq 0 ] || [ "$status" -eq 124 ]
