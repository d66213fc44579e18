#!/bin/bash
# site_lost.sh: jobs over two members, each of which keeps its part of every checkpoint; one member is cut off for longer than its
# workerLostTimeoutSeconds. The job with a replica on the hub starts again in the other member, from the copy of a checkpoint whose parts
# nobody can reach. The one without waits, and says for what; when the member is back it goes on from the parts that both still have. No
# status of either is below the last checkpoint that could be restored. Both come to their end.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
only_on_own "it cuts a link, and looks into volumes"
lost_after=60  # seconds
bring_up shub porto turku
members_behind 50mbit 20ms
make_claim "$hub" replicas
register porto "$(for_hub porto)" "workerLostTimeoutSeconds: $lost_after"
took "a hub and two members$behind"

# checkpoints_at PATH [MORE]
checkpoints_at() { echo "  checkpoint: {path: $1, everySteps: 20, volume: {persistentVolumeClaim: {claimName: checkpoints}}${2:-}}"; }
replica=", replica: {path: copies, volume: {persistentVolumeClaim: {claimName: replicas}}}"
# Left to itself the planner gives one of them next to nothing, and no parameters. The attempt without porto drops the pin to it.
stages="2, pins: [{ops: 'block.0.*', device: porto-0}, {ops: 'block.1.*', device: turku-0}]"
job copied 1000000 "{name: turku}, {name: porto}" "$two_executors" "$(checkpoints_at copied "$replica")"
job apart 1000000 "$(one_in_each)" "$two_executors" "$(checkpoints_at apart)"
# parts_in CLUSTER PATH: files with tensors that were trained.
keeps_part() { [ -n "$(parts_in "$@")" ]; }
parts_in() { find "$state_root/$1/volumes/checkpoints/$2" -name 'optimizer*.safetensors' 2>/dev/null; }
copies() { find "$state_root/$hub/volumes/replicas/copies" -path '*/copies/step-*/manifest.json' 2>/dev/null | sort; }
has_copy() { [ -n "$(copies)" ]; }
for name in copied apart; do
  wait_for $name condition=Ready
  until_true "checkpoints of $name" has_passed $name 50
  for member in "${members[@]}"; do
    until_true "$member to keep a part of a checkpoint of $name" keeps_part "$member" $name
    [ "$(kubectl_in "$member" get pod "$name-$member-0-r0" --output name)" ] || fail "$member has no executor of $name"
  done
done
until_true "a copy in the replica" has_copy
took "both train, each member keeps its part of their checkpoints"

# Every status that they have from here on.
for name in copied apart; do watch_status $name '{.status.attempt} {.status.trainerStatus.step}' "$scratch/$name.history"; done

# ---- away ----
since=$(now)
copied_at=$(basename "$(dirname "$(copies | tail -1)")")
copied_at=$((10#${copied_at#step-}))
"$cluster_scripts/link.sh" cut "$hub" porto
saved=$(status_of apart checkpoint.step)
is_lost() { [ "$(status_of "$1" 'clusterStatuses[?(@.name=="porto")].state')" = Lost ]; }
for name in copied apart; do until_true "$name to tell that porto is lost" is_lost $name; done
took "porto is cut off, and counts as lost after $(seconds_between "$since" "$(now)") s"
until_true "another attempt of the job with a replica" status_is copied attempt 1
wait_for copied condition=Ready
reason_is fusionjob/copied Scheduled StrategyAdapted || fail "of the pin to porto the job says: $(condition_of fusionjob/copied Scheduled message)"
until_true "steps after its checkpoint" has_passed copied "$copied_at"
[ "$(kubectl_in turku get pods --selector fusionllm.io/job=copied --output 'jsonpath={range .items[*]}{.metadata.name} {end}')" = "copied-turku-0-r1 copied-turku-1-r1 " ] ||
  fail "in turku there is: $(pods_of turku)"
step=$(step_of copied)
until_true "steps after step $step" has_passed copied $((step + 20))
took "the job with a replica trains in turku alone, $(seconds_between "$since" "$(now)") s after the cut, from step $copied_at or later"
waits_for_site() { [[ $(k logs apart-broker-r0 --container broker --tail=-1) == *"lie in site porto"*" is waited for"* ]]; }
until_true "the job without a replica to say what it waits for" waits_for_site
status_is apart attempt 0 || fail "the job without a replica was restarted: $(status_of apart restarts)"
saved=$(status_of apart checkpoint.step)  # as it is told after its last step
stands=$(step_of apart)
[ "$stands" -lt $((saved + 40)) ] || fail "without the parts in porto the job has gone on, from step $saved to $stands"
took "the one without waits, at step $stands, of which step $saved is kept"

# ---- back ----
since=$(now)
"$cluster_scripts/link.sh" mend "$hub" porto
until_true "porto to be back" condition_is fusioncluster/porto Connected True
wait_for apart condition=Ready
until_true "steps after its checkpoint" has_passed apart "$saved"
took "porto is back, and the job without a replica trains again $(seconds_between "$since" "$(now)") s later, at step $(step_of apart)"
for name in copied apart; do
  step=$(step_of $name)
  until_true "steps of $name after step $step" has_passed $name $((step + 20))
done
end_watches
# expect_not_below NAME STEP: once a status has told of it; a copy may be there before.
expect_not_below() {
  local wrong
  wrong=$(awk -v saved="$2" '
    $2 == "" { next }
    $2 + 0 >= saved + 0 { since = 1 }
    since && $2 + 0 < saved + 0 { print "it went back: " $0 }
    $2 + 0 > saved + 0 { beyond = 1 }
    END { if (!beyond) print "no status tells of a later step" }' "$scratch/$1.history")
  [ -z "$wrong" ] || fail "the status of $1, after the checkpoint of step $2: $wrong"
}
expect_not_below copied "$copied_at"
expect_not_below apart "$saved"
grep -q '^1 [0-9]' "$scratch/copied.history" || fail "no status tells of a step of another attempt"
took "neither was below its checkpoint, of step $copied_at and $saved"

for name in copied apart; do
  end_soon $name 20
  expect_trained $name
  took "$(k get fusionjob $name --no-headers)"
done
k delete fusionjob apart --timeout="$patience" >/dev/null
delete_job copied
took "deleted, nothing is left in any cluster"
take_down "a site lost"
