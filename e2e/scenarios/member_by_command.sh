#!/bin/bash
# member_by_command.sh: `fusionctl cluster add` makes a cluster a member with rights for one namespace, a job trains there, and
# `fusionctl cluster remove` takes all of it away again, but not while the job has objects there.
# Needs the images of the four programs (make images), helm (controlplane/build.sh) and fusionctl (make build).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
fusionctl=$build_folder/bin/fusionctl
[ -x "$fusionctl" ] || die "$fusionctl is not there: make build"
bring_up dhub porto
shape_links 50mbit 20ms dhub porto
prepare_hub
install_operator
prepare_member porto
took "a hub, and a cluster that it does not know"

servers=(--kubeconfig "$(kubeconfig_of dhub)" --member-kubeconfig "$(kubeconfig_of porto)")
adding=(--job-namespace team --server "$(server_of porto)" --wait-seconds "${patience%s}")
made_in_member() {
  kubectl_of porto get clusterroles,clusterrolebindings,serviceaccounts,secrets,roles,rolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings --all-namespaces \
    --selector app.kubernetes.io/managed-by=fusionctl --output name
}
"$fusionctl" cluster add porto "${servers[@]}" "${adding[@]}" || fail "porto is no member"
condition_is fusioncluster/porto Ready True || fail "FusionCluster porto is not ready"
made=$(made_in_member)
"$fusionctl" cluster add porto "${servers[@]}" "${adding[@]}" || fail "added twice"
[ "$(made_in_member)" = "$made" ] || fail "the second time made something else"
took "porto is a member"

# as_account NAMESPACE OVERRIDES: the account makes a Pod so, by a dry run; what the server says is kept.
as_account() {
  kubectl_of porto --as system:serviceaccount:fusionllm:fusion-hub --namespace "$1" run tried --image=none --restart=Never \
    --dry-run=server --overrides="$2" >"$scratch/said" 2>&1
}
refuses() { ! as_account "$1" "$2" && grep -q "ValidatingAdmissionPolicy.*$3" "$scratch/said"; }
# What the account may not do, and not what the namespace refuses to everybody, which comes first.
kubectl_of porto label namespace team pod-security.kubernetes.io/enforce=privileged --overwrite >/dev/null
# The server takes a moment to know a policy.
until_true "porto to refuse hostPath" refuses team '{"spec": {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}}' 'hostPath'
as_account team '{}' || fail "a plain Pod is refused: $(cat "$scratch/said")"
for field in hostNetwork hostPID hostIPC; do
  refuses team "{\"spec\": {\"$field\": true}}" hostNetwork || fail "$field is allowed: $(cat "$scratch/said")"
done
container='"name": "tried", "image": "none", "securityContext"'
refuses team "{\"spec\": {\"containers\": [{$container: {\"privileged\": true}}]}}" privileged || fail "privileged: $(cat "$scratch/said")"
refuses team "{\"spec\": {\"initContainers\": [{\"name\": \"first\", \"image\": \"none\", \"securityContext\": {\"capabilities\": {\"add\": [\"NET_ADMIN\"]}}}]}}" capabilities ||
  fail "capabilities of an init container: $(cat "$scratch/said")"
kubectl_of porto --namespace team create serviceaccount foreign >/dev/null
refuses team '{"spec": {"serviceAccountName": "foreign"}}' 'service account' || fail "a foreign account: $(cat "$scratch/said")"
kubectl_of porto --namespace team delete serviceaccount foreign >/dev/null
for namespace in kube-system fusionllm; do
  as_account "$namespace" '{}' && fail "a Pod in $namespace"
done
account_of_hub=(kubectl_of porto --as system:serviceaccount:fusionllm:fusion-hub)
kubectl_of porto --namespace team create secret generic foreign --from-literal=a=b >/dev/null
said=$("${account_of_hub[@]}" --namespace team patch secret foreign --type merge --patch '{}' --output json 2>&1) && fail "a foreign Secret was patched"
[[ $said == *"what an operator made"* ]] || fail "a patch of a foreign Secret: $said"
kubectl_of porto --namespace team delete secret foreign >/dev/null
said=$("${account_of_hub[@]}" --namespace fusionllm create token fusion-hub 2>&1) && fail "a token that is bound to nothing"
[[ $said == *"end with the Secret fusion-hub-token"* ]] || fail "a token that is bound to nothing: $said"
kubectl_of porto label namespace team pod-security.kubernetes.io/enforce=restricted --overwrite >/dev/null
took "its account is kept from nodes, foreign accounts, foreign Secrets and tokens that are bound to nothing"

job short 40 "{name: porto, min: 2}"
wait_for short condition=Complete
expect_trained short
took "$(k get fusionjob short --no-headers)"

# A token of ten minutes, otherwise as fusionctl's, has another in its place after five.
kubeconfig_on_hub() { own get secret porto --output 'jsonpath={.data.kubeconfig}' | base64 -d; }
brief=$(kubectl_of porto --namespace fusionllm create token fusion-hub --duration=10m --bound-object-kind Secret --bound-object-name fusion-hub-token)
changed=$(kubeconfig_on_hub | sed "s/\"token\": \"[^\"]*\"/\"token\": \"$brief\"/" | base64 -w0)
own patch secret porto --type merge --patch "{\"data\": {\"kubeconfig\": \"$changed\"}}" >/dev/null
renewed() { [[ $(kubeconfig_on_hub) != *"$brief"* ]]; }
renewed && fail "the brief token is not there"
until_true "another token for porto" renewed
until_true "the condition TokenRenewed" condition_is fusioncluster/porto TokenRenewed True
until_true "the connection to porto" condition_is fusioncluster/porto Connected True
took "a token of ten minutes was renewed"

refusal=$("$fusionctl" cluster remove porto "${servers[@]}" 2>&1) && fail "porto was removed while a job has objects there"
[[ $refusal == *team/short* ]] || fail "the refusal does not name the job: $refusal"
[ "$(made_in_member)" = "$made" ] || fail "a refused removal changed the member"
delete_job short
"$fusionctl" cluster remove porto "${servers[@]}" || fail "porto was not removed"
empty made_in_member || fail "left in the member: $(made_in_member)"
empty k get fusionclusters --output name || fail "the hub still has the FusionCluster"
empty own get secret porto --ignore-not-found --output name || fail "the hub still has the Secret"
"$fusionctl" cluster remove porto "${servers[@]}" 2>/dev/null && fail "what is not there was removed"
took "porto is no member any more, nothing of it is left"
take_down "member by command"
