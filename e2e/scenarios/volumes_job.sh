#!/bin/bash
# volumes_job.sh: a job over two members whose parts lie in volumes of their own: its model is a graph in a ConfigMap of each cluster, its text
# is in one member alone, which `data.clusters` names, and its journal and checkpoints are in the broker's volume, a claim on the hub. Where the
# text is not, no Pod mounts it. The broker is killed, then its Pod deleted by force: each time another attempt begins, of whose executors there
# is one in each member and none of the attempt before; its broker takes the run over from the journal, as the number of its plan tells, and
# goes on behind the last checkpoint, below which no status is. Suspended and resumed, it comes to its end.
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
took "the job trains its graph, with the text in one of two members"

# Every status that the job has from here on.
watch_status kept '{.status.attempt} {.status.trainerStatus.step} {.status.checkpoint.step}' "$scratch/history"

# read_log ATTEMPT: of its broker, to $scratch/broker.log. There: the numbers of its plans, which begin with 1 where there is no journal, and its
# steps.
read_log() { k logs "kept-broker-r$1" --container broker --tail=-1 >"$scratch/broker.log"; }
plans() { sed -n 's/.*plan epoch \([0-9]*\) on .*/\1/p' "$scratch/broker.log"; }
steps() { sed -n 's/.*"step":\([0-9]*\),.*"type":"step".*/\1/p' "$scratch/broker.log"; }
makes_steps() { read_log "$1" && [ -n "$(steps)" ]; }
# about_to_be_lost ATTEMPT: what its broker has reached by now.
about_to_be_lost() {
  read_log "$1"
  plan=$(plans | tail -1)
  [ -n "$plan" ] || fail "the broker of attempt $1 tells of no plan: $(tail -5 "$scratch/broker.log")"
  saved=$(status_of kept checkpoint.step)
}
# taken_over ATTEMPT HOW: that attempt has executors of its own alone, and its broker goes on with the run from the journal.
taken_over() {
  local next first step
  until_true "$2: another attempt" status_is kept attempt "$1"
  wait_for kept condition=Ready
  executors() { pods_of "${members[@]}" | cut -d' ' -f1; }
  executors_are() { [ "$(executors)" = "$1" ]; }
  until_true "$2: an executor of attempt $1 in each member; there are: $(executors | tr '\n' ' ')" executors_are "$(printf "kept-%s-0-r$1\n" "${members[@]}")"
  until_true "$2: a step of the next broker" makes_steps "$1"
  next=$(plans | awk 'NR == 1')
  [ "${next:-0}" -gt "$plan" ] || fail "$2: the next broker has not read the journal: its first plan is number '$next', and number $plan was in force before"
  first=$(steps | awk 'NR == 1')
  [ "${first:-0}" -gt "$saved" ] || fail "$2: the next broker begins with step '$first', and there was a checkpoint of step $saved"
  step=$(step_of kept)
  until_true "$2: a status after step $step" has_passed kept "$step"
  status_is kept restarts "$1" || fail "$2: the status tells of $(status_of kept restarts) restarts"
  took "$2: the next broker goes on with plan $next after plan $plan, from step $first after a checkpoint of step $saved, at step $(step_of kept)"
}
# ---- the broker is killed ----
about_to_be_lost 0
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
about_to_be_lost 1
k delete pod kept-broker-r1 --grace-period=0 --force >/dev/null 2>&1
taken_over 2 "the broker's Pod is deleted by force"
end_watches
# An attempt begins with what the checkpoint has: no status may tell of a step before the last one that was told of until then. What a status
# does not tell is empty, between single spaces.
wrong=$(awk -F'[ ]' '
  !($1 in from) { from[$1] = last + 0; before[$1] = step + 0 }
  $2 != "" && $2 + 0 < from[$1] { print "below the checkpoint of step " from[$1] ": " $0 }
  $2 != "" && $2 + 0 > before[$1] { beyond[$1] }
  $2 != "" && $2 + 0 > step + 0 { step = $2 }
  $3 != "" { last = $3 }
  END { for (attempt = 0; attempt <= 2; ++attempt) if (!(attempt in beyond)) print "no status of attempt " attempt " tells of a step of its own" }
' "$scratch/history")
[ -z "$wrong" ] || fail "what the status has told: $wrong"
took "no status is below a checkpoint"

end_soon kept 20
expect_trained kept
took "$(k get fusionjob kept --no-headers)"
delete_job kept
took "deleted, nothing is left in any cluster"
take_down "parts of a job in volumes of their own"
