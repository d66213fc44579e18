#!/bin/bash
# hub_upgraded.sh [CLUSTER]: helm upgrades the release to other images and other values while a job trains, and rolls it back: the job trains
# on, none of its Pods is replaced or started again, the operators of the next and of the former release each carry it on, and it comes to its
# end. Definitions that are older than the chart's are brought up to date. There is no earlier release to begin with, and the other images are
# the same programs under another tag (IMAGE_NEXT_TAG may name others): this shows that an upgrade leaves jobs alone, and not that programs of
# two releases get on with each other.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
bring_up "${1:-uphub}"
prepare_hub with-executors
# Another tag, as a registry has it of the next release.
version=$(sed -n 's/^project(fusionllm VERSION \([0-9.]*\).*/\1/p' "$source_folder/CMakeLists.txt")
registry=localhost/fusionllm
if given; then
  registry=$IMAGE_REGISTRY
  version=${IMAGE_TAG:-$version} next=${IMAGE_NEXT_TAG:-}
  [ -n "$next" ] || echo "  not here: other images: IMAGE_NEXT_TAG does not name them; the upgrade is one of values"
else
  next=next
  for name in operator broker scheduler executor; do
    ctr --address "$state_root/$hub/run/containerd.sock" --namespace k8s.io images tag "localhost/fusionllm/$name:$version" "localhost/fusionllm/$name:$next" >/dev/null
  done
fi
install_operator
k apply --filename - >/dev/null <<'CLUSTER'
apiVersion: fusionllm.io/v1alpha1
kind: FusionCluster
metadata: {name: here}
spec: {local: {}}
CLUSTER
took "a cluster with the operator"

job long 1000000 "{name: here}" "$two_executors" "$with_checkpoints"
wait_for long condition=Ready
until_true "its first steps" has_passed long 5
pods=$(pods_of "$hub")
took "the job trains"

operator_image() { own get pods --selector app.kubernetes.io/instance=fusion --output 'jsonpath={.items[*].spec.containers[0].image}'; }
image_is() { [ "$(operator_image)" = "$registry/operator:$1" ]; }
# carried_on WHAT LEADER_BEFORE: another operator leads, the status tells of further steps, and the Pods of the job are the same.
carried_on() {
  until_true "another operator to lead" another_leads "$2"
  wait_for long condition=Ready
  local step
  step=$(step_of long)
  until_true "a status after step $step" has_passed long "$step"
  [ "$(pods_of "$hub")" = "$pods" ] || fail "$1: Pods of the job have changed: $(diff <(echo "$pods") <(pods_of "$hub"))"
  status_is long restarts 0 || fail "$1: the job was restarted"
  took "$1: the job trains on, at step $(step_of long)"
}

# A definition as an older chart left it: without the column that tells of the steps.
columns() { kubectl_of "$hub" get crd fusionjobs.fusionllm.io --output 'jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}'; }
all_columns=$(columns)
kubectl_of "$hub" patch crd fusionjobs.fusionllm.io --type=json --patch '[{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns/0"}]' >/dev/null
older=$(columns)
[ "$older" != "$all_columns" ] || fail "the definition was not made older"

former=$(leader)
helm_in "$hub" upgrade fusion "$source_folder/helm/fusionllm" --reuse-values --set "image.tag=${next:-$version}" --set operator.workers=3,operator.logLevel=debug \
  --wait --timeout "$patience" >/dev/null || fail "helm upgrade"
until_true "the next operator alone" image_is "${next:-$version}"
carried_on "helm upgrade" "$former"
[ "$(columns)" = "$all_columns" ] || fail "helm upgrade left the definition with the columns $(columns)"

former=$(leader)
helm_in "$hub" rollback fusion 1 --wait --timeout "$patience" >/dev/null || fail "helm rollback"
until_true "the former operator alone" image_is "$version"
carried_on "helm rollback" "$former"
[ "$(columns)" = "$all_columns" ] || fail "helm rollback left the definition with the columns $(columns)"

end_soon long 20
expect_trained long
took "$(k get fusionjob long --no-headers)"
delete_job long
kubectl_of "$hub" delete fusioncluster here >/dev/null
took "deleted, nothing is left"
take_down "hub upgraded"
