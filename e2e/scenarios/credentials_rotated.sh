#!/bin/bash
# credentials_rotated.sh: two members lend devices by accounts that the chart makes there (role: member), with kubeconfigs as its notes tell.
# While a job trains, the Secret of one is replaced by another token, and the old token revoked; that of the other by a certificate. The
# operator goes on without a restart, and works with what is new. A kubeconfig that must not be used, and one that the member refuses, are
# told by the condition CredentialsValid, with what is wrong; the job trains on meanwhile, and a good one heals it.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
# shellcheck source=../cluster/credentials_lib.sh
. "$cluster_scripts/credentials_lib.sh"
bring_up chub quito turin
shape_links 50mbit 20ms "$hub" "${members[@]}"
prepare_hub
install_operator
for member in "${members[@]}"; do
  prepare_member "$member"
  make_namespace "$member" fusionllm
  helm_in "$member" install fusion "$source_folder/helm/fusionllm" --set role=member,rbac.jobNamespaces='{team}' --wait --timeout "$patience" >/dev/null
done
took "a hub and two members with accounts for it"

# token_kubeconfig MEMBER SECRET FILE: as helm's notes tell, with a token that ends with SECRET.
token_kubeconfig() {
  local config=(kubectl_of "$1" --kubeconfig "$3" config) token
  token=$(kubectl_of "$1" --namespace fusionllm create token $account --bound-object-kind Secret --bound-object-name "$2")
  kubectl_of "$1" --namespace fusionllm get configmap kube-root-ca.crt --output 'jsonpath={.data.ca\.crt}' >"$scratch/ca.crt"
  rm -f "$3"
  "${config[@]}" set-cluster "$1" --server "$(server_of "$1")" --certificate-authority "$scratch/ca.crt" --embed-certs >/dev/null
  "${config[@]}" set-credentials hub --token "$token" >/dev/null
  "${config[@]}" set-context "$1" --cluster "$1" --user hub >/dev/null
  "${config[@]}" use-context "$1" >/dev/null
}
connected() { condition_is "fusioncluster/$1" CredentialsValid True && condition_is "fusioncluster/$1" Connected True; }
for member in "${members[@]}"; do
  token_kubeconfig "$member" $account-tokens "$scratch/$member.kubeconfig"
  register "$member" "$scratch/$member.kubeconfig"
done
for member in "${members[@]}"; do until_true "the connection to $member" connected "$member"; done
job long 1000000 "$(one_in_each)" "$two_executors" "$with_checkpoints"
wait_for long condition=Ready
until_true "its first steps" has_passed long 5
operators() {
  own get pods --selector app.kubernetes.io/instance=fusion \
    --output 'jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount}{"\n"}{end}'
}
operator=$(operators)
took "the job trains, in members where the operator may do what the chart allows"

# works_in MEMBER: the operator can still write there: it replaces an executor that somebody deleted.
works_in() {
  local pod=long-$1-0-r0 before
  before=$(uid_of "$1" "$pod")
  kubectl_in "$1" delete pod "$pod" --wait=false >/dev/null
  until_true "a new executor in $1" uid_is_new "$1" "$pod" "$before"
  wait_for long condition=Ready
}
undisturbed() {
  [ "$(operators)" = "$operator" ] || fail "the operator was restarted"
  status_is long restarts 0 || fail "the job was restarted"
  local step
  step=$(step_of long)
  until_true "a status after step $step" has_passed long "$step"
}
# used_by_operator MEMBER USER: how many requests the audit log has.
used_by_operator() { audit_log "$1" | grep -c "\"user\":{\"username\":\"$2\".*\"userAgent\":\"fusion-operator" || true; }

# ---- another token ----
kubectl_of quito --namespace fusionllm create secret generic second >/dev/null
token_kubeconfig quito second "$scratch/second.kubeconfig"
register quito "$scratch/second.kubeconfig"
kubectl_of quito --namespace fusionllm delete secret $account-tokens >/dev/null
refused() { [[ $(kubectl_of quito --kubeconfig "$1" --namespace team get configmaps 2>&1) == *Unauthorized* ]]; }
until_true "quito to refuse the old token" refused "$scratch/quito.kubeconfig"
until_true "the connection to quito" connected quito
works_in quito
undisturbed
took "quito has another token, and the old one is revoked"

# ---- a certificate in place of a token ----
# Signed by the member's own authority, and seen in its audit log.
certificate_in_place_of_token() {
  local name=system:serviceaccount:fusionllm:rotated
  local kind role
  for kind in watch work; do
    for role in $(kubectl_of turin get clusterrolebinding,rolebinding --all-namespaces --output name | grep "fusion-fusionllm-$kind" | cut -d/ -f1 | sort -u); do
      case $role in
        clusterrolebinding*) kubectl_of turin create clusterrolebinding "rotated-$kind" --clusterrole="$account-$kind" --user=$name >/dev/null ;;
        rolebinding*) kubectl_in turin create rolebinding "rotated-$kind" --clusterrole="$account-$kind" --user=$name >/dev/null ;;
      esac
    done
  done
  (
    cd "$state_root/turin/credentials"
    certificate "$scratch/rotated" "/CN=$name" DNS:rotated
    kubeconfig "$scratch/certificate.kubeconfig" "$scratch/rotated" "$(server_of turin)"
  )
  register turin "$scratch/certificate.kubeconfig"
  uses_certificate() { [ "$(used_by_operator turin $name)" -gt 0 ]; }
  until_true "requests to turin with the certificate" uses_certificate
  kubectl_of turin --namespace fusionllm delete secret $account-tokens >/dev/null
  until_true "the connection to turin" connected turin
  works_in turin
  undisturbed
  took "turin has a certificate in place of a token"
}
if here "a certificate in place of a token: it takes the key of the member's authority"; then certificate_in_place_of_token; fi

# ---- what must not be used, and what is refused ----
says() { [[ $(condition_of "fusioncluster/$1" CredentialsValid message) == *$2* ]]; }
# told_of MEMBER REASON TEXT
told_of() {
  until_true "CredentialsValid of $1 to be False" condition_is "fusioncluster/$1" CredentialsValid False
  until_true "the reason $2" reason_is "fusioncluster/$1" CredentialsValid "$2"
  says "$1" "$3" || fail "of bad credentials it says: $(condition_of "fusioncluster/$1" CredentialsValid message)"
  echo "  $2: $(condition_of "fusioncluster/$1" CredentialsValid message)"
}
sed 's/token: .*/tokenFile: \/var\/run\/secrets\/token/' "$scratch/second.kubeconfig" >"$scratch/bad.kubeconfig"
register quito "$scratch/bad.kubeconfig"
told_of quito KubeconfigRefused tokenFile
register quito "$scratch/second.kubeconfig"
until_true "quito to be healed" connected quito
took "a kubeconfig that names a file is refused, and a good one heals"
register quito "$scratch/quito.kubeconfig"
told_of quito Unauthorized 401
register quito "$scratch/second.kubeconfig"
until_true "quito to be healed" connected quito
wait_for long condition=Ready
works_in quito
undisturbed
took "a token that was revoked is told, and a good one heals"

end_soon long 20
expect_trained long
took "$(k get fusionjob long --no-headers)"
delete_job long
took "deleted, nothing is left in any cluster"
for member in "${members[@]}"; do uninstall "$member"; done
take_down "credentials rotated"
