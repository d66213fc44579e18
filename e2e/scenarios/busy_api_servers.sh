#!/bin/bash
# busy_api_servers.sh: API servers, the hub's and a member's, that take one question and one write at a time and refuse what comes beside it (429 Too
# Many Requests, with Retry-After), while somebody asks for much and does not read the answer, and begins to write and does not go on, for two
# of every four seconds. A job is begun there, loses an executor, is suspended, resumed, comes to its end and is deleted; by the audit logs
# the operator was refused in both, and has made no Pod twice.
# Needs the images of the four programs (make images), helm (controlplane/build.sh) and fusionctl (make build).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
only_on_own "it starts API servers with other flags"
fusionctl=$build_folder/bin/fusionctl
[ -x "$fusionctl" ] || die "$fusionctl is not there: make build"
bring_up bhub graz
shape_links 50mbit 20ms bhub graz
prepare_hub
install_operator
prepare_member graz
# An account of its own: administrators are never refused.
"$fusionctl" cluster add graz --kubeconfig "$(kubeconfig_of bhub)" --member-kubeconfig "$(kubeconfig_of graz)" --job-namespace team \
  --server "$(server_of graz)" --wait-seconds "${patience%s}" >/dev/null || fail "graz is no member"
took "a hub and a member$behind"

answers() { kubectl_of "$1" get --raw /readyz >/dev/null 2>&1; }
# little_room CLUSTER: from here on. Without priority and fairness requests do not queue.
little_room() {
  printf '%q ' --enable-priority-and-fairness=false --max-requests-inflight=1 --max-mutating-requests-inflight=1 >>"$state_root/$1/daemons/kube-apiserver"
  "$cluster_scripts/daemon.sh" kill "$1" kube-apiserver
  ended() { ! "$cluster_scripts/daemon.sh" running "$1" kube-apiserver >/dev/null; }
  until_true "the API server of $1 to end" ended "$1"
  "$cluster_scripts/daemon.sh" start "$1" kube-apiserver
  until_true "the API server of $1" answers "$1"
}
# much_to_read CLUSTER: more than fits into the buffers of a connection.
much_to_read() {
  head -c 600000 /dev/zero | tr '\0' 'x' >"$scratch/much"
  for part in 1 2 3 4; do kubectl_of "$1" --namespace default create configmap much-$part --from-file="$scratch/much" >/dev/null; done
}
# hold CLUSTER: the place for questions and the place for writes, for two of every four seconds, as long as this runs.
hold() {
  local credentials=$state_root/$1/credentials
  connect() { timeout 2 openssl s_client -quiet -connect "$(node_address "$1"):6443" -cert "$credentials/admin.crt" -key "$credentials/admin.key" 2>/dev/null; }
  while :; do
    { printf 'GET /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: held\r\n\r\n'; sleep 2; } | connect "$1" | { sleep 2; } &
    { printf 'POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: held\r\nContent-Length: 9\r\n\r\n{'; sleep 2; } | connect "$1" | { sleep 2; } &
    wait
    sleep 2
  done
}
holders=()
let_go() {
  [ ${#holders[@]} -eq 0 ] || kill "${holders[@]}" 2>/dev/null || true
  holders=()
}
refused() { operator_requests "$1" | awk '$5 == 429' | wc -l; }

trap 'status=$?; let_go; end_badly $status' EXIT
for cluster in "${machines[@]}"; do
  much_to_read "$cluster"
  little_room "$cluster"
  hold "$cluster" &
  holders+=($!)
done
leads() { [ -n "$(leader 2>/dev/null)" ]; }
until_true "an operator to lead" leads
until_true "the connection to graz" condition_is fusioncluster/graz Connected True
took "their API servers take one question and one write at a time, which are held half of the time"

job long 1000000 "{name: graz, min: 2}" "$two_executors" "$with_checkpoints"
wait_for long condition=Ready
until_true "its first steps" has_passed long 5
took "a job trains"
lost=$(uid_of graz long-graz-0-r0)
kubectl_in graz delete pod long-graz-0-r0 --grace-period=0 --force >/dev/null 2>&1
until_true "a new executor" uid_is_new graz long-graz-0-r0 "$lost"
wait_for long condition=Ready
step=$(step_of long)
until_true "steps after step $step" has_passed long $((step + 20))
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
  [ "$(refused "$cluster")" -gt 0 ] || fail "the operator was never refused in $cluster: it proves nothing"
done
took "the operator was refused $(refused "$hub") times by the hub, $(refused graz) times by graz, and has made: $made"
let_go
take_down "API servers with little room"
