#!/bin/bash
# one_cluster_job.sh [CLUSTER]: what a user of one cluster does. A cluster comes up, helm installs the chart into it, the example job trains
# to its end with its loss in the status, so does one that fusionctl prepares from local files, another job survives the loss of its broker
# and a change of operators, fails at its deadline and goes by itself, all leave nothing, helm uninstalls, the cluster goes. Needs
# the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
bring_up "${1:-job}"
took "the cluster is up"
prepare_hub with-executors
install_operator --set operator.replicas=2
took "the chart is installed, two operators are ready"
tested=$(helm_in "$hub" test fusion --logs --timeout "$patience" 2>&1) || fail "helm test: $tested"
[[ $tested == *"FusionJobs are taken, and checked"* ]] || fail "helm test --logs does not show the log of its Pod: $tested"
kubectl_of "$hub" apply --filename - >/dev/null <<'CLUSTER'
apiVersion: fusionllm.io/v1alpha1
kind: FusionCluster
metadata: {name: here}
spec: {local: {}}
CLUSTER
took "helm test has passed"

# ---- a job to its end ----
example=$source_folder/examples/kubernetes/gpt2-tiny.yaml
k create configmap gpt2-tiny-text --from-file="$source_folder/README.md" >/dev/null
if refusal=$(sed 's/replicas: 2 /replicas: none /' "$example" | k apply --filename - 2>&1); then fail "a job with no number of replicas was taken"; fi
[[ $refusal == *spec.executors.replicas* ]] || fail "the refusal does not name the field: $refusal"
k apply --filename "$example" >/dev/null
wait_for gpt2-tiny condition=Complete
took "$(k get fusionjob gpt2-tiny --no-headers)"
expect_trained gpt2-tiny
events_tell_the_end() { k describe fusionjob gpt2-tiny | grep -q 'Completed.*The job has made all its steps'; }
until_true "an event that tells the end of the job" events_tell_the_end
status_is gpt2-tiny trainerStatus.step 200 || fail "the status tells of step $(status_of gpt2-tiny trainerStatus.step) of 200"
echo "its loss: $(status_of gpt2-tiny trainerStatus.loss)"
delete_job gpt2-tiny
took "the job is deleted, nothing is left"

# ---- a job of a laptop, its files among what is applied ----
"$build_folder/bin/fusionctl" kubernetes prepare "$source_folder/examples/jobs/gpt2-tiny.yaml" --namespace team >"$scratch/prepared.yaml"
k apply --filename "$scratch/prepared.yaml" >/dev/null
wait_for gpt2-tiny condition=Complete
status_is gpt2-tiny trainerStatus.step 50 || fail "the prepared job ends at step $(status_of gpt2-tiny trainerStatus.step) of 50"
delete_job gpt2-tiny
took "a job that fusionctl has prepared has trained, and is deleted"

# ---- a job that loses its broker, then its time ----
sed 's/gpt2-tiny$/endless/; s/steps: 200$/steps: 10000000/; s/^  cleanPodPolicy:.*/  ttlSecondsAfterFinished: 5/' "$example" |
  k apply --filename - >/dev/null
wait_for endless condition=Ready
k delete pod endless-broker-r0 --wait=false >/dev/null
until_true "a restart" status_is endless restarts 1
wait_for endless condition=Ready
took "a job has started again after its broker was lost"
former=$(leader)
own delete pod "$former" --wait=false >/dev/null
until_true "another operator to lead" another_leads "$former"
took "the operator that led is deleted, the other one leads"
k patch fusionjob endless --type=merge --patch '{"spec": {"activeDeadlineSeconds": 1}}' >/dev/null
wait_for endless condition=Failed
reason_is fusionjob/endless Failed DeadlineExceeded || fail "the job has failed by $(condition_of fusionjob/endless Failed reason), not by its deadline"
wait_for endless delete
took "the job has failed at its deadline, and is gone"
until_true "the jobs' objects to go; there are: $(left_in "$hub" | tr '\n' ' ')" nothing_left_in "$hub"

# ---- uninstall ----
keep_rights
kubectl_of "$hub" delete fusioncluster here >/dev/null
uninstall "$hub"
# Its log is asked for when it has ended, so it is helm's to keep, and nobody's to take away.
own delete pod fusion-fusionllm-test >/dev/null
of_release() {
  k get deployments,services,serviceaccounts,pods,roles,rolebindings,clusterroles,clusterrolebindings --all-namespaces \
    --selector app.kubernetes.io/instance=fusion --output name
}
until_true "the release's objects to go; there are: $(of_release | tr '\n' ' ')" empty of_release
[ "$(k get crd fusionjobs.fusionllm.io --output name)" ] || fail "helm uninstall has taken the definitions along, and would have all jobs"
# They belong to the release still: the next installation of that name takes them over.
install_operator
took "uninstalled, installed again"
take_down "one cluster, one job"
