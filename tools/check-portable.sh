#!/bin/bash
# check-portable.sh FOLDER: prints the size of each program in it, and fails where one needs a shared library that is not glibc's own, or is
# larger than 64 MiB: programs are to stay small enough to be copied over a slow link.
set -euo pipefail
[ $# -eq 1 ] && [ -n "$1" ] || { echo "check-portable.sh: usage: check-portable.sh FOLDER" >&2; exit 2; }
folder=$1
[ -d "$folder" ] || { echo "check-portable.sh: $folder is no folder" >&2; exit 2; }
mib_max=64
allowed='^(libc|libm|libdl|libpthread|librt|ld-linux-x86-64)\.so\.[0-9]+$'
total=0
failed=0
for program in "$folder"/*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  if ! readelf --file-header "$program" >/dev/null 2>&1; then
    echo "$program: no program of this machine but a script or data, and does not belong here"
    failed=1
    continue
  fi
  bytes=$(stat -c %s "$program")
  total=$((total + bytes))
  needed=$(readelf --dynamic --wide "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  # Of all versioned symbols the newest: the glibc that it asks for.
  glibc=$(readelf --version-info --wide "$program" | grep -o 'GLIBC_[0-9.]*' | sort --version-sort | tail -n 1 || true)
  printf '%-24s %6.1f MiB  %s\n' "$(basename "$program")" "$(awk "BEGIN { print $bytes / 1048576 }")" "${glibc:-static}"
  if [ "$bytes" -gt $((mib_max << 20)) ]; then
    echo "$program: more than $mib_max MiB"
    failed=1
  fi
  if others=$(grep . <<<"$needed" | grep -Ev "$allowed"); then
    echo "$program: needs ${others//$'\n'/, }: give its archive to cmake/Portable.cmake"
    failed=1
  fi
done
[ "$total" -gt 0 ] || [ $failed -ne 0 ] || { echo "$folder: no programs" >&2; exit 1; }
printf '%-24s %6.1f MiB\n' together "$(awk "BEGIN { print $total / 1048576 }")"
exit $failed
