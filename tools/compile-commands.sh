#!/bin/bash
# Makes build/sources/compile_commands.json, with a command for each source, which that of build/ lacks: there, sources are compiled in batches
# (CMAKE_UNITY_BUILD). Generated headers are those of build/.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/configure.sh release -B build/sources -DCMAKE_UNITY_BUILD=OFF
sed -i "s| -I$PWD/build/sources | -I$PWD/build/sources -I$PWD/build |" build/sources/compile_commands.json
