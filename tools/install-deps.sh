#!/bin/bash
# Installs the packages of the named groups (build, test, verify, fuzz, e2e, images, cuda, static; see packages.txt) that are missing, after saying which.
# Does nothing, quickly and without the network, when all are there.
set -euo pipefail
cd "$(dirname "$0")"

if [ $# -eq 0 ]; then
  echo "usage: $0 GROUP...   (groups: build test verify fuzz e2e images cuda static)" >&2
  exit 2
fi
for group in "$@"; do
  case $group in
    build | test | verify | fuzz | e2e | images | cuda | static) ;;
    *) echo "$0: no such group of packages: $group" >&2; exit 2 ;;
  esac
done
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "This is not a Debian-like system (no dpkg-query or apt-get). Install the equivalents of tools/packages.txt by hand, then run make with SKIP_DEPS=1." >&2
  exit 1
fi

wanted=$(awk -v groups=" $* " '/^[^#]/ { group = $2; sub(/[?]$/, "", group); if (index(groups, " " group " ")) print $1 }' packages.txt)
# shellcheck disable=SC2086  # package names hold no spaces
installed=$(dpkg-query --show --showformat '${Package} ${db:Status-Status}\n' $wanted 2>/dev/null | awk '$2 == "installed" { print $1 }' || true)
missing=$(comm -23 <(sort -u <<<"$wanted") <(sort -u <<<"$installed"))
# Those without which it goes as well, and of which apt knows nothing: nothing to install, now or at the next call.
optional=$(awk '/^[^#]/ && $2 ~ /[?]$/ { print $1 }' packages.txt)
without_unknown() {
  for package in $missing; do
    if ! grep -qx "$package" <<<"$optional" || apt-cache show "$package" >/dev/null 2>&1; then echo "$package"; fi
  done
}
if [ -z "$(without_unknown)" ]; then
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "These packages are missing, and installing them takes root or sudo; as root run: apt-get install --no-install-recommends" $missing >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "Missing packages, to be installed with apt-get${as_root:+ through sudo} (and what they depend on):"
for package in $missing; do
  echo "  $(awk -v package="$package" '$1 == package { printf "%-24s", $1; for (i = 3; i <= NF; ++i) printf "%s ", $i }' packages.txt)"
done
log=$(mktemp)
policy=
cleanup() {
  rm -f "$log"
  if [ -n "$policy" ]; then "${as_root[@]}" rm -f "$policy"; fi
}
trap cleanup EXIT
quietly() {
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "$@" >"$log" 2>&1; then
    cat "$log" >&2
    echo "apt-get $* failed" >&2
    exit 1
  fi
}
quietly update
missing=$(without_unknown)
# Of these the programs are wanted, and not the services that Debian starts and enables with them.
programs_only=$(comm -12 <(sort -u <<<"$missing") <(printf '%s\n' docker-registry prometheus))
others=$(comm -23 <(sort -u <<<"$missing") <(sort -u <<<"$programs_only"))
# shellcheck disable=SC2086
if [ -n "$others" ]; then quietly install -y --no-install-recommends $others; fi
if [ -n "$programs_only" ]; then
  # What is asked before any service is started, with and without systemd; the administrator's own stays.
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    policy=/usr/sbin/policy-rc.d
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" install -m 755 /dev/stdin "$policy"
  fi
  # shellcheck disable=SC2086
  quietly install -y --no-install-recommends $programs_only
  for service in $programs_only; do
    "${as_root[@]}" update-rc.d "$service" disable  # of systemd's links, too
  done
fi
echo "Installed."
