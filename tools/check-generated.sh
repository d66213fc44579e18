#!/bin/bash
# Regenerates every generated file into a temporary folder and compares it with the committed one.
# A generator is an executable tools/generate/*.sh that takes a folder and writes its files below it under their repository paths.
# With --write the files are written into the repository instead.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob
generators=(tools/generate/*.sh)
if [ ${#generators[@]} -eq 0 ]; then
  echo "no generators in tools/generate/"
  exit 0
fi
if [ "${1:-}" = --write ]; then
  for generator in "${generators[@]}"; do "$generator" "$PWD"; done
  exit 0
fi

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
status=0
for generator in "${generators[@]}"; do
  "$generator" "$fresh" || { echo "$generator: failed"; status=1; }
done
while IFS= read -r path; do
  if ! diff -u --label "committed $path" --label "generated $path" "$path" "$fresh/$path"; then
    echo "$path is stale: run tools/check-generated.sh --write and commit the result"
    status=1
  fi
done < <(cd "$fresh" && find . -type f -printf '%P\n' | sort)
exit $status
