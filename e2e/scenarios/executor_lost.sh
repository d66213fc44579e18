#!/bin/bash
# executor_lost.sh: a job over two members loses an executor's Pod, which is deleted, and later the node of an executor, which hangs with all
# that runs on it. Each time that executor alone starts again, the second time on another node, and the job trains on from its last
# checkpoint, of which each cluster has its part; the broker and the other executor are the Pods that they were. The node comes back, with an executor on it that everybody had
# given up: it ends, and disturbs nobody. The job comes to its end.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
bring_up ehub lima oslo
members_behind 50mbit 20ms
took "a hub and two members$behind"

# The second node of oslo, and for the beginning the only one that takes Pods.
if ! given; then
  machines+=(oslo2)
  "$cluster_scripts/add-node.sh" oslo oslo2
  "$cluster_scripts/import-image.sh" oslo2 "$build_folder/images/executor.tar"
  shape_links 50mbit 20ms "$hub" oslo2
  kubectl_of oslo cordon oslo-0 >/dev/null
  took "oslo has a second node"
fi

# As whoever cannot wait for the default, five minutes, would write it.
impatient="{replicas: 2, threads: 1, template: {spec: {terminationGracePeriodSeconds: 5, tolerations: [
    {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 3},
    {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 3}]}}}"
job long 1000000 "$(one_in_each)" "$impatient" "$with_checkpoints
  forceDeleteAfterSeconds: 5"
wait_for long condition=Ready
until_true "a checkpoint" has_passed long 20
node_of() { kubectl_in "$1" get pod "$2" --ignore-not-found --output 'jsonpath={.spec.nodeName}'; }
given || [ "$(node_of oslo long-oslo-0-r0)" = oslo2-0 ] || fail "the executor of oslo is on $(node_of oslo long-oslo-0-r0)"
others=$(pods_of "$hub" lima)
took "the job trains"

# came_back WHAT UID_BEFORE: the executor of oslo is another Pod, ready, and the job goes on; nobody else was touched.
came_back() {
  until_true "a new executor in oslo" uid_is_new oslo long-oslo-0-r0 "$2"
  kubectl_in oslo wait --for=condition=Ready pod/long-oslo-0-r0 --timeout="$patience" >/dev/null || fail "the new executor is not ready"
  wait_for long condition=Ready
  took "$1: there is another executor"
  local step
  step=$(step_of long)
  until_true "steps after step $step" has_passed long $((step + 20))
  status_is long restarts 0 || fail "the whole job was restarted"
  [ "$(pods_of "$hub" lima)" = "$others" ] || fail "$1: others were restarted: $(diff <(echo "$others") <(pods_of "$hub" lima))"
  took "$1: the job trains on, at step $(step_of long)"
}

# ---- a Pod is deleted ----
before=$(uid_of oslo long-oslo-0-r0)
kubectl_in oslo delete pod long-oslo-0-r0 --wait=false >/dev/null
came_back "the Pod was deleted" "$before"

# ---- a node hangs ----
a_node_hangs() {
  local before step
  before=$(uid_of oslo long-oslo-0-r0)
  kubectl_of oslo uncordon oslo-0 >/dev/null
  "$cluster_scripts/machine.sh" freeze oslo2
  node_is() { [ "$(kubectl_of oslo get node oslo2-0 --output 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = "$1" ]; }
  until_true "oslo to miss its node" node_is Unknown
  took "a node hangs, its cluster has noticed"
  degraded() { condition_is fusionjob/long Degraded True; }
  until_true "the job to tell that an executor is missing" degraded
  node_is_named() { [[ $(condition_of fusionjob/long Degraded message) = *oslo2-0* ]]; }
  until_true "the job to name the node, not: $(condition_of fusionjob/long Degraded message)" node_is_named
  came_back "the node was lost" "$before"
  [ "$(node_of oslo long-oslo-0-r0)" = oslo-0 ] || fail "the executor of oslo is on $(node_of oslo long-oslo-0-r0)"

  # ---- the node is back ----
  "$cluster_scripts/machine.sh" thaw oslo2
  until_true "the node to be back" node_is True
  tasks_on() { ctr --address "$state_root/$1/run/containerd.sock" --namespace k8s.io tasks list --quiet; }
  until_true "the containers of the lost Pod to end" empty tasks_on oslo2
  step=$(step_of long)
  until_true "steps after step $step" has_passed long $((step + 20))
  [ "$(pods_of "$hub" lima)" = "$others" ] || fail "the executor that was given up has disturbed others: $(pods_of "$hub" lima)"
  took "the node is back, nothing runs on it, the job trains on"
}
if here "a node that hangs: it takes power over the node's machine"; then a_node_hangs; fi

end_soon long 20
expect_trained long
status_is long restarts 0 || fail "the whole job was restarted"
took "$(k get fusionjob long --no-headers)"
delete_job long
took "deleted, nothing is left in any cluster"
take_down "executors lost"
