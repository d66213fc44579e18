#!/bin/bash
# two_members_job.sh: a job over two member clusters behind slow links. A hub and two members come up, their links are shaped; helm installs
# the operator on the hub; members are registered by Secrets with kubeconfigs; a job with an executor in each trains to its end; a member's
# API server hangs while another job trains, and comes back; a job is deleted while a member is away; nothing is left anywhere.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../cluster/names_lib.sh
. "$here/../cluster/names_lib.sh"
# shellcheck source=../smoke/checks_lib.sh
. "$here/../smoke/checks_lib.sh"
hub=fhub
members=(paris tokyo)
source=$here/../..
patience=600s  # for anything; the machine may do other things, too
for name in operator broker scheduler executor; do
  [ -r "$build_folder/images/$name.tar" ] || die "$build_folder/images/$name.tar is not there: make images"
done

started=$SECONDS
step=$SECONDS
took() {
  echo "$((SECONDS - step)) s: $*"
  step=$SECONDS
}
trap '"$here/../cluster/down.sh" "$hub" "${members[@]}"' EXIT
"$here/../cluster/up.sh" "$hub" "${members[@]}" >/dev/null
for member in "${members[@]}"; do "$here/../cluster/link.sh" shape "$hub" "$member" 50mbit 20ms; done
took "a hub and two members are up, behind links of 50 Mbit/s and 20 ms"
k() { kubectl_of "$hub" --namespace team "$@"; }
helm() { "$state_root/bin/helm" --kubeconfig "$state_root/$hub/admin.kubeconfig" --namespace fusionllm "$@"; }
operator_says() { kubectl_of "$hub" --namespace fusionllm logs --tail=60 deployment/fusion-fusionllm >&2 || true; }
# until_true WHAT COMMAND...
until_true() {
  local what=$1 deadline=$((SECONDS + ${patience%s}))
  shift
  until "$@"; do
    [ $SECONDS -lt $deadline ] || { operator_says; fail "waited in vain for $what"; }
    sleep 0.5
  done
}
condition_of() { k get "$1" --output "jsonpath={.status.conditions[?(@.type==\"$2\")].status}"; }
condition_is() { [ "$(condition_of "$1" "$2")" = "$3" ]; }
step_of() { k get fusionjob "$1" --output 'jsonpath={.status.trainerStatus.step}'; }
has_passed() { [ "$(step_of "$1")" -gt "$2" ]; }
left_in() { kubectl_of "$1" --namespace team get pods,configmaps,secrets,services --selector fusionllm.io/job --output name; }
nothing_left_in() { [ -z "$(left_in "$1")" ]; }

"$here/../cluster/import-image.sh" "$hub" "$build_folder/images/"{operator,broker,scheduler}.tar
restricted_namespace "$hub" fusionllm
restricted_namespace "$hub" team
k create configmap text --from-file="$source/README.md" >/dev/null
for member in "${members[@]}"; do
  "$here/../cluster/import-image.sh" "$member" "$build_folder/images/executor.tar"
  restricted_namespace "$member" team
  kubectl_of "$member" --namespace team create configmap text --from-file="$source/README.md" >/dev/null
done
helm install fusion "$source/helm/fusionllm" --set image.pullPolicy=Never --wait --timeout $patience >/dev/null
for member in "${members[@]}"; do
  kubectl_of "$hub" --namespace fusionllm create secret generic "$member" --from-file="kubeconfig=$state_root/$member/admin.kubeconfig" >/dev/null
  kubectl_of "$hub" apply --filename - >/dev/null <<CLUSTER
apiVersion: fusionllm.io/v1alpha1
kind: FusionCluster
metadata: {name: $member}
spec: {kubeConfig: {location: $member}}
CLUSTER
done
for member in "${members[@]}"; do until_true "the connection to $member" condition_is "fusioncluster/$member" Connected True; done
took "the operator is connected to both"

# job NAME STEPS CLUSTERS: two executors in the clusters of that list
job() {
  k apply --filename - >/dev/null <<JOB
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: $1}
spec:
  model: {family: gpt2, config: {nLayer: 2, nHead: 2, nEmbd: 64, vocabSize: 256, blockSize: 64}}
  data: {kind: text, path: README.md, volume: {configMap: {name: text}}}
  training: {steps: $2, globalBatchSize: 8, microBatchSize: 2, sequenceLength: 64}
  strategy: {stages: 2}
  compression: {policy: adatopk, codec: auto}
  executors: {replicas: 2, threads: 1}
  placement: {clusters: [$3]}
  network: {mode: Relay}
JOB
}

# ---- to its end ----
both="{name: ${members[0]}, min: 1}, {name: ${members[1]}, min: 1}"
job short 60 "$both"
k wait --for=condition=Complete fusionjob/short --timeout=$patience >/dev/null || { operator_says; k describe fusionjob short >&2; fail "no end"; }
for member in "${members[@]}"; do
  [ "$(kubectl_of "$member" --namespace team get pods --output name)" = "pod/short-$member-0-r0" ] || fail "$member did not have its executor"
done
loss=$(k get fusionjob short --output 'jsonpath={.status.trainerStatus.loss}')
awk -v loss="$loss" 'BEGIN { exit !(loss > 0 && loss < 5) }' || fail "the loss in the status is '$loss'"
took "$(k get fusionjob short --output wide --no-headers), loss $loss"
k delete fusionjob short --timeout=$patience >/dev/null || fail "the job is not deleted"
for cluster in "$hub" "${members[@]}"; do until_true "$cluster to be clean" nothing_left_in "$cluster"; done
took "deleted, nothing is left in any cluster"

# ---- a member's API server hangs ----
job long 1000000 "$both"
k wait --for=condition=Ready fusionjob/long --timeout=$patience >/dev/null || { operator_says; fail "the second job is not ready"; }
until_true "its first steps" has_passed long 0
"$here/../cluster/daemon.sh" pause tokyo kube-apiserver
took "the second job trains; the API server of tokyo hangs"
before=$(step_of long)
until_true "steps while tokyo is away" has_passed long $((before + 20))
job other 40 "{name: paris, min: 2}"
k wait --for=condition=Complete fusionjob/other --timeout=$patience >/dev/null || { operator_says; fail "a job in paris waits for tokyo"; }
took "training went on, and a job in paris alone has come to its end"
k delete fusionjob other long --wait=false >/dev/null
until_true "paris to be clean" nothing_left_in paris
[ "$(k get fusionjob long --output 'jsonpath={.metadata.name}')" = long ] || fail "the job was let go while objects are left in tokyo"
"$here/../cluster/daemon.sh" resume tokyo kube-apiserver
k wait --for=delete fusionjob/long --timeout=$patience >/dev/null || { operator_says; fail "the job is not deleted"; }
for cluster in "$hub" "${members[@]}"; do until_true "$cluster to be clean" nothing_left_in "$cluster"; done
took "deleted while tokyo was away, clean once it was back"

helm uninstall fusion --wait --timeout $patience >/dev/null 2>&1
"$here/../cluster/down.sh" "$hub" "${members[@]}"
trap - EXIT
echo "two members, one job: passed in $((SECONDS - started)) s"
