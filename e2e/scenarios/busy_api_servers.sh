#!/bin/bash
# busy_api_servers.sh: API servers that have little room for requests and refuse those beyond it at once (429 Too Many Requests, with Retry-After),
# the hub's and a member's: of the three questions that they take at a time two are held by profiles of the servers themselves, and of writes
# they take one. A job is begun there, loses an executor, is suspended, resumed, comes to its end and is deleted; by the audit logs the
# operator was refused again and again, and has made no Pod twice.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
only_on_own "it starts API servers with other flags"
bring_up bhub graz
members_behind 50mbit 20ms
took "a hub and a member$behind"

answers() { kubectl_of "$1" get --raw /readyz >/dev/null 2>&1; }
# little_room CLUSTER: from here on. Without priority and fairness requests do not queue.
little_room() {
  printf '%q ' --enable-priority-and-fairness=false --max-requests-inflight=3 --max-mutating-requests-inflight=1 >>"$state_root/$1/daemons/kube-apiserver"
  "$cluster_scripts/daemon.sh" kill "$1" kube-apiserver
  ended() { ! "$cluster_scripts/daemon.sh" running "$1" kube-apiserver >/dev/null; }
  until_true "the API server of $1 to end" ended "$1"
  "$cluster_scripts/daemon.sh" start "$1" kube-apiserver
  until_true "the API server of $1" answers "$1"
}
# hold CLUSTER WHAT: one of its places, by a question that takes 25 s, as long as this runs.
hold() {
  while :; do
    kubectl_of "$1" get --raw "/debug/pprof/$2?seconds=25" >/dev/null 2>&1 || sleep 0.2
  done
}
holders=()
let_go() {
  [ ${#holders[@]} -eq 0 ] || kill "${holders[@]}" 2>/dev/null || true
  holders=()
}
refused() { operator_requests "$1" | awk '$5 == 429' | wc -l; }
# has_steps STEPS
has_steps() { has_passed long "$1"; }

trap 'status=$?; let_go; end_badly $status' EXIT
for cluster in "${machines[@]}"; do
  little_room "$cluster"
  for what in profile trace; do
    hold "$cluster" $what &
    holders+=($!)
  done
done
leads() { [ -n "$(leader 2>/dev/null)" ]; }
until_true "an operator to lead" leads
until_true "the connection to graz" condition_is fusioncluster/graz Connected True
took "their API servers take three requests at a time, of which two are held, and one that writes"

job long 1000000 "{name: graz, min: 2}" "$two_executors" "$with_checkpoints"
wait_for long condition=Ready
until_true "its first steps" has_steps 5
took "a job trains"
lost=$(uid_of graz long-graz-0-r0)
kubectl_in graz delete pod long-graz-0-r0 --grace-period=0 --force >/dev/null 2>&1
until_true "a new executor" uid_is_new graz long-graz-0-r0 "$lost"
wait_for long condition=Ready
step=$(step_of long)
until_true "steps after step $step" has_steps $((step + 20))
status_is long restarts 0 || fail "the whole job was restarted"
took "an executor's Pod was deleted and replaced; the job trains on"
end_soon long 20
expect_trained long
status_is long restarts 0 || fail "the whole job was restarted"
condition_is fusioncluster/graz Connected True || fail "graz is missed: $(condition_of fusioncluster/graz Connected message)"
took "suspended, resumed, Complete: $(k get fusionjob long --no-headers)"
delete_job long
took "deleted, nothing is left in any cluster"

made=$(pods_made graz long)
[ "$made" = "long-graz-0-r0=2 long-graz-0-r1=1 long-graz-1-r0=1 long-graz-1-r1=1 " ] || fail "in graz the operator has made: $made"
for cluster in "${machines[@]}"; do
  [ "$(refused "$cluster")" -ge 10 ] || fail "the operator was refused in $cluster $(refused "$cluster") times: it proves little"
done
took "the operator was refused $(refused "$hub") times by the hub, $(refused graz) times by graz, and has made: $made"
let_go
take_down "API servers with little room"
