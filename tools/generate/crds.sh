#!/bin/bash
# crds/*.yaml, their copies in the charts and docs/reference/kubernetes-reference.md, from the tables of lib/job and lib/kubeapi. Usage: crds.sh FOLDER
# (needs a configured build/).
set -euo pipefail
cd "$(dirname "$0")/../.."
cmake --build build -j "${JOBS:-2}" --target kubeapi_generate >/dev/null
build/tools/kubeapi_generate "$1"
# The charts' own copies: helm reads nothing outside of a chart's folder.
for chart in fusionllm fusion-crds; do
  mkdir -p "$1/helm/$chart/files/crds"
  cp "$1"/crds/fusionllm.io_*.yaml "$1/helm/$chart/files/crds/"
done
