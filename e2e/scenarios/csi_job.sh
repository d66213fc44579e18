#!/bin/bash
# csi_job.sh: a job over two members whose text is an inline volume of a CSI driver, and whose checkpoints lie in claims of a storage class, which
# the driver provisions. It is suspended and resumed, from what the claims have, and comes to its end. Deleted, nothing is left in any cluster,
# nothing is mounted, and the claims and what they have stay, until they are deleted, too.
# Needs the images of the four programs (make images), helm (controlplane/build.sh) and the driver (csi/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
# shellcheck source=../csi/driver_lib.sh
. "$scenario_folder/../csi/driver_lib.sh"
only_on_own "it runs a CSI driver beside kubelets"
"$csi_folder/build.sh" >/dev/null
bring_up chub cadiz crete
members_behind 50mbit 20ms
for cluster in "${machines[@]}"; do
  start_csi "$cluster"
  mkdir "$(csi_volumes "$cluster")/given/corpus"
  cp "$source_folder/README.md" "$(csi_volumes "$cluster")/given/corpus/"
  kubectl_in "$cluster" apply --filename - >/dev/null <<CLAIM
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: provisioned}
spec: {accessModes: [ReadWriteOnce], storageClassName: folders, resources: {requests: {storage: 1Gi}}}
CLAIM
done
for cluster in "${machines[@]}"; do
  kubectl_in "$cluster" wait --for='jsonpath={.status.phase}=Bound' persistentvolumeclaim/provisioned --timeout="$patience" >/dev/null ||
    fail "no volume is made for the claim in $cluster: $(tail -5 "$state_root/$cluster/logs/csi-provisioner.log")"
done
took "a hub and two members$behind, each with a CSI driver and a claim that it has made a volume for"

data="{kind: text, path: README.md, volume: {csi: {driver: folders.csi.fusionllm.io, readOnly: true, volumeAttributes: {folder: corpus}}}}"
# Each has a block of the model, and so a part of each checkpoint.
stages="2, pins: [{ops: 'block.0.*', device: cadiz-0}, {ops: 'block.1.*', device: crete-0}]"
job train 1000000 "$(one_in_each)" "$two_executors" \
  "  checkpoint: {path: run, everySteps: 20, volume: {persistentVolumeClaim: {claimName: provisioned}}}"
wait_for train condition=Ready
until_true "steps after a checkpoint" has_passed train 30
# parts_in CLUSTER: how many files of checkpoints its claim has that hold what was trained.
parts_in() { find "$(csi_volumes "$1")/claims" -name 'optimizer*.safetensors' | wc -l; }
# mounts_of CLUSTER: how many volumes of the driver its kubelet has for Pods.
mounts_of() { awk -v folder="$state_root/$1/kubelet/pods/" 'index($2, folder) == 1 && /kubernetes.io~csi/ { ++n } END { print n + 0 }' "/proc/$(cat "$state_root/$1/pids/kubelet")/mounts"; }
for member in "${members[@]}"; do
  [ "$(kubectl_in "$member" get pods --selector fusionllm.io/job=train --output 'jsonpath={.items[*].spec.volumes[*].csi.driver}')" = folders.csi.fusionllm.io ] ||
    fail "no Pod in $member has the inline volume"
  [ "$(parts_in "$member")" -ge 1 ] || fail "the claim in $member has no part of a checkpoint"
  [ "$(mounts_of "$member")" = 2 ] || fail "in $member the driver has $(mounts_of "$member") mounts, not one of the text and one of the claim"
done
took "it trains, with the text from inline volumes"

k patch fusionjob train --type=merge --patch '{"spec": {"suspend": true}}' >/dev/null
wait_for train condition=Suspended
saved=$(status_of train checkpoint.step)
step=$(printf 'step-%06d' "$saved")
# The last one of an attempt is all at the broker.
[ "$(find "$(csi_volumes "$hub")/claims" -path "*/$step/manifest.json" | wc -l)" = 1 ] || fail "the hub's claim has no checkpoint of step $saved"
[ "$(parts_in "$hub")" -ge 2 ] || fail "the hub's claim has not all parts of the checkpoint of step $saved"
k patch fusionjob train --type=merge --patch "{\"spec\": {\"suspend\": false, \"training\": {\"steps\": $((saved + 40))}}}" >/dev/null
wait_for train condition=Complete
status_is train trainerStatus.step $((saved + 40)) || fail "the status tells of step $(step_of train) of $((saved + 40))"
status_is train restarts 0 || fail "a suspension counts as $(status_of train restarts) restarts"
first=$(k logs train-broker-r1 --container broker --tail=-1 | sed -n 's/.*"step":\([0-9]*\),.*"type":"step".*/\1/p' | awk 'NR == 1')
[ "${first:-0}" = $((saved + 1)) ] || fail "resumed, it began with step '$first' after a checkpoint of step $saved"
expect_trained train
took "suspended, resumed from step $saved in the claims: $(k get fusionjob train --no-headers)"

delete_job train
# nothing_mounted CLUSTER
nothing_mounted() { [ "$(mounts_of "$1")" = 0 ]; }
for cluster in "${machines[@]}"; do
  until_true "the volumes in $cluster to be taken down" nothing_mounted "$cluster"
  [ -n "$(find "$(csi_volumes "$cluster")/claims" -name '*.safetensors' -o -name manifest.json)" ] || fail "what the claim in $cluster had went with the job"
  kubectl_in "$cluster" delete persistentvolumeclaim provisioned --timeout="$patience" >/dev/null
  no_volume() { empty ls "$(csi_volumes "$1")/claims"; }
  until_true "the volume in $cluster to go with its claim" no_volume "$cluster"
done
took "deleted, nothing is left in any cluster; the claims kept what they had, until they were deleted"
take_down "volumes of a CSI driver"
