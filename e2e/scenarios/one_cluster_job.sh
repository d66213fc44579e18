#!/bin/bash
# one_cluster_job.sh [CLUSTER]: what a user of one cluster does. A cluster comes up, helm installs the chart into it, the example job trains
# to its end with its loss in the status, a second job survives the loss of its broker and a change of operators, fails at its deadline and
# goes by itself, both leave nothing, helm uninstalls, the cluster goes. Nothing may have been refused to the operator, and every right that
# the chart gives it must have been used, by the API server's audit log. Needs the images of the four programs (make images) and helm
# (controlplane/build.sh).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../cluster/names_lib.sh
. "$here/../cluster/names_lib.sh"
# shellcheck source=../smoke/checks_lib.sh
. "$here/../smoke/checks_lib.sh"
cluster=${1:-job}
source=$here/../..
archives=()
for name in operator broker scheduler executor; do
  archives+=("$build_folder/images/$name.tar")
  [ -r "${archives[-1]}" ] || die "${archives[-1]} is not there: make images"
done
patience=600s  # for anything; the machine may do other things, too

started=$SECONDS
step=$SECONDS
took() {
  echo "$((SECONDS - step)) s: $*"
  step=$SECONDS
}
trap '"$here/../cluster/down.sh" "$cluster"' EXIT
"$here/../cluster/up.sh" "$cluster" >/dev/null
took "the cluster is up"
k() { kubectl_of "$cluster" "$@"; }
team() { k --namespace team "$@"; }
helm() { "$state_root/bin/helm" --kubeconfig "$state_root/$cluster/admin.kubeconfig" --namespace fusionllm "$@"; }
operator_says() { k --namespace fusionllm logs --tail=40 deployment/fusion-fusionllm >&2 || true; }
# until_true WHAT COMMAND...
until_true() {
  local what=$1 deadline=$((SECONDS + ${patience%s}))
  shift
  until "$@"; do
    [ $SECONDS -lt $deadline ] || { operator_says; fail "waited in vain for $what"; }
    sleep 0.3
  done
}
status_of() { team get fusionjob "$1" --output "jsonpath={.status.$2}"; }
status_is() { [ "$(status_of "$1" "$2")" = "$3" ]; }
wait_for() {
  team wait --for="$2" "fusionjob/$1" --timeout=$patience >/dev/null || { operator_says; team describe fusionjob "$1" >&2; fail "$1: no $2"; }
}

"$here/../cluster/import-image.sh" "$cluster" "${archives[@]}"
took "the images are there"
restricted_namespace "$cluster" fusionllm
restricted_namespace "$cluster" team
helm install fusion "$source/helm/fusionllm" --set image.pullPolicy=Never,operator.replicas=2 --wait --timeout $patience >/dev/null
took "the chart is installed, two operators are ready"
helm test fusion --timeout $patience >/dev/null || { operator_says; fail "helm test"; }
k apply --filename - >/dev/null <<'CLUSTER'
apiVersion: fusionllm.io/v1alpha1
kind: FusionCluster
metadata: {name: here}
spec: {local: {}}
CLUSTER
took "helm test has passed"

# ---- a job to its end ----
example=$source/examples/kubernetes/gpt2-tiny.yaml
team create configmap gpt2-tiny-text --from-file="$source/README.md" >/dev/null
if refusal=$(sed 's/replicas: 2 /replicas: none /' "$example" | team apply --filename - 2>&1); then fail "a job with no number of replicas was taken"; fi
[[ $refusal == *spec.executors.replicas* ]] || fail "the refusal does not name the field: $refusal"
team apply --filename "$example" >/dev/null
wait_for gpt2-tiny condition=Complete
took "$(team get fusionjob gpt2-tiny --no-headers)"
loss=$(status_of gpt2-tiny trainerStatus.loss)
# ln 256: what guessing costs.
events_tell_the_end() { team describe fusionjob gpt2-tiny | grep -q 'Completed.*The job has made all its steps'; }
until_true "an event that tells the end of the job" events_tell_the_end
awk -v loss="$loss" 'BEGIN { exit !(loss > 0 && loss < 5) }' || fail "the loss in the status is '$loss'"
status_is gpt2-tiny trainerStatus.step 200 || fail "the status tells of step $(status_of gpt2-tiny trainerStatus.step) of 200"
echo "its loss: $loss"
team delete fusionjob gpt2-tiny --timeout=$patience >/dev/null || fail "the job is not deleted"
took "the job is deleted"

# ---- a job that loses its broker, then its time ----
sed 's/gpt2-tiny$/endless/; s/steps: 200$/steps: 10000000/; s/^  cleanPodPolicy:.*/  ttlSecondsAfterFinished: 5/' "$example" |
  team apply --filename - >/dev/null
wait_for endless condition=Ready
team delete pod endless-broker-r0 --wait=false >/dev/null
until_true "a restart" status_is endless restarts 1
wait_for endless condition=Ready
took "a job has started again after its broker was lost"
leader() { k --namespace fusionllm get lease fusion-operator --output 'jsonpath={.spec.holderIdentity}' | cut -d_ -f1; }
former=$(leader)
k --namespace fusionllm delete pod "$former" --wait=false >/dev/null
another_leads() { [ -n "$(leader)" ] && [ "$(leader)" != "$former" ]; }
until_true "another operator to lead" another_leads
took "the operator that led is deleted, the other one leads"
team patch fusionjob endless --type=merge --patch '{"spec": {"activeDeadlineSeconds": 1}}' >/dev/null
wait_for endless condition=Failed
reason=$(status_of endless 'conditions[?(@.type=="Failed")].reason')
[ "$reason" = DeadlineExceeded ] || fail "the job has failed by $reason, not by its deadline"
wait_for endless delete
took "the job has failed at its deadline, and is gone"

left() { team get pods,configmaps,secrets,services --selector fusionllm.io/job --output name; }
nothing_of_jobs() { [ -z "$(left)" ]; }
until_true "the jobs' objects to go; there are: $(left | tr '\n' ' ')" nothing_of_jobs

# ---- rights ----
account=system:serviceaccount:fusionllm:fusion-fusionllm
# "VERB RESOURCE" of each request of the operator, and " refused" behind those that were. Applying what was not there is creating, too.
requests() {
  sed -n "/\"username\":\"$account\"/{
    s/.*\"verb\":\"\([a-z]*\)\".*\"objectRef\":{\"resource\":\"\([a-z]*\)\"\([^}]*\)}.*\"code\":\([0-9]*\).*/\1 \2 \4 \3/p
  }" "$state_root/$cluster/logs/audit.log" | awk '{
    resource = $2
    if (match($4, /"subresource":"[a-z]*"/)) resource = resource "/" substr($4, RSTART + 15, RLENGTH - 16)
    print $1, resource ($3 == 403 ? " refused" : "")
    if ($1 == "patch" && $3 == 201) print "create", resource
  }' | sort -u
}
granted() {
  local role
  for role in clusterrole/fusion-fusionllm-watch clusterrole/fusion-fusionllm-work role/fusion-fusionllm-own; do
    # shellcheck disable=SC2016
    k --namespace fusionllm get $role --output go-template='{{range .rules}}{{$rule := .}}{{range .resources}}{{$resource := .}}
      {{- range $rule.verbs}}{{.}} {{$resource}}{{"\n"}}{{end}}{{end}}{{end}}'
  done | sort -u
}
used=$(requests)
if grep refused <<<"$used" >&2; then fail "that was refused to the operator"; fi
# Nodes are looked up for members alone, events are patched when one repeats itself.
unused=$(comm -23 <(granted | grep -vE '^(list nodes|patch events)$') <(echo "$used"))
[ -z "$unused" ] || fail "the chart grants what the operator never did: $unused"
took "$(wc -l <<<"$used") kinds of requests, each granted; no right is granted in vain"

# ---- uninstall ----
k delete fusioncluster here >/dev/null
helm uninstall fusion --wait --timeout $patience >/dev/null 2>&1
of_release() {
  k get deployments,services,serviceaccounts,pods,roles,rolebindings,clusterroles,clusterrolebindings --all-namespaces \
    --selector app.kubernetes.io/instance=fusion --output name
}
nothing_of_release() { [ -z "$(of_release)" ]; }
until_true "the release's objects to go; there are: $(of_release | tr '\n' ' ')" nothing_of_release
[ "$(k get crd fusionjobs.fusionllm.io --output name)" ] || fail "helm uninstall has taken the definitions along, and would have all jobs"
# They belong to the release still: the next installation of that name takes them over.
helm install fusion "$source/helm/fusionllm" --set image.pullPolicy=Never --wait --timeout $patience >/dev/null
took "uninstalled, installed again"

"$here/../cluster/down.sh" "$cluster"
trap - EXIT
left_behind=$(traces_of "$cluster")
[ -z "$left_behind" ] || fail "the cluster left traces: $left_behind"
took "down, nothing left"
echo "one cluster, one job: passed in $((SECONDS - started)) s"
