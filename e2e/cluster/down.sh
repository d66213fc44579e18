#!/bin/bash
# down.sh [NAME...]: takes clusters down, all of them without a name, whatever state they are in: nothing of theirs stays, no process,
# mount, cgroup, network namespace, interface or file. A part that was killed before, or an up.sh that was, makes no difference: what
# belongs to a cluster is found by its cgroups and namespaces, not by what was written down.
set -euo pipefail
# shellcheck source=names_lib.sh
. "$(dirname "$0")/names_lib.sh"
check_root
# One after the other: what one has found, the other must not take away meanwhile.
if [ -d "$state_root" ]; then
  exec 8<"$state_root"
  flock 8
fi

# Every process among the cluster's daemons, in its Pods, or in its network; not the dead that wait to be reaped.
processes_of() {
  local space root pid
  space=$(prefixed "$1")
  {
    for root in $(cgroup_roots); do
      if [ -d "$root/$space" ]; then find "$root/$space" -name cgroup.procs -exec cat {} + 2>/dev/null; fi
    done
    ip netns pids "$space" 2>/dev/null
  } | sort -un | while read -r pid; do
    # A kernel thread or an init of another PID namespace shows as 0.
    if [ "$pid" -gt 0 ] && ! grep -q '^State:.[ZX]' "/proc/$pid/status" 2>/dev/null && [ -e "/proc/$pid" ]; then echo "$pid"; fi
  done
}

# A frozen group does not even die.
thaw() {
  local freezer
  for freezer in $(find /sys/fs/cgroup -path "*/$(prefixed "$1")/*" \( -name freezer.state -o -name cgroup.freeze \) 2>/dev/null); do
    case $freezer in
      *freezer.state) { echo THAWED >"$freezer"; } 2>/dev/null || true ;;
      *) { echo 0 >"$freezer"; } 2>/dev/null || true ;;
    esac
  done
}

end_processes() {
  local deadline=$((SECONDS + 60)) left
  while left=$(processes_of "$1") && [ -n "$left" ]; do
    # shellcheck disable=SC2086
    kill -KILL $left 2>/dev/null || true
    thaw "$1"
    [ $SECONDS -lt $deadline ] || die "these processes of $1 do not end: $(echo "$left" | tr '\n' ' ')"
    sleep 0.1
  done
}

remove_mounts() {
  local folder=$1 place
  # Last first: what was mounted on top goes before what it lies on.
  awk -v folder="$folder/" 'index($5 "/", folder) == 1 { print $5 }' /proc/self/mountinfo | tac | while read -r place; do
    umount --lazy "$place"
  done
}

remove_cgroups() {
  local root own deadline=$((SECONDS + 30))
  for root in $(cgroup_roots); do
    own=$root/$(prefixed "$1")
    while [ -d "$own" ]; do
      find "$own" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [ $SECONDS -lt $deadline ] || die "the cgroup $own does not go"
      if [ -d "$own" ]; then sleep 0.1; fi
    done
  done
}

take_down() {
  local name=$1 space deadline=$((SECONDS + 30))
  space=$(prefixed "$name")
  end_processes "$name"
  ip link del "$space" 2>/dev/null || true
  if [ -e "/run/netns/$space" ]; then
    # Deleted here and now with their peers in other clusters; the namespace itself goes a little later.
    ip -n "$space" -brief link show type veth 2>/dev/null | sed 's/@.*//' | while read -r link _; do ip -n "$space" link del "$link" 2>/dev/null || true; done
    until ip netns del "$space"; do
      [ $SECONDS -lt $deadline ] || die "the network namespace $space does not go"
      sleep 0.1
    done
  fi
  remove_mounts "$state_root/$name"
  remove_cgroups "$name"
  rm -rf --one-file-system "${state_root:?}/$name"
  for other in $(existing_clusters); do forget_link "$other" "$name"; done
}

# What another cluster held for its link to this one. In its network, but not as a process of its: that one may be frozen, and stays so.
forget_link() {
  local pid rule network
  network=$(prefixed "$1")
  if pid=$(cat "$state_root/$1/links/$2.pid" 2>/dev/null) && grep -qz delay_packets "/proc/$pid/cmdline" 2>/dev/null; then kill "$pid"; fi
  ip netns exec "$network" iptables -t mangle -S PREROUTING 2>/dev/null | grep -- " to-$2 " | sed 's/^-A/-D/' | while read -r rule; do
    # shellcheck disable=SC2086
    ip netns exec "$network" iptables -t mangle $rule
  done || true
  rm -f "$state_root/$1/links/$2".*
}

names=("$@")
if [ ${#names[@]} -eq 0 ]; then mapfile -t names < <(existing_clusters); fi
for name in "${names[@]}"; do
  check_name "$name"
  take_down "$name"
done

if [ -d "$state_root" ] && [ -z "$(existing_clusters)" ]; then  # tidy-allow: fail-open because these are files, and nobody is asked
  if [ -e "$state_root/made-folders" ]; then xargs rmdir <"$state_root/made-folders"; fi
  rm -f "$state_root"/{bin,pause.tar,made-folders}
  rmdir "$state_root" 2>/dev/null || true
fi
