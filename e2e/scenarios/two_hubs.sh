#!/bin/bash
# two_hubs.sh [ORIGIN ORIGIN]: two hubs, each with its own operator, share one member (by the names north and south in their labels, unless
# others are given, which may be the same). Each runs a job there at once; the member has both side by side, each status tells of its own. A
# job of one hub is deleted, and the operator of that hub killed and started anew: the other's job trains on, Pod by Pod. Two jobs of the same
# name and namespace: the later one touches nothing of the other's, its status and that of its FusionCluster say what is in its way, and
# it goes its way once that is gone.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
[ $# -eq 0 ] || [ $# -eq 2 ] || die "usage: two_hubs.sh [ORIGIN ORIGIN]"
bring_up narvik quebec shared
hubs=(narvik quebec) members=(shared)
origins=("${1:-north}" "${2:-south}")
prepare_member shared
for index in 0 1; do
  hub=${hubs[$index]}
  shape_links 50mbit 20ms "$hub" shared
  prepare_hub
  install_operator --set operator.origin="${origins[$index]}"
  register shared "$(for_hub shared)"
done
for hub in "${hubs[@]}"; do until_true "the connection of $hub" condition_is fusioncluster/shared Connected True; done
took "two hubs with one member$behind"

# pods_of_job JOB: NAME UID RESTARTS of its Pods in the member.
pods_of_job() {
  kubectl_in shared get pods --selector "fusionllm.io/job=$1" --output \
    'jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[*].restartCount}{"\n"}{end}' | sort
}
objects_of() { kubectl_in shared get pods,configmaps,secrets,services --selector "fusionllm.io/job=$1" --output name; }
both="{name: shared, min: 2}"
hub=narvik
job alpha 1000000 "$both"
hub=quebec
job beta 1000000 "$both" "$two_executors" "$with_checkpoints"
hub=narvik
wait_for alpha condition=Ready
hub=quebec
wait_for beta condition=Ready
until_true "the first steps of beta" has_passed beta 5
beta=$(pods_of_job beta)
# on_hub HUB: its jobs; whose objects the member has says each of them.
jobs_on() { kubectl_of "$1" --namespace team get fusionjobs --output 'jsonpath={range .items[*]}{.metadata.name} {end}'; }
[ "$(jobs_on narvik)" = "alpha " ] && [ "$(jobs_on quebec)" = "beta " ] || fail "narvik has the jobs $(jobs_on narvik), quebec $(jobs_on quebec)"
for index in 0 1; do
  hub=${hubs[$index]} name=alpha
  [ "$index" -eq 0 ] || name=beta
  uid=$(kubectl_of "$hub" get namespace kube-system --output 'jsonpath={.metadata.uid}')
  labels=$(kubectl_in shared get configmap $name-anchor --output 'jsonpath={.metadata.labels.fusionllm\.io/hub} {.metadata.labels.fusionllm\.io/origin}')
  [ "$labels" = "$uid ${origins[$index]}" ] || fail "the objects of $name are labelled '$labels', not '$uid ${origins[$index]}'"
  status_is $name executors 2/2 || fail "$hub says of $name that $(status_of $name executors) executors are ready"
done
took "a job of each hub trains in the member"

undisturbed() {
  [ "$(pods_of_job beta)" = "$beta" ] || fail "$1: Pods of the other hub's job have changed: $(diff <(echo "$beta") <(pods_of_job beta))"
  hub=quebec
  status_is beta restarts 0 || fail "$1: the other hub's job was restarted"
  condition_is fusionjob/beta Ready True || fail "$1: the other hub's job is not ready: $(condition_of fusionjob/beta Ready message)"
  local step
  step=$(step_of beta)
  until_true "a status of beta after step $step" has_passed beta "$step"
}

# ---- the same name on both ----
hub=narvik
job twin 1000000 "$both"
wait_for twin condition=Ready
twin=$(pods_of_job twin)
objects=$(objects_of twin)
hub=quebec
job twin 20 "$both"
until_true "the second twin to be told what is in its way" reason_is fusionjob/twin Ready Conflict
[[ $(condition_of fusionjob/twin Ready message) == *shared*"exists already and is not owned by this job"* ]] || fail "it says: $(condition_of fusionjob/twin Ready message)"
echo "  the job: $(condition_of fusionjob/twin Ready message)"
until_true "the FusionCluster to tell of it" condition_is fusioncluster/shared Conflict True
echo "  its FusionCluster: $(condition_of fusioncluster/shared Conflict message)"
told=$(kubectl_of narvik get fusioncluster shared --output 'jsonpath={.status.conditions[?(@.type=="Conflict")].status}')
[ "$told" != True ] || fail "narvik tells of a conflict, too"
[ "$(objects_of twin)" = "$objects" ] && [ "$(pods_of_job twin)" = "$twin" ] || fail "the later twin has changed what is of the other: $(objects_of twin)"
undisturbed "two jobs of one name"
took "two jobs of one name: the later one waits, and says for what"
hub=narvik
k delete fusionjob twin --timeout="$patience" >/dev/null
hub=quebec
wait_for twin condition=Complete
expect_trained twin
until_true "the FusionCluster to tell of no conflict" condition_is fusioncluster/shared Conflict False
k delete fusionjob twin --timeout="$patience" >/dev/null
until_true "the member to be clean of twins" empty objects_of twin
undisturbed "two jobs of one name, one after the other"
took "the other one is deleted, and the later one has come to its end"

# ---- what one hub does is nothing to the other ----
hub=narvik
k delete fusionjob alpha --timeout="$patience" >/dev/null || fail "alpha is not deleted"
until_true "the member to be clean of alpha" empty objects_of alpha
undisturbed "the deletion of alpha"
took "a job of one hub is deleted, the other's trains on"
# Each minute an operator looks for what is left of jobs that are gone, and deletes it when it finds it twice. What it has read of the hub and
# the member since it began is enough for that after two looks.
hub=narvik
former=$(leader)
own delete pod "$former" --grace-period=0 --force >/dev/null 2>&1
until_true "another operator of narvik to lead" another_leads "$former"
looks() {
  operator_requests narvik | awk -v since="$since" '$1 > since && $2 == "list" && $3 == "configmaps" && $4 == "fusionllm"' | wc -l
}
if here "three looks for leftovers: they are counted by audit logs"; then
  since=$(audit_time)
  looked_thrice() { [ "$(looks)" -ge 6 ]; }  # for the member, and for the hub itself
  until_true "three looks for leftovers" looked_thrice
  hub=quebec
  undisturbed "three looks for leftovers"
  written=$(operator_writes shared | awk '{ print $6 }' | sort -u | wc -l)
  took "a new operator of one hub has looked for leftovers three times, the other's job trains on; $written operators have written in the member"
fi
hub=quebec

end_soon beta 20
expect_trained beta
k delete fusionjob beta --timeout="$patience" >/dev/null
for cluster in shared narvik quebec; do until_true "$cluster to be clean of jobs" nothing_left_in "$cluster"; done
took "the other job has come to its end, and is deleted; nothing is left"
take_down "two hubs, one member"
