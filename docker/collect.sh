#!/bin/bash
# collect.sh PROGRAM FOLDER [LIBRARY...]: makes FOLDER the root of an image that holds this program, the shared libraries it loads, their
# licences, and the few files that glibc asks for; also the libraries named, which the program opens by itself. Run it where the program was
# built: the libraries are this machine's.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: collect.sh PROGRAM FOLDER [LIBRARY...]" >&2; exit 2; }
program=$1 root=$2
opened=("${@:3}")

rm -rf "$root"
mkdir -p "$root"/{etc,tmp,usr/bin,usr/lib,usr/share/doc}
chmod 1777 "$root/tmp"
# One place for libraries, as Debian itself has it.
ln -s usr/lib "$root/lib"
ln -s usr/bin "$root/bin"
mkdir "$root/usr/lib64"
ln -s usr/lib64 "$root/lib64"

# What it was linked with, and asks for, by name.
symbols=$(nm "$program")
[ -n "$symbols" ] || { echo "collect.sh: $program has no symbols: whose code is in it cannot be told" >&2; exit 1; }
strip -o "$root/usr/bin/$(basename "$program")" "$program"
listed=$(ldd "$program")
if grep -q 'not found' <<<"$listed"; then
  grep 'not found' <<<"$listed" >&2
  exit 1
fi
# Lines are "NAME => PATH (ADDRESS)", and "PATH (ADDRESS)" for the loader; the kernel's own library has no path.
mapfile -t libraries < <(awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' <<<"$listed")
for library in "${libraries[@]}"; do
  # /lib/... and /usr/lib/... name the same file; the loader's path is fixed in every program.
  place=$root/usr/${library#/}
  place=${place/usr\/usr/usr}
  mkdir -p "$(dirname "$place")"
  cp -L "$library" "$place"
done
# Where the loader looks without being told. Of a library from a Python wheel the wheel's licence goes along.
for library in "${opened[@]}"; do
  cp -L "$library" "$root/usr/lib/x86_64-linux-gnu/"
  library=$(realpath "$library")
  site=$(realpath "$(dirname "$library")/../../..")
  for record in "$site"/*.dist-info/RECORD; do
    if [ -r "$record" ] && grep -q "^${library#"$site"/}," "$record"; then
      wheel=$(dirname "$record")
      find "$wheel" -type f -iname 'license*' -exec install -D -m 644 {} "$root/usr/share/doc/$(basename "$wheel" .dist-info)/copyright" \;
    fi
  done
done
# As Debian has its longer documents: half a megabyte less in each image.
add_licence() {
  mkdir "$root/usr/share/doc/$1"
  gzip -9n <"/usr/share/doc/$1/copyright" >"$root/usr/share/doc/$1/copyright.gz"
}
# dpkg knows a file by the path it was shipped under, with or without /usr: of each pair it complains about one.
mapfile -t shipped < <(realpath "${libraries[@]}" | sed -n 'p; s,^/usr,,p')
{ dpkg -S "${shipped[@]}" 2>/dev/null || true; } | cut -d: -f1 | sort -u | while read -r package; do
  add_licence "$package"
done
[ -n "$(ls "$root/usr/share/doc")" ] || { echo "collect.sh: dpkg knows none of the libraries of $program" >&2; exit 1; }
# Of what is in the program itself, from archives and headers, no file tells: a symbol does that is defined there.
while read -r symbol package; do
  if grep -qE " [tTwWuVv] $symbol" <<<"$symbols"; then add_licence "$package"; fi
done <<'END'
curl_easy_init$ libcurl4-openssl-dev
nghttp2_session_mem_recv$ libnghttp2-dev
_ZN[A-Z]*8nlohmann nlohmann-json3-dev
_ZN[A-Z]*3CLI3App libcli11-dev
END

# By which libcurl believes https endpoints of object stores; Kubernetes' own come from kubeconfigs.
certificates=/etc/ssl/certs/ca-certificates.crt
if grep -q ' curl_easy_init' <<<"$symbols" && [ -r "$certificates" ]; then
  mkdir -p "$root/etc/ssl/certs"
  cp -L "$certificates" "$root$certificates"
fi

echo 'nonroot:x:65532:65532:nonroot:/tmp:/usr/sbin/nologin' >"$root/etc/passwd"
echo 'nonroot:x:65532:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
