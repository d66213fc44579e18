# Gives a cluster Kueue: its controller built from its Go module, with the definitions, rights and webhooks of the module's own configuration. Sourced
# after scenario_lib.sh. It makes the certificates of its webhooks itself.
kueue_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# install_kueue CLUSTER: after it, Workloads are admitted.
install_kueue() {
  local cluster=$1 built program module folder=$scratch/kueue
  built=$("$kueue_folder/build.sh") || return
  { read -r program && read -r module; } <<<"$built"
  mkdir -p "$folder/image"
  cp "$program" "$folder/image/manager"
  "$cluster_scripts/one-program-image.sh" "$folder/image/manager" kueue:e2e "$folder/kueue.tar"
  "$cluster_scripts/import-image.sh" "$cluster" "$folder/kueue.tar"
  cp -r --no-preserve=mode "$module/config" "$folder/config"
  cat >"$folder/config/components/manager/controller_manager_config.yaml" <<'CONFIG'
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: ":8081"}
metrics: {bindAddress: ":8443"}
webhook: {port: 9443}
leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io}
clientConnection: {qps: 50, burst: 100}
integrations:
  frameworks: [batch/job]
  externalFrameworks: [FusionJob.v1alpha1.fusionllm.io]
featureGates: {VisibilityOnDemand: false}
CONFIG
  mkdir "$folder/config/e2e"
  cat >"$folder/config/e2e/kustomization.yaml" <<'OVERLAY'
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../default]
patches:
- target: {kind: APIService}
  patch: |-
    $patch: delete
    apiVersion: apiregistration.k8s.io/v1
    kind: APIService
    metadata: {name: any}
- target: {kind: Deployment, name: kueue-controller-manager}
  patch: |-
    - {op: replace, path: /spec/template/spec/containers/0/image, value: kueue:e2e}
    - {op: replace, path: /spec/template/spec/containers/0/imagePullPolicy, value: Never}
    - {op: replace, path: /spec/template/spec/containers/0/resources, value: {}}
OVERLAY
  "$(tool kubectl)" kustomize "$folder/config/e2e" >"$folder/kueue.yaml" || fail "kueue's configuration cannot be built"
  kubectl_of "$cluster" apply --server-side --filename "$folder/kueue.yaml" >/dev/null || fail "kueue's objects are not taken"
  kubectl_of "$cluster" --namespace kueue-system rollout status deployment/kueue-controller-manager --timeout "$patience" >/dev/null ||
    fail "kueue does not start: $(kubectl_of "$cluster" --namespace kueue-system logs deployment/kueue-controller-manager --tail=20)"
}
# Its word, where a scenario has failed.
kueue_log() { kubectl_of "$1" --namespace kueue-system logs deployment/kueue-controller-manager --tail="${2:-40}"; }
