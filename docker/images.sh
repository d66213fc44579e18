#!/bin/bash
# images.sh [NAME...]: builds the images scheduler, broker, executor and operator, or those named (also executor-cuda), with podman, buildah or docker, whichever
# is there, and leaves an archive of each in build/images/NAME.tar, as `ctr images import`, `kind load image-archive` and `docker load` take it.
#   PROGRAMS      source (default): compile inside the build, from this checkout; prebuilt: take build/bin (and build-cuda/bin) as it is
#   IMAGE_PREFIX  default localhost/fusionllm: images are IMAGE_PREFIX/NAME:VERSION
#   LOCAL_BASE    1: where no registry can be reached, make the base image from Debian's packages with mmdebstrap, under the upstream name
#   JOBS          compilers at a time, for PROGRAMS=source
# Fails where the operator's archive has more than 27,000,000 bytes: 30 MB is what it may have, and a tenth of that is room. Where no libcurl could be
# linked into it (tools/configure-images.sh) it has that room no more.
set -euo pipefail
cd "$(dirname "$0")/.."
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(scheduler broker executor operator)
programs=${PROGRAMS:-source}
prefix=${IMAGE_PREFIX:-localhost/fusionllm}
version=$(sed -n 's/^project(fusionllm VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
base=docker.io/library/debian:bookworm-slim
operator_bytes_max=27000000
operator_bytes_max_with_shared_curl=30000000

die() {
  echo "images.sh: $*" >&2
  exit 1
}
case $programs in
  source | prebuilt) ;;
  *) die "PROGRAMS is source or prebuilt, not '$programs'" ;;
esac
builder=
for candidate in podman buildah docker; do
  # docker may be the client alone.
  if [ -z "$builder" ] && command -v $candidate >/dev/null && { [ $candidate != docker ] || docker version >/dev/null 2>&1; }; then builder=$candidate; fi
done
[ -n "$builder" ] || die "none of podman, buildah and docker is here: tools/install-deps.sh images installs buildah"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# By the name of a file in one of its layers, which are not compressed; a program itself knows that library by a shorter one.
holds_shared_curl() { grep --quiet --text --fixed-strings x86_64-linux-gnu/libcurl.so "$1"; }

# The base once, kept as a tar file; found by the builder under the upstream name, so that the Dockerfile is the same everywhere.
make_local_base() {
  local cache=${FUSIONLLM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fusionllm}/images tar
  tar=$cache/debian-bookworm-minbase.tar
  mkdir -p "$cache"
  if [ ! -f "$tar" ]; then
    command -v mmdebstrap >/dev/null || die "LOCAL_BASE=1 needs mmdebstrap: tools/install-deps.sh images"
    mmdebstrap --variant=minbase --include=ca-certificates --format=tar bookworm "$tar.part" && mv "$tar.part" "$tar"
  fi
  case $builder in
    podman | docker) $builder image inspect "$base" >/dev/null 2>&1 || $builder import "$tar" "$base" >/dev/null ;;
    buildah)
      if ! buildah inspect --type image "$base" >/dev/null 2>&1; then
        local container
        container=$(buildah from scratch)
        buildah add --quiet "$container" "$tar" / >/dev/null
        buildah commit --quiet --rm "$container" "$base" >/dev/null
      fi
      ;;
  esac
}

context=$PWD
if [ "$programs" = prebuilt ]; then
  context=$scratch/context
  mkdir -p "$context/prebuilt"
  for name in "${names[@]}"; do
    if [ "$name" = executor-cuda ]; then
      [ -x build-cuda/bin/fusion-executor ] || die "build-cuda/bin/fusion-executor is not there: make cuda"
      mapfile -t libraries < <(docker/cuda_libraries.sh "$(tools/install-cuda.sh)")
      docker/collect.sh build-cuda/bin/fusion-executor "$context/prebuilt/$name" "${libraries[@]}"
      continue
    fi
    [ -x "build/bin/fusion-$name" ] || die "build/bin/fusion-$name is not there: make image-programs"
    docker/collect.sh "build/bin/fusion-$name" "$context/prebuilt/$name"
  done
fi
options=(--file docker/Dockerfile --build-arg "PROGRAMS=$programs" --build-arg "JOBS=${JOBS:-2}")
if [ "${LOCAL_BASE:-0}" = 1 ] && [ "$programs" = source ]; then
  make_local_base
  [ $builder = docker ] || options+=(--pull-never)
fi
# Layers are kept, or each target would compile everything again; podman and docker do so by default.
case $builder in
  podman) build=(podman build --network host) ;;
  buildah) build=(buildah build --network host --layers --force-rm) ;;
  docker) build=(docker build) ;;
esac

mkdir -p build/images
for name in "${names[@]}"; do
  image=$prefix/$name:$version
  "${build[@]}" "${options[@]}" --target "$name" --tag "$image" "$context" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; die "$image was not built"; }
  rm -f "build/images/$name.tar"
  case $builder in
    podman) podman save --quiet --output "build/images/$name.tar" "$image" ;;
    buildah) buildah push --quiet "$image" "docker-archive:build/images/$name.tar:$image" ;;
    docker) docker save --output "build/images/$name.tar" "$image" ;;
  esac
  bytes=$(stat -c %s "build/images/$name.tar")
  echo "$image: $(numfmt --to=si "$bytes") in build/images/$name.tar, $(gzip -c "build/images/$name.tar" | wc -c | numfmt --to=si) compressed"
  bytes_max=$operator_bytes_max
  if [ "$name" != executor-cuda ] && holds_shared_curl "build/images/$name.tar"; then
    echo "images.sh: $image holds the shared libcurl and all that loads, 11 MB: make image-programs links it into the programs" >&2
    bytes_max=$operator_bytes_max_with_shared_curl
  fi
  if [ "$name" = operator ] && [ "$bytes" -gt $bytes_max ]; then die "$image has $bytes bytes, and is to have $bytes_max at most"; fi
done
