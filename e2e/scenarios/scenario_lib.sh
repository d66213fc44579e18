# What scenarios share: clusters with the chart's operator, members, a job over them, waits that come to an end. Sourced, first of all, by
# scripts with `set -euo pipefail`; sources what it needs itself.
scenario_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../cluster/names_lib.sh
. "$scenario_folder/../cluster/names_lib.sh"
# shellcheck source=../smoke/checks_lib.sh
. "$scenario_folder/../smoke/checks_lib.sh"
# shellcheck source=audit_lib.sh
. "$scenario_folder/audit_lib.sh"
# shellcheck source=given_lib.sh
. "$scenario_folder/given_lib.sh"
cluster_scripts=$scenario_folder/../cluster
source_folder=$(cd "$scenario_folder/../.." && pwd)
patience=${FUSIONLLM_E2E_PATIENCE:-600}s  # for anything; the machine may do other things, too
account=fusion-fusionllm  # of the release `fusion`: the operator's Deployment, and its account

started=$SECONDS
step_started=$SECONDS
took() {
  echo "$((SECONDS - step_started)) s: $*"
  step_started=$SECONDS
}

# bring_up HUB [MEMBER...]: the first one is the hub. All of them go when the script ends, however it ends. Where HUB_KUBECONFIG gives clusters
# nothing is brought up: those are used under the names of these, and left as they were.
bring_up() {
  local name
  hub=$1
  hubs=("$hub")
  members=("${@:2}")
  machines=("$@")
  scratch=$(mktemp -d)  # for the scenario's own files; goes with the clusters
  trap 'end_badly $?' EXIT
  if given; then
    take_given "$@"
    return
  fi
  for name in operator broker scheduler executor; do
    [ -r "$build_folder/images/$name.tar" ] || die "$build_folder/images/$name.tar is not there: make images"
  done
  places_before=$(shared_places)
  "$cluster_scripts/up.sh" "$@" >/dev/null
}

# The operator's words, where a scenario has failed: the clusters are gone a moment later.
end_badly() {
  local status=$1
  [ "$BASHPID" = $$ ] || return 0  # a subshell's end is not the scenario's
  [ ${#watching[@]} -eq 0 ] || kill "${watching[@]}" 2>/dev/null || true
  if [ "$status" -ne 0 ] && { ! given || [ -n "$given_are_ours" ]; }; then
    echo "---- the operator:" >&2
    for hub in "${hubs[@]}"; do
      own logs --all-pods --prefix --tail=60 "deployment/$account" >&2 || true
      echo "---- the jobs and their Pods:" >&2
      k describe fusionjobs 2>/dev/null | tail -60 >&2 || true
    done
    for cluster in "${hubs[@]}" "${members[@]}"; do kubectl_of "$cluster" get pods --all-namespaces --output wide >&2 || true; done
  fi
  if [ "$status" -eq 0 ] || [ -z "${FUSIONLLM_E2E_KEEP:-}" ]; then
    if ! given; then
      "$cluster_scripts/down.sh" "${machines[@]}"
    elif [ -n "$given_are_ours" ]; then
      (leave_given) || status=1
    fi
  fi
  rm -rf "$scratch"
  exit "$status"
}

# shape_links RATE DELAY FROM TO...: what joins the first cluster with each of the others. Links of clusters that were given are as they are.
behind=", behind links of 50 Mbit/s and 20 ms"  # for the scenarios' words
if given; then behind=", as they were given"; fi
shape_links() {
  local other
  if given; then return; fi
  for other in "${@:4}"; do "$cluster_scripts/link.sh" shape "$3" "$other" "$1" "$2"; done
}

# empty COMMAND...: it answers, and with nothing. One that fails has not said that nothing is there.
empty() {
  local answer
  answer=$("$@") && [ -z "$answer" ]
}

k() { kubectl_of "$hub" --namespace team "$@"; }
own() { kubectl_of "$hub" --namespace fusionllm "$@"; }  # where the operator is
kubectl_in() { kubectl_of "$1" --namespace team "${@:2}"; }
helm_in() { "$(tool helm)" --kubeconfig "$(kubeconfig_of "$1")" --namespace fusionllm "${@:2}"; }

# until_true WHAT COMMAND...
until_true() {
  local what=$1 deadline=$((SECONDS + ${patience%s}))
  shift
  until "$@"; do
    [ $SECONDS -lt $deadline ] || fail "waited in vain for $what"
    sleep 0.5
  done
}

# ---- what a cluster needs ----
# prepare_hub [WITH_EXECUTORS]: images, the namespaces, the data. Executors run on a hub that is a member of itself alone.
prepare_hub() {
  local images=(operator broker scheduler)
  if [ -n "${1:-}" ]; then images+=(executor); fi
  import_images "$hub" "${images[@]}"
  make_namespace "$hub" fusionllm
  prepare_team "$hub"
}
prepare_member() {
  import_images "$1" executor
  prepare_team "$1"
}
# Those that are given pull theirs.
import_images() {
  local name archives=()
  if given; then return; fi
  for name in "${@:2}"; do archives+=("$build_folder/images/$name.tar"); done
  "$cluster_scripts/import-image.sh" "$1" "${archives[@]}"
}
# One that was found stays as it is.
make_namespace() {
  if ! given || ! has_namespace "$1" "$2"; then restricted_namespace "$1" "$2"; fi
}
prepare_team() {
  make_namespace "$1" team
  kubectl_in "$1" create configmap text --from-file="$source_folder/README.md" >/dev/null
  make_claim "$1"
}

# make_claim CLUSTER [NAME]: a claim, `checkpoints` or NAME, on a folder of the node's, as an administrator provides one; Pods that may not use a
# host's folder may use a claim.
make_claim() {
  local name=${2:-checkpoints}
  local folder=$state_root/$1/volumes/$name
  if given; then
    make_given_claim "$1"
    return
  fi
  mkdir -p "$folder"
  chmod 777 "$folder"
  kubectl_in "$1" apply --filename - >/dev/null <<CLAIM
apiVersion: v1
kind: PersistentVolume
metadata: {name: $name}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  hostPath: {path: $folder, type: Directory}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: $name}
spec: {accessModes: [ReadWriteMany], storageClassName: "", volumeName: $name, resources: {requests: {storage: 1Gi}}}
CLAIM
}

# install_operator [HELM_OPTION...]
install_operator() {
  local values=(--set image.pullPolicy=Never)
  if given; then
    [ -n "${IMAGE_REGISTRY:-}" ] || die "IMAGE_REGISTRY does not say where the clusters pull the images"
    mapfile -t values < <(given_chart_values)
  fi
  # A namespace that is deleted with a job in it would take rights in it along first.
  values+=(--set rbac.allNamespaces=true)
  helm_in "$hub" install fusion "$source_folder/helm/fusionllm" "${values[@]}" "$@" --wait --timeout "$patience" >/dev/null
}
# uninstall CLUSTER: the release there. What helm says is told where it fails.
uninstall() {
  local said
  said=$(helm_in "$1" uninstall fusion --wait --timeout "$patience" 2>&1) || fail "helm uninstall in $1: $said"
}

# for_hub MEMBER: a file with the kubeconfig of the member's administrator, as the hub's Pods can use it.
for_hub() { if given; then echo "$scratch/given/$1.for-hub"; else kubeconfig_of "$1"; fi; }
server_of() { "$(tool kubectl)" --kubeconfig="$(for_hub "$1")" config view --output 'jsonpath={.clusters[0].cluster.server}'; }
# register MEMBER KUBECONFIG [MORE]; again, with another kubeconfig: its Secret is replaced. MORE: further fields of the spec.
register() {
  own create secret generic "$1" --from-file="kubeconfig=$2" --dry-run=client --output yaml |
    own apply --filename - >/dev/null
  kubectl_of "$hub" apply --filename - >/dev/null <<CLUSTER
apiVersion: fusionllm.io/v1alpha1
kind: FusionCluster
metadata: {name: $1}
spec: {kubeConfig: {location: $1}${3:+, $3}}
CLUSTER
}

# members_behind RATE DELAY [HELM_OPTION...]: the members' links, the operator on the hub, and all members connected with it as their administrators.
members_behind() {
  local member preparing=() one
  shape_links "$1" "$2" "$hub" "${members[@]}"
  for member in "${members[@]}"; do
    prepare_member "$member" &
    preparing+=($!)
  done
  prepare_hub
  install_operator "${@:3}"
  for one in "${preparing[@]}"; do wait "$one" || fail "a member could not be prepared"; done
  for member in "${members[@]}"; do register "$member" "$(for_hub "$member")"; done
  for member in "${members[@]}"; do until_true "the connection to $member" condition_is "fusioncluster/$member" Connected True; done
}

# ---- jobs ----
# job NAME STEPS CLUSTERS [EXECUTORS [MORE]]: an executor in each of two clusters, or as EXECUTORS says; MORE: further fields of the spec.
# They reach each other as $network_mode says, else by the relay; it has $replicas pipelines, else 1, of $stages stages, else 2; it trains $model, else a small gpt2,
# where $placed, further fields of spec.placement, lets it,
# with $data, else the text that each cluster has in a ConfigMap; it is in the namespace $job_namespace, else `team`, with $labels.
job() {
  kubectl_of "$hub" --namespace "${job_namespace:-team}" apply --filename - >/dev/null <<JOB
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: $1, labels: {${labels:-}}}
spec:
  model: ${model:-$usual_model}
  data: ${data:-$text_data}
  training: {steps: $2, globalBatchSize: 8, microBatchSize: 2, sequenceLength: 64}
  strategy: {stages: ${stages:-2}, replicas: ${replicas:-1}}
  compression: ${compression:-$usual_compression}
  placement: {clusters: [$3]${placed:+, $placed}}
  network: {mode: ${network_mode:-Relay}}
  executors: ${4:-$two_executors}
${5:-}
JOB
}
usual_model="{family: gpt2, config: {nLayer: 2, nHead: 2, nEmbd: 64, vocabSize: 256, blockSize: 64}}"
usual_compression="{policy: adatopk, codec: auto}"
text_data="{kind: text, path: README.md, volume: {configMap: {name: text}}}"
two_executors="{replicas: 2, threads: 1}"
one_in_each() {
  local list
  list=$(printf '{name: %s, min: 1}, ' "${members[@]}")
  echo "${list%, }"
}
with_checkpoints="  checkpoint: {path: run, everySteps: 20, volume: {persistentVolumeClaim: {claimName: checkpoints}}}"
# For jobs that go on without a site, or without its only executor.
with_checkpoints_at_broker="  checkpoint: {path: run, everySteps: 20, shards: Broker, volume: {persistentVolumeClaim: {claimName: checkpoints}}}"

field_of() { k get "$1" --output "jsonpath={.$2}"; }
condition_of() { field_of "$1" "status.conditions[?(@.type==\"$2\")].${3:-status}"; }
condition_is() { [ "$(condition_of "$1" "$2")" = "$3" ]; }
reason_is() { [ "$(condition_of "$1" "$2" reason)" = "$3" ]; }
status_of() { field_of "fusionjob/$1" "status.$2"; }
status_is() { [ "$(status_of "$1" "$2")" = "$3" ]; }
step_of() { status_of "$1" trainerStatus.step; }
has_passed() { [ "$(step_of "$1")" -gt "$2" ] 2>/dev/null; }
wait_for() { k wait --for="$2" "fusionjob/$1" --timeout="$patience" >/dev/null || fail "$1: no $2"; }

# watch_status JOB FIELDS FILE: each status that the job has from here on goes to FILE, a line as FIELDS tell it, until end_watches or the
# scenario's end. kubectl itself is the child, not a shell around it that would leave it behind.
watching=()
watch_status() {
  { exec "$(tool kubectl)" --kubeconfig="$(kubeconfig_of "$hub")" --namespace team get fusionjob "$1" --watch --output "jsonpath=$2{\"\n\"}"; } >"$3" &
  watching+=($!)
}
# One that has ended by itself has missed what came then.
end_watches() {
  local process
  for process in "${watching[@]}"; do
    kill "$process" 2>/dev/null || fail "a watch of a job has ended before its time"
    wait "$process" 2>/dev/null || true
  done
  watching=()
}

# A loss in the status that shows that the model has learned: ln 256, 5.55, is what guessing costs, and batches differ by some 0.05. How far
# below it a few dozen steps come depends on how much is compressed, which is for the speed of the machine to say.
expect_trained() {
  local loss
  loss=$(status_of "$1" trainerStatus.loss)
  awk -v loss="$loss" 'BEGIN { exit !(loss > 0 && loss < 5.3) }' || fail "the loss of $1 in its status is '$loss'"
}

# Of a job that came to its end undisturbed: nobody who watches warnings has heard of it.
expect_no_warnings() {
  local warnings
  warnings=$(k get events --field-selector "involvedObject.kind=FusionJob,involvedObject.name=$1,type=Warning" \
    --output 'jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}') || fail "the events of $1 cannot be read"
  [ -z "$warnings" ] || fail "$1 was not disturbed and warns: $warnings"
}

# pods_of CLUSTER...: NAME UID RESTARTS of each Pod of a job there, sorted: the same twice, and no Pod has been replaced or started again.
pods_of() {
  local cluster
  for cluster in "$@"; do
    kubectl_in "$cluster" get pods --selector fusionllm.io/job --output \
      'jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[*].restartCount}{"\n"}{end}' || return
  done | sort
}
uid_of() { kubectl_in "$1" get pod "$2" --ignore-not-found --output 'jsonpath={.metadata.uid}'; }
uid_is_new() {
  local uid
  uid=$(uid_of "$1" "$2") && [ -n "$uid" ] && [ "$uid" != "$3" ]
}

# end_soon NAME MORE_STEPS: a job with a claim for its checkpoints is suspended, given an end that is near, resumed, and comes to it. What a
# step takes on this machine makes no difference.
end_soon() {
  k patch fusionjob "$1" --type=merge --patch '{"spec": {"suspend": true}}' >/dev/null
  wait_for "$1" condition=Suspended
  local steps=$(($(status_of "$1" checkpoint.step) + $2))
  k patch fusionjob "$1" --type=merge --patch "{\"spec\": {\"suspend\": false, \"training\": {\"steps\": $steps}}}" >/dev/null
  wait_for "$1" condition=Complete
  status_is "$1" trainerStatus.step $steps || fail "the status tells of step $(step_of "$1") of $steps"
}

# sent FROM TO: bytes that have left FROM for TO, of everything that is there.
sent() { ip netns exec "$(prefixed "$1")" cat "/sys/class/net/to-$2/statistics/tx_bytes"; }
# count_sent FROM TO HUB, and later expect_sent FROM TO HUB: meanwhile tensors have gone from member to member, not by way of the hub. What
# passes the links of clusters that were given nobody counts.
count_sent() {
  if given; then return; fi
  sent_direct=$(sent "$1" "$2")
  sent_by_hub=$(sent "$1" "$3")
}
expect_sent() {
  local direct by_hub
  here "how many bytes went where: it takes counts of the links" || return 0
  direct=$(($(sent "$1" "$2") - sent_direct)) by_hub=$(($(sent "$1" "$3") - sent_by_hub))
  # Link probes alone are some megabytes each way. By the relay nothing would go from member to member.
  [ "$direct" -gt 1000000 ] || fail "$1 has sent $2 $direct bytes"
  [ "$by_hub" -lt "$direct" ] || fail "$1 has sent the hub $by_hub bytes, and $2 $direct"
  took "$1 has sent $2 $direct bytes, and the hub $by_hub"
}

# Load balancers cost as long as they are there.
no_services() {
  local cluster
  for cluster in "$hub" "${members[@]}"; do
    empty kubectl_in "$cluster" get services --selector fusionllm.io/job --output name || return
  done
}
expect_no_services() { until_true "the Services of a job that is over to go" no_services; }

# ---- operators ----
# The process that leads, as the Lease names it, and its Pod; nothing while nobody does.
leading_instance() { own get lease fusion-operator --output 'jsonpath={.spec.holderIdentity}'; }
leader() { leading_instance | cut -d_ -f1; }
# another_leads FORMER: FORMER is a Pod, or a process: one that was killed is started again in its Pod, and may lead again.
another_leads() {
  local now_leads
  now_leads=$(leading_instance) && [ -n "$now_leads" ] && [ "$now_leads" != "$1" ] && [ "${now_leads%%_*}" != "$1" ]
}
operators_ready() {
  [ "$(own get deployment "$account" --output 'jsonpath={.status.readyReplicas}/{.status.unavailableReplicas}')" = "$1/" ]
}
# process_of_operator POD: its process on this machine.
process_of_operator() {
  local environment
  for environment in $(grep -lzx "HOSTNAME=$1" /proc/[0-9]*/environ 2>/dev/null); do
    if [ "$(cat "${environment%/environ}/comm" 2>/dev/null)" = fusion-operator ]; then
      basename "${environment%/environ}"
      return
    fi
  done
  fail "the operator $1 has no process"
}

# Seconds from one time of the machine's clock, as now has it, to another.
now() { date +%s.%N; }
seconds_between() { awk -v from="$1" -v to="$2" 'BEGIN { printf "%.1f", to - from }'; }
# at_most SECONDS LIMIT WHAT
at_most() { awk -v took="$1" -v limit="$2" 'BEGIN { exit !(took <= limit) }' || fail "$3 took $1 s, more than $2 s"; }

# ---- the end ----
left_in() { kubectl_in "$1" get pods,configmaps,secrets,services --selector fusionllm.io/job --output name; }
nothing_left_in() { empty left_in "$1"; }
# tombstones_of NAME: what clusters owe of the job, by the hub's word.
tombstones_of() { own get configmaps --selector fusionllm.io/role=tombstone --output "jsonpath={range .items[?(@.data.job==\"$1\")]}{.metadata.name} {end}"; }
# delete_job NAME: it, and all that was made for it in any cluster.
delete_job() {
  k delete fusionjob "$1" --timeout="$patience" >/dev/null || fail "the job $1 is not deleted"
  local cluster
  for cluster in "$hub" "${members[@]}"; do until_true "$cluster to be clean of jobs" nothing_left_in "$cluster"; done
  until_true "the tombstones of $1 to go" empty tombstones_of "$1"
}

# take_down NAME_OF_SCENARIO
take_down() {
  [ -n "$rights_kept" ] || keep_rights
  for hub in "${hubs[@]}"; do uninstall "$hub"; done
  leave "$1"
}
# leave NAME_OF_SCENARIO: the clusters, which have no release any more.
leave() {
  if given; then
    leave_given
    took "left as they were found"
  else
    "$cluster_scripts/down.sh" "${machines[@]}"
    trap - EXIT
    rm -rf "$scratch"
    expect_nothing_left "$places_before" "${machines[@]}"
    took "down, nothing left"
  fi
  trap - EXIT
  rm -rf "$scratch"
  echo "$1: passed in $((SECONDS - started)) s"
}
