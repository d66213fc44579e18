#!/bin/bash
# install-static.sh [NAME...]: makes static libraries of what programs without these shared ones need and Debian has no usable archive of, from
# Debian's own sources: highway, prometheus-cpp and curl (HTTP alone), or those named. The portable programs (cmake/Portable.cmake) take all, those of images
# curl (cmake/StaticCurl.cmake). They belong to the headers of the installed packages, so their versions are those. Two minutes and 20 MB,
# curl alone one. Prints the folder, which CMake is to be told. What is there already is left as it is, quickly.
# Needs the packages of the group static (packages.txt).
# FUSIONLLM_STATIC_HOME: another folder than ~/.cache/fusionllm/static.
set -euo pipefail
home=${FUSIONLLM_STATIC_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/fusionllm/static}
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(highway prometheus-cpp curl)

# The installed package whose headers a source package is compiled against.
declare -A headers=([highway]=libhwy-dev [prometheus-cpp]=prometheus-cpp-dev [curl]=libcurl4-openssl-dev)
recipe=$(sha256sum <"$0" | cut -c 1-12)
declare -A stamps
wanted=()
for name in "${names[@]}"; do
  [ -n "${headers[$name]:-}" ] || { echo "usage: $0 [highway|prometheus-cpp|curl]..." >&2; exit 2; }
  version=$(dpkg-query --show --showformat '${source:Version}' "${headers[$name]}")
  # Another version, or made in another way than by this script: made anew. Written last, so that what is half there is, too.
  stamps[$name]="$name=$version made by $recipe"
  if [ ! -f "$home/$name.stamp" ] || [ "$(cat "$home/$name.stamp")" != "${stamps[$name]}" ]; then wanted+=("$name=$version"); fi
done
# Of which that of curl needs the archive whenever a program is linked.
[[ " ${names[*]} " != *" curl "* ]] || dpkg-query --show libnghttp2-dev >/dev/null
if [ ${#wanted[@]} = 0 ]; then
  echo "$home"
  exit 0
fi
echo "Making static libraries in $home (${wanted[*]}) ..." >&2
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
  # At once: another build may be linking with the one that was there.
  cp "$(find "$work/$package" -name "$archive" -print -quit)" "$home/lib/$archive.part"
  mv "$home/lib/$archive.part" "$home/lib/$archive"
}
make_highway() { build highway hwy libhwy.a -DHWY_ENABLE_CONTRIB=OFF -DHWY_ENABLE_EXAMPLES=OFF; }
make_prometheus-cpp() {
  build prometheus-cpp core libprometheus-cpp-core.a -DENABLE_PUSH=OFF -DENABLE_PULL=OFF -DENABLE_COMPRESSION=OFF -DENABLE_TESTING=OFF \
    -DUSE_THIRDPARTY_LIBRARIES=OFF -DGENERATE_PKGCONFIG=OFF
}
# What object stores, API servers and the scheduler beside the operator are spoken to with: HTTP/1.1, HTTP/2 and TLS, without Kerberos, SSH, LDAP and the
# rest of which there is no archive. Certificates are looked for, and the code is hardened, as Debian does it.
make_curl() {
  local flags
  flags="$(dpkg-buildflags --get CPPFLAGS) $(DEB_CFLAGS_STRIP=-g dpkg-buildflags --get CFLAGS) -ffunction-sections -fdata-sections"
  build curl libcurl libcurl.a "-DCMAKE_C_FLAGS=$flags" -DBUILD_CURL_EXE=OFF -DHTTP_ONLY=ON -DCURL_USE_OPENSSL=ON -DCURL_ZLIB=ON -DUSE_NGHTTP2=ON -DCURL_BROTLI=OFF \
    -DCURL_ZSTD=OFF -DUSE_LIBIDN2=OFF -DCURL_USE_LIBPSL=OFF -DCURL_USE_LIBSSH2=OFF -DCURL_USE_GSSAPI=OFF -DCURL_CA_PATH=/etc/ssl/certs \
    -DCURL_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
  # What it does not find it leaves out.
  local feature features
  features=$(sed -n 's/^supported_features="\(.*\)"/ \1 /p' "$work/curl/libcurl.pc")
  for feature in SSL libz HTTP2 IPv6 AsynchDNS HTTPS-proxy; do
    [[ $features == *" $feature "* ]] || { echo "$0: curl was built without $feature (it has$features)" >&2; exit 1; }
  done
}
for package in "${wanted[@]}"; do
  name=${package%=*}
  rm -f "$home/$name.stamp"
  "make_$name"
  echo "${stamps[$name]}" >"$home/$name.stamp"
done
echo "$home"
