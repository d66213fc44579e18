#!/bin/bash
# missing_objects.sh: a job whose executors mount a Secret that a member does not have says so, and makes no Pod anywhere, also when it has been
# looked for again; when it is there without the key that they mount, the job says which key it lacks and which there are; when that is there, too,
# the job begins by itself. Then somebody deletes, while it starts, what its Pods need: Secrets, the job's document, the Service at which executors
# dial the broker. Nobody tells the operator of that; it looks again, and all is there within a minute or so, the Service at the node port that
# executors were told. The job, whose Pods have waited at a gate meanwhile, starts, and comes to its end.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
again_within=90  # seconds: it is looked once a minute, and then there is something to do
bring_up ghub minsk
members_behind 50mbit 20ms
took "a hub and a member$behind"

# Pods that a scheduler leaves alone until somebody opens the gate wait, as they would for what is deleted meanwhile.
mounting() {
  echo "{spec: {schedulingGates: [{name: fusionllm.io/e2e}],
    volumes: [{name: later, secret: {secretName: later, items: [{key: word, path: word}]}}],
    containers: [{name: $1, volumeMounts: [{name: later, mountPath: /later}]}]}}"
}
k create secret generic later --from-literal=word=now >/dev/null
job short 60 "{name: minsk, min: 2}" "{replicas: 2, threads: 1, template: $(mounting executor)}" "  broker: {template: $(mounting broker)}"
refused() { reason_is fusionjob/short Scheduled ObjectMissing; }
until_true "the job to miss a Secret" refused
missing=$(condition_of fusionjob/short Scheduled message)
[ "$missing" = "Cluster minsk: namespace team has no Secret later (volume later of the executor)." ] || fail "the job says: $missing"
sleep 40  # it is looked for every 15 s
empty pods_of "${machines[@]}" || fail "there are Pods that wait in vain: $(pods_of "${machines[@]}")"
took "the job says what is missing"

kubectl_in minsk create secret generic later --from-literal=wrod=now >/dev/null
lacks_the_key() {
  [ "$(condition_of fusionjob/short Scheduled message)" = \
    "Cluster minsk: namespace team has no key word in Secret later (volume later of the executor; its keys: wrod)." ]
}
until_true "the job to name the key, not: $(condition_of fusionjob/short Scheduled message)" lacks_the_key
empty pods_of "${machines[@]}" || fail "there are Pods that wait in vain: $(pods_of "${machines[@]}")"
took "the job says which key is missing"

kubectl_in minsk patch secret later --type=merge --patch '{"stringData": {"word": "now"}}' >/dev/null
begun() { [ "$(pods_of minsk | wc -l)" = 2 ] && [ -n "$(uid_of "$hub" short-broker-r0)" ]; }
until_true "the job's Pods" begun
starting() { condition_is fusionjob/short Ready False && status_is short state Starting; }
until_true "the job to wait for its executors" starting
pods=$(pods_of "${machines[@]}" | cut -d' ' -f1,2)
port_of() { k get service short-broker --output 'jsonpath={.spec.ports[0].nodePort}'; }
port=$(port_of)
objects_in() { kubectl_in "$1" get secrets,configmaps,services --selector fusionllm.io/job=short --output name; }
objects() { for cluster in "${machines[@]}"; do objects_in "$cluster" | sed "s,^,$cluster ," || return; done; }
before=$(objects)
for name in "minsk secret/short-executors" "$hub secret/short-broker" "$hub configmap/short-job" "$hub service/short-broker"; do
  grep -qx "$name" <<<"$before" || fail "there is no $name, but: $before"
done
took "a job waits for its executors"

kubectl_in minsk delete secret short-executors >/dev/null
k delete secret/short-broker configmap/short-job service/short-broker >/dev/null
since=$(now)
left=$(objects)
[ "$left" != "$before" ] || fail "what was deleted is there: it proves nothing"
as_before() { [ "$(objects)" = "$before" ]; }
until_true "what was deleted; there is: $(objects | tr '\n' ' ')" as_before
waited=$(seconds_between "$since" "$(now)")
at_most "$waited" $again_within "what was deleted to be made again"
[ "$(port_of)" = "$port" ] || fail "executors were told of port $port, and the Service is at $(port_of)"
[ "$(pods_of "${machines[@]}" | cut -d' ' -f1,2)" = "$pods" ] || fail "Pods have changed: $(pods_of "${machines[@]}")"
took "all that was deleted is there again after $waited s"

for cluster in "${machines[@]}"; do
  for pod in $(kubectl_in "$cluster" get pods --selector fusionllm.io/job=short --output name); do
    kubectl_in "$cluster" patch "$pod" --type=json --patch '[{"op": "remove", "path": "/spec/schedulingGates"}]' >/dev/null
  done
done
wait_for short condition=Complete
expect_trained short
status_is short restarts 0 || fail "the job was restarted"
took "the job has started with them, $(k get fusionjob short --no-headers)"
for cluster in "${machines[@]}"; do kubectl_in "$cluster" delete secret later >/dev/null; done
delete_job short
took "deleted, nothing is left in any cluster"
take_down "what somebody deletes is made again"
