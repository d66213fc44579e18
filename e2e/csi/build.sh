#!/bin/bash
# Builds the CSI driver of csi-folders/ and csi-provisioner (../build-go-program.sh), and prints the paths of both, a line each.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$here/../build-go-program.sh" "$here" ./csi-folders
"$here/../build-go-program.sh" "$here" github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner
