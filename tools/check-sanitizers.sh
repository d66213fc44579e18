#!/bin/bash
# Whether the C++ sources that tidy.sh --list names are C++ under AddressSanitizer and UBSan, too, which take some constant expressions for none
# (gcc 12), and each by itself, without the other sources of its batch, which may bring an include that it lacks. Nothing is linked: that is for
# `make asan`. Needs what check-syntax.sh needs; SANITIZERS_SECONDS (default 300) bounds it as TIDY_SECONDS does tidy.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
sources=$(tools/tidy.sh --list)
if [ -z "$sources" ]; then
  echo "no C++ source has changed"
  exit 0
fi
tools/check-syntax.sh "${SANITIZERS_SECONDS:-300}" -fsanitize=address,undefined -fno-sanitize-recover=all <<<"$sources"
