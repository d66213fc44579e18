#!/bin/bash
# pack-portable.sh BUILD: checks the programs of BUILD/bin (check-portable.sh) and packs them, and the scripts of tools/perf/gpu, into
# BUILD/portable.tar.xz: what is carried to a machine with a card. Programs are to stay small: 64 MiB packed; more fails.
set -euo pipefail
[ $# -eq 1 ] && [ -n "$1" ] || { echo "pack-portable.sh: usage: pack-portable.sh BUILD" >&2; exit 2; }
[ -d "$1/bin" ] || { echo "pack-portable.sh: there is no folder $1/bin: make cuda-portable makes it" >&2; exit 2; }
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
mib_max=64
tools/check-portable.sh "$build/bin"
archive=$build/portable.tar.xz
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain 2>/dev/null)" ] || commit=$commit+
echo "$commit" >"$build/COMMIT"  # there is no git where the scripts write it into their tables
XZ_OPT="-3 -T0" tar --create --xz --file "$archive" --transform 's,^,portable/,' -C "$build" bin COMMIT -C "$PWD" tools/perf/gpu
bytes=$(stat -c %s "$archive")
printf '%s  %.1f MiB\n' "$archive" "$(awk "BEGIN { print $bytes / 1048576 }")"
[ "$bytes" -le $((mib_max << 20)) ] || { echo "$archive: more than $mib_max MiB" >&2; exit 1; }
