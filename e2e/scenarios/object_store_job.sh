#!/bin/bash
# object_store_job.sh: a job over two members whose text and checkpoints lie in a real S3 server, beside the hub's node, with the credentials
# of a Secret that the job names. It is suspended in its middle: its status tells of the checkpoint that the store has as its latest, which is
# of the step it had reached, and so has the replica. Resumed with an end that is near, it begins with that checkpoint, fetched from the store,
# for nothing of it is left in any cluster, and comes to its end; again the status tells what the store has. Neither the job's objects nor its
# Pods hold the secret. Deleted, nothing is left in the clusters, and the store keeps what it has. Another job is deleted in its middle: within ten
# seconds, whatever is on its way to the store.
# Needs the images of the four programs (make images), helm (controlplane/build.sh) and the S3 server (s3server/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
# shellcheck source=../s3server/server_lib.sh
. "$scenario_folder/../s3server/server_lib.sh"
only_on_own "it runs an S3 server beside the hub's node, where all Pods reach it"
fusionctl=$build_folder/bin/fusionctl
[ -x "$fusionctl" ] || die "$fusionctl is not there: make build"
"$s3_folder/build.sh" >/dev/null
bring_up ohub porto turin
serve_s3 "$scratch/store" "$(node_address "$hub")" enter "$hub"  # what becomes of it, it ends with the hub
bucket=$scratch/store/buckets/models
mkdir -p "$bucket/corpus"
cp "$source_folder/README.md" "$bucket/corpus/"
members_behind 50mbit 20ms
for cluster in "${machines[@]}"; do
  kubectl_in "$cluster" create secret generic store --from-literal="AWS_ACCESS_KEY_ID=$s3_key" --from-literal="AWS_SECRET_ACCESS_KEY=$s3_secret" \
    --from-literal="AWS_REGION=$s3_region" --from-literal="AWS_ENDPOINT_URL_S3=$s3_url" >/dev/null
done
took "a hub with a store beside it, and two members$behind"

# in_store RUN: the step of the latest checkpoint there, which is whole.
in_store() {
  local latest
  latest=$(cat "$bucket/$1/latest") || fail "$1 has no latest"
  "$fusionctl" checkpoint verify "$bucket/$1/$latest" >/dev/null || fail "$1/$latest is not whole"
  echo $((10#${latest#step-}))
}
# expect_kept STEP: by the status and by both places.
expect_kept() {
  local run
  status_is kept checkpoint.step "$1" || fail "the status tells of the checkpoint of step $(status_of kept checkpoint.step), not of $1"
  for run in runs/kept copies/kept; do
    [ "$(in_store $run)" = "$1" ] || fail "the latest checkpoint of $run is of step $(in_store $run), and the status tells of step $1"
  done
}

data="{kind: text, path: s3://models/corpus/}"
job kept 1000000 "$(one_in_each)" "$two_executors" "  objectStore: {secretName: store}
  checkpoint: {path: s3://models/runs/kept, everySteps: 20, keep: 2, replica: {path: s3://models/copies/kept, everySteps: 40}}"
wait_for kept condition=Ready
has_checkpoint() { [ "$(status_of "$1" checkpoint.step)" -gt 0 ] 2>/dev/null; }
until_true "its first checkpoint" has_checkpoint kept
status_is kept checkpoint.uri s3://models/runs/kept || fail "the status says that checkpoints are in '$(status_of kept checkpoint.uri)'"
[ "$(in_store runs/kept)" -ge "$(status_of kept checkpoint.step)" ] || fail "the status tells of a checkpoint that the store has not got"
for cluster in "${machines[@]}"; do
  kubectl_in "$cluster" get pods,configmaps --output yaml >"$scratch/objects"
  if [ "$cluster" = "$hub" ]; then k get fusionjobs --output yaml >>"$scratch/objects"; fi
  grep -q 'name: AWS_SECRET_ACCESS_KEY' "$scratch/objects" || fail "no Pod in $cluster is given credentials"
  if grep -qF "$s3_secret" "$scratch/objects"; then fail "an object in $cluster holds what is secret"; fi
done
took "the job trains, with data and checkpoints in the store"

k patch fusionjob kept --type=merge --patch '{"spec": {"suspend": true}}' >/dev/null
wait_for kept condition=Suspended
reached=$(step_of kept)
expect_kept "$reached"
for cluster in "${machines[@]}"; do
  empty pods_of "$cluster" || fail "of a suspended job there is in $cluster: $(pods_of "$cluster")"
done
took "suspended at step $reached, of which the status, the store and the replica have the checkpoint"

steps=$((reached + 30))
k patch fusionjob kept --type=merge --patch "{\"spec\": {\"suspend\": false, \"training\": {\"steps\": $steps}}}" >/dev/null
wait_for kept condition=Complete
k logs kept-broker-r1 --container broker >"$scratch/broker.log"
grep '"CheckpointFetched"' "$scratch/broker.log" | grep -q 's3://models/runs/kept' || fail "it did not begin with the store's checkpoint"
first=$(sed -n 's/.*"step":\([0-9]*\),.*"type":"step".*/\1/p' "$scratch/broker.log" | head -1)
[ "$first" = $((reached + 1)) ] || fail "resumed after step $reached, it begins with step $first"
status_is kept trainerStatus.step $steps || fail "the status tells of step $(step_of kept) of $steps"
expect_kept $steps
status_is kept restarts 0 || fail "a suspension counts as $(status_of kept restarts) restarts"
expect_trained kept
took "resumed from the store, $(k get fusionjob kept --no-headers)"

delete_job kept
[ "$(in_store runs/kept)" = $steps ] || fail "the store has lost the job's last checkpoint"
took "deleted, nothing is left in any cluster, and the store has what it had"

# ---- deleted in its middle, with checkpoints that pass through the broker and have copies ----
job cut 1000000 "$(one_in_each)" "$two_executors" "  objectStore: {secretName: store}
  checkpoint: {path: s3://models/runs/cut, everySteps: 20, keep: 2, shards: Broker, replica: {path: s3://models/copies/cut, everySteps: 20}}"
wait_for cut condition=Ready
until_true "its first checkpoint" has_checkpoint cut
since=$(now)
k delete fusionjob cut --timeout="$patience" >/dev/null || fail "the job cut is not deleted"
gone_after=$(seconds_between "$since" "$(now)")
at_most "$gone_after" 10 "deleting a job whose checkpoints have copies in a store"
in_store runs/cut >/dev/null
for cluster in "${machines[@]}"; do until_true "$cluster to be clean of jobs" nothing_left_in "$cluster"; done
took "deleted in its middle within $gone_after s, and the store has its last checkpoint"
end_s3
take_down "data and checkpoints in a store"
