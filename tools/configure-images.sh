#!/bin/bash
# configure-images.sh PRESET: configures it for programs that go into images: with a libcurl of HTTP alone in them (cmake/StaticCurl.cmake), which
# makes each image that has one 11 MB smaller. The build folder stays so, whoever configures it later.
# Where that libcurl cannot be made (no sources, no network, another system than Debian) it says so and goes on with the shared one: those programs
# do the same, and who brings up a cluster wants them more than small ones.
# SKIP_DEPS: installs no package.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || { echo "usage: configure-images.sh PRESET" >&2; exit 2; }
if { [ -n "${SKIP_DEPS:-}" ] || tools/install-deps.sh static; } && home=$(timeout 1800 tools/install-static.sh curl); then
  exec tools/configure.sh "$1" -DFUSIONLLM_STATIC_CURL=ON "-DFUSIONLLM_STATIC_ROOT=$home"
fi
echo "configure-images.sh: no static libcurl can be made here: programs load the shared one, and images are 11 MB larger" >&2
exec tools/configure.sh "$1" -DFUSIONLLM_STATIC_CURL=OFF
