#!/bin/bash
# member_lost.sh: a job over two members, one of which is cut off for longer than its workerLostTimeoutSeconds. Until then nothing of the job is
# replaced; then the cluster counts as lost, the job starts again from its checkpoint with both executors in the other member, and trains on.
# The lost executor runs on meanwhile, where nobody reaches it. The member comes back: what it has of the former attempt goes, nobody else is
# disturbed, no executor is there twice, and the job comes to its end.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
only_on_own "it cuts a link"
lost_after=60  # seconds
bring_up mhub cadiz reims
members_behind 50mbit 20ms
register cadiz "$(for_hub cadiz)" "workerLostTimeoutSeconds: $lost_after"
took "a hub and two members$behind"

job long 1000000 "{name: reims}, {name: cadiz}" "$two_executors" "$with_checkpoints_at_broker"
wait_for long condition=Ready
until_true "checkpoints" has_passed long 100
for member in "${members[@]}"; do
  [ "$(kubectl_in "$member" get pods --output name)" = "pod/long-$member-0-r0" ] || fail "$member did not have its executor"
done
lost=$(pods_of cadiz)
others=$(pods_of "$hub" reims)
took "the job trains, with an executor in each"

# Every status that the job has from here on.
watch_status long '{.status.attempt} {.status.trainerStatus.step}' "$scratch/history"

# ---- away ----
since=$(now)
saved=$(status_of long checkpoint.step)
"$cluster_scripts/link.sh" cut "$hub" cadiz
until_true "cadiz to be missed" condition_is fusioncluster/cadiz Connected False
missed=$(seconds_between "$since" "$(now)")
[ "$(pods_of "$hub" reims)" = "$others" ] || fail "Pods have changed as soon as cadiz was missed: $(pods_of "$hub" reims)"
took "cadiz is cut off, and missed after $missed s"
state_in() { status_of long "clusterStatuses[?(@.name==\"$1\")].state"; }
is_lost() { [ "$(state_in cadiz)" = Lost ]; }
until_true "the job to tell that cadiz is lost" is_lost
told=$(seconds_between "$since" "$(now)")
awk -v told="$told" -v least="$lost_after" 'BEGIN { exit !(told >= least) }' || fail "cadiz was given up after $told s, before its $lost_after s were over"
took "cadiz counts as lost after $told s"
until_true "another attempt" status_is long attempt 1
wait_for long condition=Ready
[ "$(kubectl_in reims get pods --selector fusionllm.io/role=executor --output 'jsonpath={range .items[*]}{.metadata.name} {end}')" = "long-reims-0-r1 long-reims-1-r1 " ] ||
  fail "in reims there is: $(pods_of reims)"
[ "$(pods_of cadiz)" = "$lost" ] || [ "$(pods_of cadiz | cut -d' ' -f1,2)" = "$(cut -d' ' -f1,2 <<<"$lost")" ] || fail "somebody has touched what is in cadiz, which nobody could: $(pods_of cadiz)"
until_true "steps after the checkpoint" has_passed long "$saved"
step=$(step_of long)
until_true "steps after step $step" has_passed long $((step + 20))
status_is long restartsCountTowardsMax 0 || fail "the loss of a cluster counts as a failure of the job"
restarted=$(k get events --field-selector involvedObject.name=long,reason=Restarting --output 'jsonpath={.items[*].message}')
[[ $restarted == *ClusterLost* ]] || fail "the event does not tell why the job was restarted: $restarted"
took "another attempt trains with both executors in reims, $(seconds_between "$since" "$(now)") s after the cut: $restarted"
remade=$(pods_of "$hub" reims)

# ---- back ----
[ -n "$(kubectl_in cadiz get pod long-cadiz-0-r0 --ignore-not-found --output name)" ] || fail "the lost executor has gone by itself, so that its return shows nothing"
since=$(now)
"$cluster_scripts/link.sh" mend "$hub" cadiz
until_true "cadiz to be back" condition_is fusioncluster/cadiz Connected True
until_true "the lost executor to go" empty pods_of cadiz
took "cadiz is back, and clean of the former attempt after $(seconds_between "$since" "$(now)") s"
step=$(step_of long)
until_true "steps after step $step" has_passed long $((step + 20))
[ "$(pods_of "$hub" reims)" = "$remade" ] || fail "the executor that was given up has disturbed others: $(diff <(echo "$remade") <(pods_of "$hub" reims))"
status_is long attempt 1 || fail "there was another attempt: $(status_of long attempt)"
status_is long executors 2/2 || fail "the status tells of $(status_of long executors) executors"
empty pods_of cadiz || fail "in cadiz there is again: $(pods_of cadiz)"
end_watches
below=$(awk -v saved="$saved" '$1 == 1 && $2 != "" && $2 < saved' "$scratch/history")
[ -z "$below" ] || fail "after the checkpoint of step $saved the status went back: $below"
grep -q '^1 [0-9]' "$scratch/history" || fail "no status tells of a step of the second attempt"
took "the job trains on, at step $(step_of long), and was never below the checkpoint of step $saved"

end_soon long 20
expect_trained long
took "$(k get fusionjob long --no-headers)"
delete_job long
took "deleted, nothing is left in any cluster"
take_down "a member lost"
