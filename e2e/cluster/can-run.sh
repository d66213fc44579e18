#!/bin/bash
# can-run.sh: can this machine carry clusters? Ends with 0; or says what it lacks, on stdout, and ends with 1. Tries each thing that up.sh
# does to a machine, and takes it back. Needs what tools/install-deps.sh e2e installs.
set -euo pipefail
# shellcheck source=names_lib.sh
. "$(dirname "$0")/names_lib.sh"

lacking() {
  echo "$*"
  exit 1
}

[ "$(id -u)" -eq 0 ] || lacking "root"
space=$(prefixed "try-$$")
scratch=$(mktemp -d)
undo() {
  local root
  ip netns del "$space" 2>/dev/null || true
  for root in $(cgroup_roots); do rmdir "$root/$space" 2>/dev/null || true; done
  rm -rf "$scratch"
}
trap undo EXIT

ip netns add "$space" 2>/dev/null || lacking "network namespaces"
ip -n "$space" link add one type veth peer name other 2>/dev/null || lacking "veth interfaces"
tc -n "$space" qdisc add dev one root tbf rate 1mbit burst 128kb latency 400ms 2>/dev/null || lacking "the queueing discipline tbf"
ip netns exec "$space" iptables -t nat -A OUTPUT -j ACCEPT 2>/dev/null || lacking "the nat table of iptables"
tc -n "$space" qdisc add dev other root netem delay 1ms 2>/dev/null ||
  ip netns exec "$space" iptables -t mangle -A PREROUTING -j NFQUEUE --queue-num 1 --queue-bypass 2>/dev/null ||
  lacking "a way to delay packets: neither netem nor NFQUEUE"
ip netns exec "$space" sysctl -qw net.ipv4.ip_forward=1 2>/dev/null || lacking "sysctls of a network namespace"
# As runc does it; fails where / is no mount, in a chroot for one.
# shellcheck disable=SC2016
unshare --mount --pid --fork bash -ec 'mount -t tmpfs none "$1"; mkdir "$1/old"; cd "$1"; pivot_root . old' _ "$scratch" 2>/dev/null ||
  lacking "mount namespaces with a root of their own"
[ -n "$(cgroup_roots)" ] || lacking "cgroups"
for root in $(cgroup_roots); do mkdir "$root/$space" 2>/dev/null || lacking "cgroups that can be made in $root"; done
# Three clusters and a job hold some 3 GiB, their programs and images some 3 GiB of disk, and twice that while they are built.
[ "$(awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo)" -ge 5000 ] || lacking "5 GB of free memory"
[ "$(df --output=avail -m "${HOME:-/}" | tail -1)" -ge 8000 ] || lacking "8 GB of free disk in ${HOME:-/}"
