#!/bin/bash
# suspend_resume.sh: a job over two members is suspended in its middle: it leaves a checkpoint of the step it had reached, and no Pod in any
# cluster. While it stands still it is given another number of steps. Resumed, it goes on from that checkpoint, in no status below it, and
# comes to its end with its loss in the status; none of it counts as a restart. Checkpoints lie in a claim of the hub's, their parts in those of
# the members while it trains; those of the last one are brought to the hub when it is suspended.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
bring_up rhub lima oslo
members_behind 50mbit 20ms
took "a hub and two members$behind"

job long 1000000 "$(one_in_each)" "$two_executors" "$with_checkpoints"
wait_for long condition=Ready
until_true "its first steps" has_passed long 5
took "the job trains"

# parts_in CLUSTER: files with tensors in its claim.
parts_in() { find "$state_root/$1/volumes/checkpoints/run" -ignore_readdir_race -name '*.safetensors' 2>/dev/null; }
if ! given; then
  has_saved() { [ "$(status_of long checkpoint.step)" -gt 0 ] 2>/dev/null; }
  until_true "its first checkpoint" has_saved
  for member in "${members[@]}"; do [ -n "$(parts_in "$member")" ] || fail "$member keeps no part of a checkpoint"; done
  empty parts_in "$hub" || fail "parts of checkpoints came to the hub: $(parts_in "$hub")"
  took "each member keeps its part of a checkpoint"
fi

# Every status that the job has from here on.
history=$scratch/history
watch_status long '{.status.state} {.status.trainerStatus.step} {.status.restarts}' "$history"

k patch fusionjob long --type=merge --patch '{"spec": {"suspend": true}}' >/dev/null
wait_for long condition=Suspended
took "suspended"
reached=$(step_of long)
saved=$(status_of long checkpoint.step)
[ "$saved" = "$reached" ] || fail "suspended at step $reached, with a checkpoint of step $saved"
given || [ -d "$state_root/$hub/volumes/checkpoints/run/step-$(printf '%06d' "$saved")" ] || fail "the claim has no checkpoint of step $saved"
given || [ "$(parts_in "$hub" | grep -c "/step-$(printf '%06d' "$saved")/model-")" = 2 ] ||
  fail "of the checkpoint of step $saved the hub has: $(parts_in "$hub")"
reason_is fusionjob/long Ready Suspended || fail "a suspended job is Ready for the reason $(condition_of fusionjob/long Ready reason)"
for cluster in "$hub" "${members[@]}"; do
  empty pods_of "$cluster" || fail "of a suspended job there is in $cluster: $(pods_of "$cluster")"
done
refused=$(k patch fusionjob long --type=merge --patch '{"spec": {"managedBy": "somebody"}}' 2>&1) && fail "managedBy was changed"
[[ $refused == *managedBy* ]] || fail "the refusal does not name the field: $refused"

steps=$((saved + 40))
k patch fusionjob long --type=merge --patch "{\"spec\": {\"suspend\": false, \"training\": {\"steps\": $steps}}}" >/dev/null
wait_for long condition=Complete
took "resumed, $(k get fusionjob long --no-headers)"
status_is long trainerStatus.step $steps || fail "the status tells of step $(step_of long) of $steps"
status_is long checkpoint.step $steps || fail "the last checkpoint is of step $(status_of long checkpoint.step), not of the last step, $steps"
status_is long restarts 0 || fail "a suspension counts as $(status_of long restarts) restarts"
condition_is fusionjob/long Suspended False || fail "a job that was resumed still says Suspended"
expect_trained long
end_watches
below=$(awk -F'[ ]' -v saved="$saved" '$1 == "Suspended" { since = 1 } since && $2 != "" && $2 + 0 < saved + 0' "$history")
[ -z "$below" ] || fail "after the checkpoint of step $saved the status went back: $below"
grep -q "^Suspended $saved 0" "$history" || fail "the state was never Suspended at step $saved: $(tail -5 "$history")"

delete_job long
took "deleted"

# ---- deleted in its middle ----
job cut 1000000 "$(one_in_each)" "$two_executors" "${with_checkpoints/path: run/path: cut}"
wait_for cut condition=Ready
has_checkpoint() { [ "$(status_of cut checkpoint.step)" -gt 0 ] 2>/dev/null; }
until_true "its first checkpoint" has_checkpoint
since=$(now)
k delete fusionjob cut --timeout="$patience" >/dev/null
gone_after=$(seconds_between "$since" "$(now)")
given || at_most "$gone_after" 10 "deleting a job whose checkpoints have parts in members"
for member in "${members[@]}"; do
  given || [ -n "$(find "$state_root/$member/volumes/checkpoints/cut" -name '*.safetensors')" ] || fail "the parts in $member are gone"
done
for reason in WaitingForSite CollectingShards; do  # events outlive their job
  told=$(k get events --field-selector "involvedObject.name=cut,reason=$reason" --output name)
  [ -z "$told" ] || fail "a deleted job waits for its members, or collects what they have: $told"
done
if ! given; then
  brought=$(find "$state_root/$hub/volumes/checkpoints/cut" -name '*.safetensors')
  [ -z "$brought" ] || fail "a deleted job has brought parts of its checkpoints to the hub: $brought"
fi
for cluster in "$hub" "${members[@]}"; do until_true "$cluster to be clean of jobs" nothing_left_in "$cluster"; done
took "deleted in its middle within $gone_after s, nothing is left in any cluster"
take_down "suspended and resumed"
