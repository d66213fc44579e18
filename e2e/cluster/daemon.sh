#!/bin/bash
# daemon.sh start|kill|pause|resume|running|log CLUSTER DAEMON: one daemon of a cluster, as up.sh described it. For trials of what happens
# when a part fails: `kill` is SIGKILL, `pause` and `resume` are SIGSTOP and SIGCONT (a machine that hangs with its connections open).
# DAEMON: etcd kube-apiserver kube-controller-manager kube-scheduler coredns containerd kubelet kube-proxy.
set -euo pipefail
# shellcheck source=names_lib.sh
. "$(dirname "$0")/names_lib.sh"
[ $# -eq 3 ] || die "usage: daemon.sh start|kill|pause|resume|running|log CLUSTER DAEMON"
action=$1 cluster=$2 daemon=$3
check_exists "$cluster"
folder=$state_root/$cluster
[ -f "$folder/daemons/$daemon" ] || die "$cluster has no daemon $daemon; it has: $(ls "$folder/daemons")"

# The process, if it is still the one that was started: numbers are used again.
running() {
  local pid
  pid=$(cat "$folder/pids/$daemon" 2>/dev/null) || return 1
  grep -qz "^FUSIONLLM_E2E_DAEMON=$cluster/$daemon\$" "/proc/$pid/environ" 2>/dev/null && echo "$pid"
}

case $action in
  start)
    if running >/dev/null; then die "$cluster's $daemon runs already"; fi
    check_root
    eval "command=($(cat "$folder/daemons/$daemon"))"
    enter "$cluster" setsid env FUSIONLLM_E2E_DAEMON="$cluster/$daemon" "${command[@]}" </dev/null >>"$folder/logs/$daemon.log" 2>&1 &
    echo $! >"$folder/pids/$daemon"
    # On a busy machine it takes a while to become what it is to be; until then it would pass for one that has ended.
    until running >/dev/null || ! kill -0 $! 2>/dev/null; do sleep 0.02; done
    ;;
  kill) pid=$(running) && kill -KILL "$pid" ;;
  pause) pid=$(running) && kill -STOP "$pid" ;;
  resume) pid=$(running) && kill -CONT "$pid" ;;
  running) running ;;
  log) cat "$folder/logs/$daemon.log" ;;
  *) die "no such action: $action" ;;
esac
