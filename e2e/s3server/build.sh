#!/bin/bash
# Builds versitygw, an S3 server over a folder, from its own sources, the Go module beside this file, and prints the path of the program. Cold:
# eight minutes on a core that others use, too; a second call finds it by a hash of the module, and prints at once.
#   FUSIONLLM_CACHE  where it is kept; ${XDG_CACHE_HOME:-$HOME/.cache}/fusionllm when unset
# Needs Go 1.21 or newer (it fetches the release that the module asks for by itself). Installs nothing.
set -euo pipefail
cd "$(dirname "$0")"
cache=${FUSIONLLM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fusionllm}/s3server
hash=$(cat go.mod go.sum | sha256sum | cut -c1-16)
program=$cache/$hash/versitygw
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if [ ! -x "$program" ]; then
  go=
  for candidate in "$(command -v go || true)" /usr/local/go/bin/go; do
    if [ -z "$go" ] && [ -x "$candidate" ]; then go=$candidate; fi
  done
  [ -n "$go" ] || { echo "$0: there is no Go compiler" >&2; exit 1; }
  echo "building versitygw" >&2
  # Its gateway to Azure is part of it: most of what is compiled.
  CGO_ENABLED=0 GOFLAGS='-buildvcs=false -mod=readonly -trimpath' nice -n 19 "$go" build -p "${JOBS:-2}" -ldflags="-s -w" \
    -o "$cache/$hash.building" github.com/versity/versitygw/cmd/versitygw >&2
  mkdir -p "$cache/$hash"
  mv "$cache/$hash.building" "$program"
fi
echo "$program"
