#!/bin/bash
# Runs every benchmark program in a folder, one after the other, below a line that says where and when: bench.sh FOLDER [ARGUMENTS...]
set -euo pipefail
folder=$1
shift
shopt -s nullglob
programs=("$folder"/*_bench)
if [ ${#programs[@]} -eq 0 ]; then
  echo "$0: no benchmark in $folder" >&2
  exit 1
fi
echo "# $(date -u +%Y-%m-%dT%H:%MZ), $(awk -F ': ' '/^model name/ { print $2; exit }' /proc/cpuinfo), $(nproc) cores, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
for program in "${programs[@]}"; do
  echo "## ${program##*/}"
  "$program" "$@"
done
