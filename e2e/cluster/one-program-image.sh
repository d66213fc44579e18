#!/bin/bash
# one-program-image.sh PROGRAM NAME ARCHIVE: a docker archive of an image that holds one static program, without a builder.
set -euo pipefail
[ $# -eq 3 ] || { echo "usage: one-program-image.sh PROGRAM NAME ARCHIVE" >&2; exit 2; }
program=$(realpath "$1") archive=$(realpath "$3")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
tar --create --file layer.tar --owner=0 --group=0 --mtime=@0 --mode=755 --transform='s,.*/,,' --absolute-names "$program"
digest=$(sha256sum layer.tar | cut -d' ' -f1)
architecture=$(dpkg --print-architecture)
cat >config.json <<CONFIG
{"architecture": "$architecture", "os": "linux", "config": {"Entrypoint": ["/$(basename "$program")"], "User": "65532:65532"},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$digest"]}}
CONFIG
config=$(sha256sum config.json | cut -d' ' -f1).json
mv config.json "$config"
echo "[{\"Config\": \"$config\", \"RepoTags\": [\"$2\"], \"Layers\": [\"layer.tar\"]}]" >manifest.json
tar --create --file "$archive" "$config" layer.tar manifest.json
