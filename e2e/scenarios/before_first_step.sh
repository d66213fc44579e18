#!/bin/bash
# before_first_step.sh: what befalls a job over two members between Ready and its first step, and what else may end one that need not end. A member is
# cut off for a minute; an executor is evicted, and its node is cordoned for three quarters of one: each time the job waits, and comes to its end
# without a restart. A model that its executors cannot hold is refused before anything is measured, with the memory that it needs and the limit. The broker
# of a job that trains is evicted, which counts towards no limit; its model is changed while it is suspended, of which it says what to do, and it
# goes on when that is changed back.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
only_on_own "it cuts a link and cordons a node"
bring_up ehub lima oslo
members_behind 20mbit 40ms
took "a hub and two members, behind links of 20 Mbit/s and 40 ms"

# evict CLUSTER POD: as `kubectl drain` does.
evict() {
  kubectl_in "$1" create --raw "/api/v1/namespaces/team/pods/$2/eviction" --filename - >/dev/null <<EVICTION
{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "$2", "namespace": "team"}}
EVICTION
}
# steps_in_record NAME: how many steps the broker of the first attempt has recorded.
steps_in_record() {
  k logs "$1-broker-r0" --container broker >"$scratch/record" || fail "$1 has no broker"
  grep -c '"type":"step"' "$scratch/record" || true
}
# before_its_first_step NAME DISTURB CALM: a new job, to which DISTURB NAME happens as soon as it is Ready. Where that comes after its first step it
# shows nothing: CALM NAME, and another job is tried.
before_its_first_step() {
  local steps
  for _ in 1 2 3; do
    job "$1" 100 "$(one_in_each)"
    wait_for "$1" condition=Ready
    "$2" "$1"
    steps=$(steps_in_record "$1")
    if [ "$steps" = 0 ]; then return; fi
    echo "  $1 had made $steps steps by then: once more"
    "$3" "$1"
    delete_job "$1"
  done
  fail "$1 was never disturbed before its first step"
}
has_not_failed() {
  condition_is "fusionjob/$1" Failed True && fail "$1 has failed: $(condition_of "fusionjob/$1" Failed message)"
  return 0
}
# comes_to_its_end NAME WHAT
comes_to_its_end() {
  wait_for "$1" condition=Complete
  expect_trained "$1"
  status_is "$1" restarts 0 || fail "$1 was restarted"
  took "$2: $(k get fusionjob "$1" --no-headers)"
  delete_job "$1"
}

# ---- a member is cut off ----
cut_off() { "$cluster_scripts/link.sh" cut "$hub" lima; }
mend() { "$cluster_scripts/link.sh" mend "$hub" lima; }
before_its_first_step cut cut_off mend
sleep 60
has_not_failed cut
mend
comes_to_its_end cut "a member was cut off for a minute before the first step"

# ---- an executor is evicted, and there is no room for another ----
send_away() {
  kubectl_of lima cordon lima-0 >/dev/null
  before=$(uid_of lima "$1-lima-0-r0")
  evict lima "$1-lima-0-r0"
}
let_in() { kubectl_of lima uncordon lima-0 >/dev/null; }
before_its_first_step evicted send_away let_in
until_true "another executor in lima" uid_is_new lima evicted-lima-0-r0 "$before"
sleep 45
has_not_failed evicted
[ "$(kubectl_in lima get pod evicted-lima-0-r0 --output 'jsonpath={.status.phase}')" = Pending ] || fail "the node is cordoned, and takes a Pod"
let_in
comes_to_its_end evicted "an executor was evicted before the first step, with no room for another"

# ---- a model that is too large ----
model="{family: gpt2, preset: xl}"
job large 10 "$(one_in_each)" "{replicas: 2, threads: 1, template: {spec: {containers: [{name: executor, resources: {limits: {memory: 256Mi}}}]}}}"
model=$usual_model
wait_for large condition=Failed
said=$(condition_of fusionjob/large Failed message)
reason_is fusionjob/large Failed PlacementFailed || fail "a model that is too large fails for the reason $(condition_of fusionjob/large Failed reason): $said"
[[ $said == *"the limit is 256 MiB"* ]] || fail "the limit is not told: $said"
status_is large restarts 0 || fail "a model that is too large was tried $(status_of large restarts) times more"
took "a model that is too large is refused: $said"
delete_job large

# ---- the broker is evicted ----
job long 1000000 "$(one_in_each)" "$two_executors" "$with_checkpoints"
wait_for long condition=Ready
until_true "its first steps" has_passed long 30
took "another job trains"
reached=$(step_of long)
evict "$hub" long-broker-r0
until_true "another attempt" status_is long attempt 1
wait_for long condition=Ready
saved=$(status_of long checkpoint.step)
[ "$saved" -ge "$reached" ] || fail "the broker was evicted at step $reached or later, and the job goes on at $saved"
until_true "steps after the checkpoint of step $saved" has_passed long "$saved"
expect_restarts() {
  status_is long restarts 1 || fail "$1: $(status_of long restarts) restarts"
  status_is long restartsCountTowardsMax 0 || fail "$1 counts towards maxRestarts: $(status_of long restartsCountTowardsMax)"
}
expect_restarts "an eviction of the broker"
took "the broker was evicted, and the job goes on at its checkpoint of step $saved"

# ---- its model is changed while it is suspended ----
suspend() {
  k patch fusionjob long --type=merge --patch '{"spec": {"suspend": true}}' >/dev/null
  wait_for long condition=Suspended
}
# resume_with FIELDS: of its spec, in JSON.
resume_with() { k patch fusionjob long --type=merge --patch "{\"spec\": {$1, \"suspend\": false}}" >/dev/null; }
suspend
resume_with '"model": {"config": {"nEmbd": 32}}'
is_kept() { status_is long state Pending && status_is long reason InvalidInput; }
until_true "the job to refuse another model" is_kept
has_not_failed long
said=$(condition_of fusionjob/long Ready message)
[[ $said == *"nEmbd 64 -> 32"*"spec.checkpoint.resume: never"*"set spec.suspend"* ]] || fail "what to do about another model is not told: $said"
running_pods() {
  local cluster
  for cluster in "${machines[@]}"; do
    kubectl_in "$cluster" get pods --selector fusionllm.io/job --field-selector 'status.phase!=Failed,status.phase!=Succeeded' --output name || return
  done
}
until_true "the Pods of a job that waits for another spec to end" empty running_pods
took "another model is refused, and the job kept: $said"
suspend
steps=$(($(status_of long checkpoint.step) + 20))
resume_with "\"model\": {\"config\": {\"nEmbd\": 64}}, \"training\": {\"steps\": $steps}"
wait_for long condition=Complete
status_is long trainerStatus.step $steps || fail "the status tells of step $(step_of long) of $steps"
expect_trained long
expect_restarts "another model"
took "with its own model it has gone on, $(k get fusionjob long --no-headers)"
delete_job long
took "deleted, nothing is left in any cluster"
take_down "before the first step"
