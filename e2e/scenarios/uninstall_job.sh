#!/bin/bash
# uninstall_job.sh: what users do to jobs from outside. A namespace is deleted with a job that trains in it: the job goes with it, and nothing
# of it is left in the member, where the namespace stays. Then helm uninstalls the release while another job trains: it is suspended, after a
# checkpoint, no Pod of it is left anywhere, and the definitions and the job stay. The release is installed again: the job stands still until
# its user says otherwise, goes on from that checkpoint, and comes to its end.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
bring_up uhub nancy
members_behind 50mbit 20ms
took "a hub and a member$behind"

# ---- a namespace that is deleted ----
in_passing() { kubectl_of "$1" --namespace passing get pods,configmaps,secrets,services --selector fusionllm.io/job --output name; }
a_namespace_goes() {
  local cluster
  for cluster in "${machines[@]}"; do
    restricted_namespace "$cluster" passing
    kubectl_of "$cluster" --namespace passing create configmap text --from-file="$source_folder/README.md" >/dev/null
  done
  job_namespace=passing job doomed 1000000 "{name: nancy, min: 2}"
  kubectl_of "$hub" --namespace passing wait --for=condition=Ready fusionjob/doomed --timeout="$patience" >/dev/null || fail "doomed: not Ready"
  for cluster in "${machines[@]}"; do [ -n "$(in_passing "$cluster")" ] || fail "nothing of the job is in $cluster"; done
  took "a job trains in a namespace"
  kubectl_of "$hub" delete namespace passing --timeout="$patience" >/dev/null || fail "the namespace stays: $(kubectl_of "$hub" get namespace passing --output 'jsonpath={.status.conditions}')"
  until_true "nancy to be clean of the job; there is: $(in_passing nancy | tr '\n' ' ')" empty in_passing nancy
  empty own get configmaps --selector fusionllm.io/role=tombstone --output name || fail "a tombstone is left"
  [ "$(kubectl_of nancy get namespace passing --output 'jsonpath={.status.phase}')" = Active ] || fail "the member's namespace has gone with the hub's"
  kubectl_of nancy delete namespace passing --timeout="$patience" >/dev/null || fail "the member's namespace stays"
  took "the namespace is deleted, and nothing is left in any cluster"
}
if here "a namespace that is deleted: those of others are left alone"; then a_namespace_goes; fi

# ---- uninstalled while a job trains ----
job kept 1000000 "{name: nancy, min: 2}" "$two_executors" "$with_checkpoints"
wait_for kept condition=Ready
until_true "its first steps" has_passed kept 5
keep_rights
uninstall "$hub"
condition_is fusionjob/kept Suspended True || fail "the operator is gone, and the job is not suspended: $(k get fusionjob kept --no-headers)"
for cluster in "${machines[@]}"; do
  empty pods_of "$cluster" || fail "of a suspended job there is in $cluster: $(pods_of "$cluster")"
done
saved=$(status_of kept checkpoint.step)
status_is kept trainerStatus.step "$saved" || fail "stopped at step $(step_of kept), with a checkpoint of step $saved"
[ "$(field_of fusionjob/kept spec.suspend)" = true ] || fail "the job would go on with the next operator"
for kind in pods deployments jobs; do
  until_true "the release's $kind to go" empty own get "$kind" --output name  # Pods go a moment after their Deployment
done
took "uninstalled: the job is suspended at step $saved, and no Pod of it is left"

install_operator
until_true "the connection to nancy" condition_is fusioncluster/nancy Connected True
leads() { [ -n "$(leader)" ]; }
until_true "an operator to lead" leads
status_is kept state Suspended || fail "the job has gone on by itself: $(k get fusionjob kept --no-headers)"
steps=$((saved + 40))
k patch fusionjob kept --type=merge --patch "{\"spec\": {\"suspend\": false, \"training\": {\"steps\": $steps}}}" >/dev/null
wait_for kept condition=Complete
status_is kept trainerStatus.step $steps || fail "the status tells of step $(step_of kept) of $steps"
status_is kept restarts 0 || fail "an uninstallation counts as $(status_of kept restarts) restarts"
expect_trained kept
took "installed again, resumed, $(k get fusionjob kept --no-headers)"
delete_job kept
took "deleted, nothing is left in any cluster"
take_down "uninstalled with a job that trains"
