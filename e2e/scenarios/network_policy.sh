#!/bin/bash
# network_policy.sh: the chart's NetworkPolicies, enforced. A job over two members by node ports trains while nobody enforces them, and a
# stranger's Pod reaches the broker's and an executor's ports. Then each node has a firewall that does: the stranger reaches only the pages
# for monitoring, the operator's Pod only what it needs, the job trains on, and another one starts and comes to its end.
# Needs the images of the four programs (make images), helm (controlplane/build.sh), kube-router (netpolicy/build.sh) and ipset.
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
# shellcheck source=../netpolicy/enforcer_lib.sh
. "$scenario_folder/../netpolicy/enforcer_lib.sh"
only_on_own "it starts a firewall on each node"
enforcer=$("$scenario_folder/../netpolicy/build.sh")
command -v ipset >/dev/null || die "ipset is not installed: tools/install-deps.sh e2e"
bring_up nhub bilbao lviv
shape_links 50mbit 20ms "$hub" "${members[@]}"
shape_links 50mbit 20ms bilbao lviv
prepare_hub
# Of what comes by a node port a Pod may see the machine that dialled.
of_jobs=(--set 'networkPolicy.jobs.enabled=true,networkPolicy.jobs.namespaces={team}'
  --set "networkPolicy.jobs.fromCIDRs={$(for name in "${machines[@]}"; do echo -n "${comma:-}$(node_address "$name")/32" && comma=,; done)}")
for member in "${members[@]}"; do
  prepare_member "$member"
  make_namespace "$member" fusionllm
  helm_in "$member" install fusion "$source_folder/helm/fusionllm" --set role=member --set 'rbac.jobNamespaces={team}' "${of_jobs[@]}" --wait --timeout "$patience" >/dev/null
done
install_operator --set networkPolicy.enabled=true "${of_jobs[@]}"
for member in "${members[@]}"; do register "$member" "$(for_hub "$member")"; done
for member in "${members[@]}"; do until_true "the connection to $member" condition_is "fusioncluster/$member" Connected True; done
took "a hub and two members$behind, and the chart's NetworkPolicies, which nobody enforces"

network_mode=NodePort
# Two of three executors in one cluster: those reach each other there, too.
stages=3
job before 1000000 "{name: bilbao, min: 2, max: 2}, {name: lviv, min: 1, max: 1}" "{replicas: 3, threads: 1}" "$with_checkpoints"
wait_for before condition=Ready
until_true "its first steps" has_passed before 5
for cluster in "$hub" bilbao; do
  kubectl_in "$cluster" apply --filename - >/dev/null <<POD
apiVersion: v1
kind: Pod
metadata: {name: stranger}
spec:
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  terminationGracePeriodSeconds: 0
  containers:
    - name: pause
      image: registry.k8s.io/pause:3.10
      imagePullPolicy: Never
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
POD
  kubectl_in "$cluster" wait --for=condition=Ready pod/stranger --timeout="$patience" >/dev/null || fail "the stranger in $cluster does not run"
done
took "a job trains, and a stranger is in its namespace"

# port_of CLUSTER POD NAME: ADDRESS/NUMBER of a port of its containers.
port_of() {
  kubectl_in "$1" get pod "$2" --output \
    "jsonpath={.status.podIP}/{.spec.containers[*].ports[?(@.name==\"$3\")].containerPort}"
}
# dials CLUSTER NAMESPACE POD ADDRESS/PORT: from the network of that Pod.
dials() { in_pod "$1" "$2" "$3" timeout 3 bash -c ": </dev/tcp/$4" 2>/dev/null; }
operator=$(own get pods --selector app.kubernetes.io/instance=fusion --output 'jsonpath={.items[0].metadata.name}')
executor=$(kubectl_in bilbao get pods --selector fusionllm.io/role=executor --output 'jsonpath={.items[0].metadata.name}')
broker_port=$(port_of "$hub" before-broker-r0 broker) broker_page=$(port_of "$hub" before-broker-r0 metrics)
executor_port=$(port_of bilbao "$executor" executor) executor_page=$(port_of bilbao "$executor" metrics)
server=$(server_of bilbao)
server=${server#https://}
server=${server/://}
# May be dialled, and may not.
allowed=("$hub team stranger $broker_page" "bilbao team stranger $executor_page" "$hub fusionllm $operator $broker_page" "$hub fusionllm $operator $server")
barred=("$hub team stranger $broker_port" "bilbao team stranger $executor_port" "$hub fusionllm $operator $broker_port")
# shellcheck disable=SC2086
for dial in "${allowed[@]}" "${barred[@]}"; do dials $dial || fail "$dial: not even without a firewall, which proves nothing"; done
took "without a firewall all of them are reached: ${barred[*]}"

enforce_policies "$enforcer" "${machines[@]}"
# shellcheck disable=SC2086
is_barred() { ! dials $1; }
for dial in "${barred[@]}"; do until_true "a firewall before $dial" is_barred "$dial"; done
# shellcheck disable=SC2086
for dial in "${allowed[@]}"; do dials $dial || fail "the firewall bars what is needed: $dial"; done
step=$(step_of before)
until_true "steps after step $step" has_passed before $((step + 20))
status_is before restarts 0 || fail "the firewall has restarted the job"
took "with it these are not, the pages for monitoring and the API servers still are, and the job trains on, at step $(step_of before)"

job after 40 "{name: bilbao, min: 2, max: 2}, {name: lviv, min: 1, max: 1}" "{replicas: 3, threads: 1}"
wait_for after condition=Complete
took "another job has begun and come to its end: $(k get fusionjob after --no-headers)"
for cluster in "$hub" bilbao; do kubectl_in "$cluster" delete pod stranger --now >/dev/null; done
k delete fusionjob after --timeout="$patience" >/dev/null
delete_job before
took "deleted, nothing is left in any cluster"
take_down "policies enforced"
