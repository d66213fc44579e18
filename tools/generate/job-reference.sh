#!/bin/bash
# docs/reference/job-reference.md from the field tables of lib/job. Usage: job-reference.sh FOLDER (needs a configured build/).
set -euo pipefail
cd "$(dirname "$0")/../.."
cmake --build build -j "${JOBS:-2}" --target job_reference >/dev/null
mkdir -p "$1/docs/reference"
build/tools/job_reference >"$1/docs/reference/job-reference.md"
