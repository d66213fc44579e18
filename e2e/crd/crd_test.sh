#!/bin/bash
# What a real API server makes of crds/: it takes the definitions and the example jobs, refuses what refused.yaml lists with words that name
# the field, guards updates, and prints, scales, selects and explains as promised.
#   HUB_KUBECONFIG  the cluster to ask; skipped when unset. kubectl comes from KUBECTL or PATH, fusionctl from FUSIONCTL or build/bin.
# Works in a namespace of its own and deletes it; definitions that were there before stay, brought up to date.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -z "${HUB_KUBECONFIG:-}" ]; then
  echo "skipped: HUB_KUBECONFIG names no cluster (make e2e-up prints one)"
  exit 0
fi
kubectl=${KUBECTL:-kubectl}
namespace=crd-test-$$
work=$(mktemp -d)
failures=0 checks=0
definitions=(crds/fusionllm.io_fusionjobs.yaml crds/fusionllm.io_fusionclusters.yaml)
names=(customresourcedefinition/fusionjobs.fusionllm.io customresourcedefinition/fusionclusters.fusionllm.io)

hub=("$kubectl" --kubeconfig "$HUB_KUBECONFIG")
k() { "${hub[@]}" --namespace "$namespace" "$@"; }

# check WHAT EXPECTED TEXT: the text holds what is expected, spaces alike.
check() {
  checks=$((checks + 1))
  if grep -qF -- "$(tr -s ' ' <<<"$2")" < <(tr -s ' ' <<<"$3"); then return; fi
  failures=$((failures + 1))
  printf 'FAILED: %s\n  expected: %s\n  got: %s\n' "$1" "$2" "$3"
}

# The output of a command that must fail, errors included; a success shows as such.
refusal() { "$@" 2>&1 && echo "(it was accepted)" || true; }

k get "${names[@]}" >/dev/null 2>&1 && were_there=yes || were_there=no
cleanup() {
  "${hub[@]}" delete fusioncluster crd-test-paris --ignore-not-found >/dev/null 2>&1 || true
  "${hub[@]}" delete namespace "$namespace" --ignore-not-found --wait=false >/dev/null || true
  # The objects go away with their definition, whether or not a controller empties namespaces here.
  [ "$were_there" = yes ] || "${hub[@]}" delete "${names[@]}" --ignore-not-found >/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

for file in "${definitions[@]}"; do k apply --server-side --force-conflicts -f "$file" >/dev/null; done
k wait --for=condition=Established --timeout=120s "${names[@]}" >/dev/null
check "the schemas are structural" '""' "\"$(k get "${names[@]}" -o jsonpath='{.items[*].status.conditions[?(@.type=="NonStructuralSchema")].message}')\""
definition() { k get "customresourcedefinition/$1.fusionllm.io" -o jsonpath="$2"; }
words='{.spec.names.kind} {.spec.names.listKind} {.spec.names.plural} {.spec.names.singular} {.spec.names.shortNames} {.spec.names.categories} {.spec.scope}'
check "names of jobs" 'FusionJob FusionJobList fusionjobs fusionjob ["fj"] ["all","fusion"] Namespaced' "$(definition fusionjobs "$words")"
check "names of clusters" 'FusionCluster FusionClusterList fusionclusters fusioncluster ["fc"] ["all","fusion"] Cluster' "$(definition fusionclusters "$words")"
check "versions" "v1alpha1 | v1alpha1 |" "$(definition fusionjobs '{.spec.versions[*].name} |') $(definition fusionclusters '{.spec.versions[*].name} |')"
check "what kubectl scale reads and writes" ".spec.executors.replicas .status.replicas .status.selector" \
  "$(definition fusionjobs '{range .spec.versions[0].subresources.scale}{.specReplicasPath} {.statusReplicasPath} {.labelSelectorPath}{end}')"
k create namespace "$namespace" >/dev/null
# Established is told before every path of the new kinds answers.
for _ in $(seq 120); do
  if k get fusionjobs,fusionclusters >/dev/null 2>&1; then break; fi
  sleep 0.5
done

accepted=$(k create --dry-run=server --validate=strict -f examples/jobs 2>&1 || true)
# Read with another schema, made of the definition.
applied=$(k apply --server-side --dry-run=server --validate=strict -f examples/jobs 2>&1 || true)
for job in examples/jobs/*.yaml; do
  name=$(sed -n 's/^metadata: *{name: *\([a-z0-9-]*\).*/\1/p' "$job")
  check "$job is accepted" "fusionjob.fusionllm.io/$name created (server dry run)" "$accepted"
  check "$job is accepted in a server-side apply" "fusionjob.fusionllm.io/$name serverside-applied (server dry run)" "$applied"
done

# What a user applies who has run the example on a laptop. As it is: kubectl keeps what it applied in an annotation, which has a limit, too.
fusionctl=${FUSIONCTL:-build/bin/fusionctl}
if [ -x "$fusionctl" ]; then
  for job in examples/jobs/*.yaml; do
    name=$(sed -n 's/^metadata: *{name: *\([a-z0-9-]*\).*/\1/p' "$job")
    "$fusionctl" kubernetes prepare "$job" -n "$namespace" -o "$work/prepared.yaml" 2>"$work/words" || true
    check "what prepare makes of $job is accepted" "fusionjob.fusionllm.io/$name created (server dry run)" \
      "$(cat "$work/words"; k apply --dry-run=server --validate=strict -f "$work/prepared.yaml" 2>&1 || true)"
  done
else
  echo "not tried: fusionctl kubernetes prepare ($fusionctl is not there: make build)"
fi

# One object a file, with the words that its refusal must hold; kubectl answers with one line a file.
mkdir "$work/refused"
awk -v folder="$work/refused" 'BEGIN { n = 100 } /^---$/ { n++; next } { print > (folder "/" n ".yaml") }' e2e/crd/refused.yaml
answers=$(refusal k create --dry-run=server --validate=strict -f "$work/refused")
for object in "$work"/refused/*.yaml; do
  expected=$(sed -n 's/^# expect: //p' "$object")
  check "$(sed -n 's/^metadata: //p' "$object") is refused" "${expected:?}" "$(grep -F "$object" <<<"$answers" || true)"
done

check "values and documents in YAML are read as the reader of job files reads them" ", 0 not as the table says" \
  "$(HUB_KUBECONFIG=$HUB_KUBECONFIG KUBECTL=$kubectl e2e/crd/yaml_values_test.sh 2>&1 || true)"

# What only the operator refuses: where the server does so now, the reason there is gone.
taken=$(k create --dry-run=server --validate=strict -f e2e/crd/reader-alone.yaml 2>&1 || true)
for name in $(sed -n 's/^metadata: {name: \(.*\)}/\1/p' e2e/crd/reader-alone.yaml); do
  check "$name is refused by no rule" "fusionjob.fusionllm.io/$name created (server dry run)" "$taken"
done

cat >"$work/job.yaml" <<'JOB'
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: t}
spec:
  model: {family: gpt2, init: {from: null}}
  data: {path: texts}
  training:
  managedBy: example.com/somebody
  queueName: night
  failurePolicy: {}
  network: {}
  executors: {replicas: 2, max: 4, template: {spec: {nodeSelector: {a: b}}}}
JOB
check "a job with nulls and a single path is made" "created" "$(k create --validate=strict -f "$work/job.yaml" 2>&1)"
check "defaults are filled in" "3 Auto Running false" \
  "$(k get fj t -o jsonpath='{.spec.failurePolicy.maxRestarts} {.spec.network.mode} {.spec.cleanPodPolicy} {.spec.suspend}')"
check "what is free of shape is kept" '{"spec":{"nodeSelector":{"a":"b"}}}' "$(k get fj t -o jsonpath='{.spec.executors.template}')"

while read -r patch && read -r refused; do
  check "a running job keeps what it has: $patch" "$refused" "$(refusal k patch fj t --type merge -p "{\"spec\": $patch}")"
done < <(grep -v '^#' e2e/crd/refused-updates.txt)

check "kubectl scale" "scaled" "$(k scale fj t --replicas=3 2>&1)"
check "kubectl scale sets the executors" "3" "$(k get fj t -o jsonpath='{.spec.executors.replicas}')"
check "kubectl scale beyond max" "must be at most max" "$(refusal k scale fj t --replicas=9)"

now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
k patch fj t --subresource=status --type merge -p '{"status": {"state": "Running", "reason": "AllUp", "clusters": "2/2", "executors": "3/3",
  "replicas": 3, "restarts": 1, "conditions": [{"type": "Ready", "status": "True", "reason": "AllUp", "message": "", "lastTransitionTime": "'"$now"'"}],
  "trainerStatus": {"step": 50, "progress": "25%", "eta": "3m5s", "slowestLink": "paris > tokyo"}}}' >/dev/null
check "columns" "NAME STATE REASON CLUSTERS EXECUTORS STEP PROGRESS ETA AGE" "$(k get fj)"
check "their values" "t Running AllUp 2/2 3/3 50 25% 3m5s" "$(k get fj)"
check "columns of -o wide" "AGE SLOWEST LINK RESTARTS QUEUE" "$(k get fj -o wide)"
check "their values" "paris > tokyo 1 night" "$(k get fj -o wide)"
check "a status of the wrong type" "status.replicas: Invalid value" \
  "$(refusal k patch fj t --subresource=status --type merge -p '{"status": {"replicas": "three"}}')"
check "a reason is asked for" "status.conditions[0].reason: Required value" \
  "$(refusal k patch fj t --subresource=status --type merge -p '{"status": {"conditions": [{"type": "Ready", "status": "True", "message": "", "lastTransitionTime": "'"$now"'"}]}}')"
check "selected by state and queue" "fusionjob.fusionllm.io/t" \
  "$(k get fj --field-selector status.state=Running,spec.queueName=night,spec.managedBy=example.com/somebody -o name)"
check "not selected" '""' "\"$(k get fj --field-selector status.state=Failed -o name)\""

# Two writers of one status, each with its own conditions.
condition() {
  printf '{apiVersion: fusionllm.io/v1alpha1, kind: FusionJob, metadata: {name: t}, status: {conditions: [{type: %s, status: "True", reason: R, message: "", lastTransitionTime: "%s"}]}}' "$1" "$now"
}
# kubectl before 1.32 applies no subresources.
if grep -q -- --subresource <<<"$(k apply --help)"; then
  condition Degraded | k apply --server-side --subresource=status --field-manager=crd-test-a -f - >/dev/null
  condition Complete | k apply --server-side --subresource=status --field-manager=crd-test-b -f - >/dev/null
  check "conditions of several writers stand side by side" "Ready Degraded Complete" "$(k get fj t -o jsonpath='{.status.conditions[*].type}')"
else
  echo "not tried, this kubectl cannot apply a status: conditions of several writers stand side by side"
  k patch fj t --subresource=status --type merge -p '{"status": {"conditions": [{"type": "Complete", "status": "True", "reason": "R", "message": "",
    "lastTransitionTime": "'"$now"'"}]}}' >/dev/null
fi
check "kubectl wait" "condition met" "$(k wait --for=condition=Complete --timeout=20s fj/t 2>&1)"
check "a finished job is not suspended" 'spec.suspend: Forbidden: must not change once the job is Complete or Failed' \
  "$(refusal k patch fj t --type merge -p '{"spec": {"suspend": true}}')"

check "kubectl explain" "Fewest that may train:" "$(k explain fusionjob.spec.executors.min)"
check "kubectl explain of enumerations" "op-fence" "$(k explain fusionjob.spec.strategy.planner)"
explained=$(k explain fusionjob --recursive)
for word in trainerStatus clusterStatuses failurePolicy clusterSelector; do check "kubectl explain --recursive" "$word" "$explained"; done
check "category fusion" "fusionjob.fusionllm.io/t" "$(k get fusion -o name)"

k create -f - >/dev/null <<'CLUSTER'
apiVersion: fusionllm.io/v1alpha1
kind: FusionCluster
metadata: {name: crd-test-paris}
spec:
  kubeConfig: {location: paris-kubeconfig}
  region: eu
  network: {links: [{to: tokyo, bandwidth: 20Mbit, latency: 110ms}, {to: lima, bandwidth: 5Mbit, latency: 0}]}
CLUSTER
k patch fc crd-test-paris --subresource=status --type merge -p '{"status": {"kubernetesVersion": "v1.34.4", "executors": 2,
  "conditions": [{"type": "Ready", "status": "False", "reason": "NoRoute", "message": "", "lastTransitionTime": "'"$now"'"}]}}' >/dev/null
check "columns of a cluster" "NAME READY CONNECTED VERSION NODES EXECUTORS AGE REGION PROVIDER REASON" "$(k get fc -o wide)"
check "their values" "crd-test-paris False v1.34.4 2" "$(k get fc)"
check "defaults of a cluster" "kubeconfig 300 500" "$(k get fc crd-test-paris -o jsonpath='{.spec.kubeConfig.key} {.spec.qps} {.spec.burst}')"

echo "$checks checks, $failures failures, API server $(k version -o json | sed -n '/serverVersion/,$s/.*"gitVersion": "\(.*\)".*/\1/p')"
[ "$failures" -eq 0 ]
