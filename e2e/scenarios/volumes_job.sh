#!/bin/bash
# volumes_job.sh: a job over two members whose parts lie in volumes of their own: its model is a graph in a ConfigMap of each cluster, its text
# is in one member alone, which `data.clusters` names, and its journal and checkpoints are in the broker's volume, a claim on the hub. Where the
# text is not, no Pod mounts it. The broker is killed, then its Pod deleted by force: each time the next broker takes the run over from the
# journal, the executors that there are go on, and no status is below the last checkpoint. Suspended and resumed, it comes to its end.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
bring_up jhub arles bergen
members_behind 50mbit 20ms
cat >"$scratch/model.dag" <<'GRAPH'
graph "tiny-lm" {
  tokens = placeholder() {role="tokens", dtype="i32", shape=[b, 64]}
  next = placeholder() {role="labels", dtype="i32", shape=[b, 64]}
  embed = embedding(tokens; @wte, @wpe) {vocab=256, dim=64, positions=64}
  norm = layer_norm(embed)
  qkv = linear(norm) {out=192}
  attn = attention(qkv) {heads=4}
  proj = linear(attn) {out=64, bias=false}
  sum = add(embed, proj)
  final = layer_norm(sum)
  logits = linear(final) {out=256}
  loss = cross_entropy(logits, next)
  return loss
}
GRAPH
for cluster in "${machines[@]}"; do
  kubectl_in "$cluster" create configmap graph --from-file="$scratch/model.dag" >/dev/null
  [ "$cluster" = arles ] || kubectl_in "$cluster" delete configmap text >/dev/null
done
took "a hub and two members$behind; arles alone has the text"

model="{graph: {file: model.dag, volume: {configMap: {name: graph}}}}"
data="{kind: text, path: README.md, volume: {configMap: {name: text}}, clusters: [arles]}"
job kept 1000000 "$(one_in_each)" "$two_executors" "  checkpoint: {everySteps: 20}
  broker: {volume: {persistentVolumeClaim: {claimName: checkpoints}}}"
wait_for kept condition=Ready
# config_maps_in CLUSTER: that Pods of the job mount there.
config_maps_in() { kubectl_in "$1" get pods --selector fusionllm.io/job=kept --output 'jsonpath={.items[*].spec.volumes[*].configMap.name}'; }
for cluster in "${machines[@]}"; do
  mounted=" $(config_maps_in "$cluster") "
  [[ $mounted == *" graph "* ]] || fail "in $cluster nobody mounts the graph, but$mounted"
  if [ "$cluster" = arles ]; then
    [[ $mounted == *" text "* ]] || fail "in arles nobody mounts the text, but$mounted"
  elif [[ $mounted == *" text "* ]]; then
    fail "in $cluster, which has no text, Pods mount it"
  fi
done
has_checkpoint() { [ "$(status_of kept checkpoint.step)" -gt 0 ] 2>/dev/null; }
until_true "its first checkpoint" has_checkpoint
executors=$(pods_of "${members[@]}")
took "the job trains its graph, with the text in one of two members"

# Every status that the job has from here on.
watch_status kept '{.status.attempt} {.status.trainerStatus.step} {.status.checkpoint.step}' "$scratch/history"

# taken_over ATTEMPT HOW: the broker of that attempt goes on with the run from the journal.
taken_over() {
  local saved
  until_true "$2: another attempt" status_is kept attempt "$1"
  wait_for kept condition=Ready
  saved=$(status_of kept checkpoint.step)
  until_true "$2: steps after $saved" has_passed kept "$saved"
  k logs "kept-broker-r$1" --container broker >"$scratch/broker.log"
  head -5 "$scratch/broker.log"
  status_is kept restarts "$1" || fail "$2: the status tells of $(status_of kept restarts) restarts"
  took "$2: the next broker goes on, at step $(step_of kept)"
}
# ---- the broker is killed ----
if here "a broker that is killed: it takes power over its machine"; then
  task=$(ctr --address "$state_root/$hub/run/containerd.sock" --namespace k8s.io tasks list | awk '{ print $2 }' |
    while read -r pid; do if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = fusion-broker ]; then echo "$pid"; fi; done)
  [ -n "$task" ] || fail "the broker has no process"
  kill -KILL "$task"
else
  k delete pod kept-broker-r0 --grace-period=0 --force >/dev/null 2>&1
fi
taken_over 1 "the broker is killed"

# ---- its Pod goes without a word ----
k delete pod kept-broker-r1 --grace-period=0 --force >/dev/null 2>&1
taken_over 2 "the broker's Pod is deleted by force"
end_watches
# An attempt begins with what the checkpoint has: no status may tell of a step before the last one that was told of.
below=$(awk '$3 != "" { if (!($1 in from)) from[$1] = last; if ($2 != "" && $2 < from[$1]) print; last = $3 }' "$scratch/history")
[ -z "$below" ] || fail "the status went back below the checkpoint: $below"
[ "$(pods_of "${members[@]}" | wc -l)" = 2 ] || fail "in the members there is: $(pods_of "${members[@]}")"
took "no status is below a checkpoint"

end_soon kept 20
expect_trained kept
took "$(k get fusionjob kept --no-headers)"
delete_job kept
took "deleted, nothing is left in any cluster"
take_down "parts of a job in volumes of their own"
