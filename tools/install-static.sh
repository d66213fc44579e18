#!/bin/bash
# Makes static libraries of what the portable programs (cmake/Portable.cmake) need and Debian packages as shared libraries alone: Highway,
# prometheus-cpp and an HTTP-only libcurl, from Debian's own sources. They belong to the headers of the installed packages, so their versions are
# those. Two minutes, 20 MB. Prints the folder, which configure.sh passes to CMake. Does nothing, quickly, when it is there.
# FUSIONLLM_STATIC_HOME: another folder than ~/.cache/fusionllm/static.
set -euo pipefail
home=${FUSIONLLM_STATIC_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/fusionllm/static}

# Source package, and the installed package whose headers are compiled against.
packages=(highway=libhwy-dev prometheus-cpp=prometheus-cpp-dev curl=libcurl4-openssl-dev)
wanted=()
for package in "${packages[@]}"; do
  version=$(dpkg-query --show --showformat '${source:Version}' "${package#*=}")
  wanted+=("${package%=*}=$version")
done

# Written last, so that what is half there is made anew. Other versions than before: likewise.
stamp=$home/complete
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "${wanted[*]}" ]; then
  echo "$home"
  exit 0
fi
echo "Making static libraries in $home (${wanted[*]}) ..." >&2
rm -rf "$home"
mkdir -p "$home/lib"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log
quietly() { "$@" >"$log" 2>&1 || { cat "$log" >&2; echo "$0: $* failed" >&2; exit 1; }; }

# Sources from where the machine has its packages: its lists need not name them, and stay as they are. No root is needed.
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/source"
. /etc/os-release
apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | sort -u |
  awk -v release="$VERSION_CODENAME" -v key=/usr/share/keyrings/debian-archive-keyring.gpg \
    '$3 == "main" && $2 ~ "^" release "(-security|-updates)?$" {print "deb-src [signed-by=" key "]", $1, $2, $3}' >"$work/sources.list"
apt=(apt-get -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache"
     -o APT::Sandbox::User=root)
quietly "${apt[@]}" update
cd "$work/source"
quietly "${apt[@]}" source "${wanted[@]}"

build() {  # build PACKAGE TARGET ARCHIVE CMAKE_ARGUMENT...
  local package=$1 target=$2 archive=$3
  shift 3
  quietly cmake -S "$(echo "$work/source/$package"-*/)" -B "$work/$package" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_TESTING=OFF "$@"
  quietly cmake --build "$work/$package" -j "${JOBS:-2}" --target "$target"
  cp "$(find "$work/$package" -name "$archive" -print -quit)" "$home/lib/"
}
build highway hwy libhwy.a -DHWY_ENABLE_CONTRIB=OFF -DHWY_ENABLE_EXAMPLES=OFF
build prometheus-cpp core libprometheus-cpp-core.a -DENABLE_PUSH=OFF -DENABLE_PULL=OFF -DENABLE_COMPRESSION=OFF -DENABLE_TESTING=OFF \
  -DUSE_THIRDPARTY_LIBRARIES=OFF -DGENERATE_PKGCONFIG=OFF
# What object stores and API servers are spoken to with: HTTP and TLS, without Kerberos, SSH, LDAP and the rest of which there is no archive.
build curl libcurl libcurl.a -DBUILD_CURL_EXE=OFF -DHTTP_ONLY=ON -DCURL_USE_OPENSSL=ON -DCURL_ZLIB=ON -DCURL_BROTLI=OFF -DCURL_ZSTD=OFF -DUSE_NGHTTP2=OFF \
  -DUSE_LIBIDN2=OFF -DCURL_USE_LIBPSL=OFF -DCURL_USE_LIBSSH2=OFF -DCURL_USE_GSSAPI=OFF -DCURL_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
echo "${wanted[*]}" >"$stamp"
echo "$home"
