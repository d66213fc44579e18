#!/bin/bash
# configure.sh PRESET [CMAKE_ARGUMENT...]: configures one preset of CMakePresets.json; prints CMake's output only when it fails.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cmake --preset "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
