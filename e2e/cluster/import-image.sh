#!/bin/bash
# import-image.sh CLUSTER ARCHIVE...: puts images (docker or OCI archives) where the cluster's kubelet finds them, so that nothing is pulled.
set -euo pipefail
# shellcheck source=names_lib.sh
. "$(dirname "$0")/names_lib.sh"
[ $# -ge 2 ] || die "usage: import-image.sh CLUSTER ARCHIVE..."
check_exists "$1"
for archive in "${@:2}"; do
  [ -r "$archive" ] || die "$archive: no such file"
  ctr --address "$state_root/$1/run/containerd.sock" --namespace k8s.io images import --all-platforms --no-unpack "$archive" >/dev/null
done
