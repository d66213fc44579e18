#!/bin/bash
# api_server_lost.sh: API servers die under a job that trains: each is killed with SIGKILL, first the member's, then the hub's, etcd's history is
# compacted while they are away, and they come back. The job's Pods train on, untouched. Then the operator's watches of the member are cut for
# a while, in which an executor's Pod is deleted there, and history is compacted beyond what the operator has seen: its watches are answered
# with 410 Gone, as its metrics tell, it lists anew, and replaces the executor, once. By the member's audit log it has made no Pod twice.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
only_on_own "it kills API servers"
bring_up lhub cork
members_behind 50mbit 20ms
job long 1000000 "{name: cork, min: 2}" "$two_executors" "$with_checkpoints"
wait_for long condition=Ready
until_true "its first steps" has_passed long 5
pods=$(pods_of "${machines[@]}")
took "a hub and a member$behind; a job trains"

etcd_of() { inside "$1" curl --silent --fail --max-time 20 --data "$3" "http://127.0.0.1:2379/v3/kv/$2"; }
# compact CLUSTER: etcd forgets all versions but the newest of each object.
compact() {
  local revision
  revision=$(etcd_of "$1" range '{"key": "AA=="}' | sed -n 's/.*"revision":"\([0-9]*\)".*/\1/p')
  [ -n "$revision" ] || fail "etcd of $1 tells no revision"
  etcd_of "$1" compaction "{\"revision\": \"$revision\", \"physical\": true}" >/dev/null || fail "etcd of $1 has not compacted its history up to $revision"
}
answers() { kubectl_of "$1" get --raw /readyz >/dev/null 2>&1; }
# api_server_dies CLUSTER: killed, history gone, started again, ready.
api_server_dies() {
  "$cluster_scripts/daemon.sh" kill "$1" kube-apiserver
  ended() { ! "$cluster_scripts/daemon.sh" running "$1" kube-apiserver >/dev/null; }
  until_true "the API server of $1 to end" ended "$1"
  compact "$1"
  "$cluster_scripts/daemon.sh" start "$1" kube-apiserver
  until_true "the API server of $1" answers "$1"
}
# expired CLUSTER: watches of it that were answered with 410, by the operator's metrics.
expired() {
  own get --raw "/api/v1/namespaces/fusionllm/pods/$(leader):8080/proxy/metrics" |
    awk -v cluster="cluster=\"$1\"" '/^fusionllm_watch_restarts_total/ && index($0, cluster) && /reason="expired"/ { sum += $NF } END { print sum + 0 }'
}
# trains_on WHAT: with the Pods that it had.
trains_on() {
  local step
  wait_for long condition=Ready
  step=$(step_of long)
  until_true "$1: steps after step $step" has_passed long $((step + 20))
  [ "$(pods_of "${machines[@]}")" = "$pods" ] || fail "$1: Pods have changed: $(diff <(echo "$pods") <(pods_of "${machines[@]}"))"
  status_is long restarts 0 || fail "$1: the job was restarted"
}

# ---- API servers die ----
api_server_dies cork
until_true "the connection to cork" condition_is fusioncluster/cork Connected True
trains_on "cork's API server was killed"
took "cork's API server was killed, and is back: the job trains on, at step $(step_of long)"
api_server_dies "$hub"
leads() { [ -n "$(leader 2>/dev/null)" ]; }
until_true "an operator to lead" leads
until_true "the connection to cork" condition_is fusioncluster/cork Connected True
trains_on "the hub's API server was killed"
took "the hub's API server was killed, and is back: the job trains on, at step $(step_of long)"

# ---- history that is gone ----
before=$(expired cork)
watches_cut() { inside "$hub" iptables "$1" FORWARD --destination "$(node_address cork)" -p tcp --dport 6443 -j REJECT --reject-with tcp-reset; }
lost=$(uid_of cork long-cork-0-r0)
broker=$(pods_of "$hub")
other=$(uid_of cork long-cork-1-r0)
watches_cut -I
until_true "cork to be missed" condition_is fusioncluster/cork Connected False
kubectl_in cork delete pod long-cork-0-r0 --grace-period=0 --force >/dev/null 2>&1
until_true "the executor's Pod to go" empty uid_of cork long-cork-0-r0
# A server that begins now knows nothing older than this, and etcd does not either.
api_server_dies cork
asked() { made_again=$(uid_of cork long-cork-0-r0); }
until_true "cork to say whether it has the Pod" asked
[ -z "$made_again" ] || fail "somebody has made the Pod again, who could not"
took "the operator's watches are cut, an executor's Pod and all history are gone"
watches_cut -D
until_true "the connection to cork" condition_is fusioncluster/cork Connected True
until_true "a new executor" uid_is_new cork long-cork-0-r0 "$lost"
told=$(($(expired cork) - before))
[ "$told" -gt 0 ] || fail "no watch of cork was answered with 410: it proves nothing"
[ "$(pods_of "$hub")" = "$broker" ] || fail "the broker was started again: $(pods_of "$hub")"
[ "$(uid_of cork long-cork-1-r0)" = "$other" ] || fail "the other executor was replaced"
wait_for long condition=Ready
pods=$(pods_of "${machines[@]}")
trains_on "$told watches had expired"
[ "$(pods_made cork long)" = "long-cork-0-r0=2 long-cork-1-r0=1 " ] || fail "in cork the operator has made: $(pods_made cork long)"
took "$told watches were told that history is gone; the executor was replaced, once: $(pods_made cork long)"

end_soon long 20
expect_trained long
status_is long restarts 0 || fail "the whole job was restarted"
took "$(k get fusionjob long --no-headers)"
delete_job long
took "deleted, nothing is left in any cluster"
take_down "API servers killed, history gone"
