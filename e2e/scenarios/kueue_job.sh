#!/bin/bash
# kueue_job.sh: jobs wait in a queue of Kueue's, whose real controller runs on the hub. A labelled job says that Kueue is missing, and begins to wait
# when it is there; it trains with the quota, on the nodes of its flavor, while another one waits; is preempted for one of higher priority, with a
# checkpoint; goes on from it, is stopped by an administrator, is suspended by its user, and comes to its end, which its Workload says, too.
# Needs the images of the four programs (make images), helm (controlplane/build.sh) and Kueue (../kueue/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
# shellcheck source=../kueue/kueue_lib.sh
. "$scenario_folder/../kueue/kueue_lib.sh"
only_on_own "it installs Kueue"
"$kueue_folder/build.sh" >/dev/null
bring_up qhub qlima
members_behind 50mbit 20ms --set operator.kueue.enabled=true
took "a hub and a member$behind"

# queued_job NAME STEPS PRIORITY: two executors in the member, checkpoints in the folder of its name.
queued_job() {
  labels="kueue.x-k8s.io/queue-name: night, kueue.x-k8s.io/priority-class: $3" \
    job "$1" "$2" "{name: qlima, min: 1}" "$two_executors" "${with_checkpoints/path: run/path: $1}"
}
# workload_of NAME: the name of its Workload.
workload_of() { k get workloads.kueue.x-k8s.io --output name | sed -n "s,^workload.kueue.x-k8s.io/\(fusionjob-$1-[0-9a-f]*\)\$,\1,p"; }
workload_says() { [ "$(k get workload.kueue.x-k8s.io "$(workload_of "$1")" --output "jsonpath={.status.conditions[?(@.type==\"$2\")].status}" 2>/dev/null)" = "$3" ]; }
has_workload() { [ -n "$(workload_of "$1")" ]; }
no_workload() { empty workload_of "$1"; }
no_pods_of() {
  local cluster
  for cluster in "$hub" "${members[@]}"; do
    empty kubectl_in "$cluster" get pods --selector "fusionllm.io/job=$1" --output name || return
  done
}
state_is() { status_is "$1" state "$2"; }
message_has() { [[ $(condition_of "fusionjob/$1" Admitted message) == *"$2"* ]]; }

# ---- Kueue is not there ----
queued_job low 1000000 low
until_true "the job to say what is missing" reason_is fusionjob/low Admitted KueueNotInstalled
state_is low Queued || fail "it is $(status_of low state)"
no_pods_of low || fail "a job that waits has Pods"
for cluster in "$hub" "${members[@]}"; do nothing_left_in "$cluster" || fail "a job that waits holds $(left_in "$cluster") in $cluster"; done
took "without Kueue the job waits: $(condition_of fusionjob/low Admitted message)"

install_kueue "$hub"
took "Kueue is there"
until_true "the job to find it" message_has low "no WorkloadPriorityClass low"

# ---- quota for one job ----
apply_queues() {
  kubectl_of "$hub" apply --filename - >/dev/null 2>&1 <<QUEUES
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
spec: {nodeLabels: {kubernetes.io/os: linux}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: later}
value: 5
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: low}
value: 10
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 100
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: all}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [pods, cpu, memory]
    flavors: [{name: plain, resources: [{name: pods, nominalQuota: 4}, {name: cpu, nominalQuota: 100}, {name: memory, nominalQuota: 100Gi}]}]
QUEUES
}
until_true "its objects to be taken" apply_queues
until_true "its Workload" has_workload low
until_true "the job to say for what it waits" message_has low "waiting for quota in LocalQueue night:"
took "it waits: $(condition_of fusionjob/low Admitted message)"
k apply --filename - >/dev/null <<'QUEUE'
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: night}
spec: {clusterQueue: all}
QUEUE
until_true "the admission" condition_is fusionjob/low Admitted True
wait_for low condition=Ready
selector=$(kubectl_in qlima get pod low-qlima-0-r0 --output 'jsonpath={.spec.nodeSelector}')
[[ $selector == *'"kubernetes.io/os":"linux"'* ]] || fail "its executors are not sent to the flavor's nodes: $selector"
until_true "the Workload to hear that it is ready" workload_says low PodsReady True
until_true "a checkpoint" has_passed low 25
took "admitted, it trains: $(k get fusionjob low --no-headers)"
queued_job next 40 later
until_true "the next one to say why it waits" message_has next "insufficient unused quota"
no_pods_of next || fail "a job without quota has Pods"
k label fusionjob next --overwrite kueue.x-k8s.io/priority-class=low >/dev/null
has_priority() { [ "$(k get workload.kueue.x-k8s.io "$(workload_of "$1")" --output 'jsonpath={.spec.priority}')" = "$2" ]; }
until_true "its other priority to be in its Workload" has_priority next 10
took "the next one waits: $(condition_of fusionjob/next Admitted message)"

# ---- preempted ----
attempt=$(status_of low attempt)
queued_job high 40 high
until_true "the first one to be evicted" reason_is fusionjob/low Admitted EvictedByKueue
until_true "its Pods to end" state_is low Queued
saved=$(status_of low checkpoint.step)
[ "$saved" = "$(step_of low)" ] || fail "evicted at step $(step_of low), with a checkpoint of step $saved"
until_true "its quota to be given back" workload_says low QuotaReserved False
wait_for high condition=Complete
until_true "the Workload to be finished" workload_says high Finished True
took "one of higher priority has trained meanwhile; the first was evicted at step $saved: $(condition_of fusionjob/low Admitted message)"

# ---- it goes on, before the one that came later ----
until_true "it to be admitted again" condition_is fusionjob/low Admitted True
until_true "steps beyond the checkpoint" has_passed low "$saved"
[ "$(status_of low attempt)" -gt "$attempt" ] || fail "it is in attempt $(status_of low attempt) still"
status_is low restarts 0 || fail "an eviction counts as $(status_of low restarts) restarts"
state_is next Queued || fail "the later one is $(status_of next state)"
took "it goes on from its checkpoint"

# ---- stopped by an administrator ----
k patch workload.kueue.x-k8s.io "$(workload_of low)" --type=merge --patch '{"spec": {"active": false}}' >/dev/null
until_true "it to be stopped" reason_is fusionjob/low Admitted EvictedByKueue
wait_for next condition=Complete
state_is low Queued || fail "a job whose Workload is deactivated is $(status_of low state)"
message_has low Deactivated || fail "it does not say so: $(condition_of fusionjob/low Admitted message)"
took "deactivated, it lets the next one through"
k patch workload.kueue.x-k8s.io "$(workload_of low)" --type=merge --patch '{"spec": {"active": true}}' >/dev/null
wait_for low condition=Ready
took "activated, it trains again"

# ---- suspended by its user ----
k patch fusionjob low --type=merge --patch '{"spec": {"suspend": true}}' >/dev/null
until_true "it to be suspended" state_is low Suspended
until_true "its Workload to go" no_workload low
saved=$(status_of low checkpoint.step) steps=$(($(status_of low checkpoint.step) + 40))
k patch fusionjob low --type=merge --patch "{\"spec\": {\"suspend\": false, \"training\": {\"steps\": $steps}}}" >/dev/null
wait_for low condition=Complete
status_is low trainerStatus.step $steps || fail "the status tells of step $(step_of low) of $steps"
until_true "the Workload to be finished" workload_says low Finished True
expect_trained low
took "suspended, it has no Workload; resumed, it has come to its end: $(k get fusionjob low --no-headers)"

k delete fusionjob next high --timeout="$patience" >/dev/null
delete_job low
for name in low next high; do until_true "the Workload of $name to go" no_workload $name; done
took "deleted, with their Workloads"
take_down "queued by Kueue"
