#!/bin/bash
# machine.sh freeze|thaw NAME: everything on a cluster's machine, or on that of one of its further nodes: daemons, Pods, what holds back its
# links' packets. Frozen, it is a machine that hangs or whose power is off: its peers' connections to it stay open, and nobody answers.
# Thawed, it goes on where it was, as one does that everybody had given up.
set -euo pipefail
# shellcheck source=names_lib.sh
. "$(dirname "$0")/names_lib.sh"
[ $# -eq 2 ] || die "usage: machine.sh freeze|thaw NAME"
check_root
check_exists "$2"

set_frozen() {
  local group
  for root in $(cgroup_roots); do
    group=$root/$(prefixed "$1")
    if [ -e "$group/freezer.state" ]; then
      # A process in a system call may take a moment.
      until [ "$(cat "$group/freezer.state")" = "$2" ]; do
        echo "$2" >"$group/freezer.state"
        sleep 0.05
      done
      return
    fi
    if [ -e "$group/cgroup.freeze" ]; then
      if [ "$2" = FROZEN ]; then echo 1 >"$group/cgroup.freeze"; else echo 0 >"$group/cgroup.freeze"; fi
      return
    fi
  done
  die "no cgroup of $1 can be frozen"
}

case $1 in
  freeze) set_frozen "$2" FROZEN ;;
  thaw) set_frozen "$2" THAWED ;;
  *) die "no such action: $1" ;;
esac
