#!/bin/bash
# build-go-program.sh FOLDER PACKAGE: builds one program from its own sources, pinned by the Go module in FOLDER or in that folder, and prints its
# path. A second call finds it by a hash of the module and of what the folder has in Go, and prints at once.
#   FUSIONLLM_CACHE  where it is kept; ${XDG_CACHE_HOME:-$HOME/.cache}/fusionllm when unset
# Needs Go 1.21 or newer (it fetches the release that the module asks for by itself). Installs nothing.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: build-go-program.sh FOLDER PACKAGE" >&2; exit 2; }
cd "$1"
package=$2
name=$(basename "$package")
cache=${FUSIONLLM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fusionllm}/$(basename "$PWD")
hash=$(find . -name "*.go" -print0 | sort -z | xargs -0 cat go.mod go.sum | sha256sum | cut -c1-16)
program=$cache/$hash/$name
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if [ ! -x "$program" ]; then
  go=
  for candidate in "$(command -v go || true)" /usr/local/go/bin/go; do
    if [ -z "$go" ] && [ -x "$candidate" ]; then go=$candidate; fi
  done
  [ -n "$go" ] || { echo "$0: there is no Go compiler" >&2; exit 1; }
  echo "building $name" >&2
  CGO_ENABLED=0 GOFLAGS='-buildvcs=false -mod=readonly -trimpath' nice -n 19 "$go" build -p "${JOBS:-2}" -ldflags="-s -w" \
    -o "$cache/$hash.building" "$package" >&2
  mkdir -p "$cache/$hash"
  mv "$cache/$hash.building" "$program"
fi
echo "$program"
