#!/bin/bash
# replicas_job.sh: a job over two members has two pipelines side by side, one in each cluster, which share each batch and add up their
# gradients over the link between them. One loses its executor's Pod: the other trains on from the last checkpoint, whose parts the Pod that
# comes in its place brings. Whether the two train together again is the broker's to say: over this link so small a model is faster alone. A
# job that would need what replicas cannot have is refused by name. The job comes to its end.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
bring_up ahub rome bonn
members_behind 50mbit 10ms
took "a hub and two members$behind"

refusal=$(replicas=2 compression="{policy: uniform, codec: int8, errorFeedback: true}" job residuals 10 "$(one_in_each)" 2>&1) &&
  fail "a job with replicas and error feedback was taken"
[[ $refusal == *spec.compression.errorFeedback* ]] || fail "the refusal does not name the field: $refusal"

impatient="{replicas: 2, threads: 1, template: {spec: {terminationGracePeriodSeconds: 5}}}"
stages=1 replicas=2 job pair 1000000 "$(one_in_each)" "$impatient" "$with_checkpoints"
wait_for pair condition=Ready
until_true "a checkpoint" has_passed pair 20
status_is pair plan.stages 1 || fail "the status tells of $(status_of pair plan.stages) stages"
status_is pair plan.replicas 2 || fail "the status tells of $(status_of pair plan.replicas) replicas"
# Whole logs: a program that still writes to a grep that has ended fails.
plan=$(k logs pair-broker-r0 --tail=-1 | grep '"type":"plan"' | tail -1)
[[ $plan == *'"replicas":2'* ]] || fail "the plan of the job has not two replicas: ${plan:0:300}"
[[ $(kubectl_in bonn logs pair-bonn-0-r0 --tail=-1) == *'communicates by messages'* ]] || fail "the executor in bonn does not say how replicas meet"
took "two replicas train, at step $(step_of pair)"

before=$(uid_of bonn pair-bonn-0-r0)
kubectl_in bonn delete pod pair-bonn-0-r0 --wait=false >/dev/null
until_true "a new executor in bonn" uid_is_new bonn pair-bonn-0-r0 "$before"
wait_for pair condition=Ready
step=$(step_of pair)
until_true "steps after step $step" has_passed pair $((step + 20))
status_is pair restarts 0 || fail "the whole job was restarted"
says_whether_two_pay() { [[ $(k logs pair-broker-r0 --tail=-1) == *'"reason":"ReplanDeclined"'* ]]; }
until_true "the broker's word whether two replicas pay" says_whether_two_pay
took "the Pod of a replica was deleted: the job trains on, at step $(step_of pair)"

end_soon pair 20
expect_trained pair
took "$(k get fusionjob pair --no-headers)"
delete_job pair
took "deleted, nothing is left in any cluster"
take_down "replicas in two clusters"
