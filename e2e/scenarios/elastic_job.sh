#!/bin/bash
# elastic_job.sh: a job whose number of executors changes with the room that there is and with what its user wants. One that no node can hold
# is refused in words that name the cluster and what is short. The next wants three executors and a spare where two find room: it trains with
# two, and while it does the columns of `kubectl get` tell its progress, when it will be done, and its slowest link. Its cluster gets another
# node: it goes on with three, and the spare. A Pod is deleted: the spare takes its stage, nothing starts again. `kubectl scale` down, and up.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
only_on_own "it fills nodes whose size it knows, and adds one"
bring_up vhub turku
members_behind 50mbit 20ms
took "a hub and a member$behind"

# Two of these fit on a node, a third does not.
node_cpu=$(kubectl_of turku get nodes --output 'jsonpath={.items[0].status.allocatable.cpu}')
each="$((node_cpu * 1000 * 45 / 100))m"
wanting() { echo "{$1, threads: 1, template: {spec: {containers: [{name: executor, resources: {requests: {cpu: \"$2\"}}}]}}}"; }
summary() { kubectl_of "$hub" get fusioncluster turku --output "jsonpath={.status.resourceSummary.$1}"; }
summary_is() { [ "$(summary "$1")" = "$2" ]; }
until_true "the sums of turku's nodes" summary_is allocatableMillicpus $((node_cpu * 1000))
summary_is readyNodes 1 || fail "the FusionCluster tells of $(summary readyNodes) nodes that are ready"

# ---- no room at all ----
job huge 20 "{name: turku}" "$(wanting "replicas: 2" $((node_cpu + 1)))"
until_true "a job that fits nowhere to say so" reason_is fusionjob/huge Scheduled PlacementFailed
short=$(condition_of fusionjob/huge Scheduled message)
for word in turku "too little cpu" "each asks for" "$((node_cpu + 1)) cpu"; do
  [[ $short == *"$word"* ]] || fail "the refusal does not say '$word': $short"
done
empty pods_of "${machines[@]}" || fail "Pods were made for a job that has no room: $(pods_of "${machines[@]}")"
delete_job huge
took "a job that fits nowhere says: $short"

# ---- fewer than are wanted ----
training() { kubectl_in turku get pods --selector fusionllm.io/role=executor,fusionllm.io/job=wide --output 'jsonpath={range .items[*]}{.metadata.name} {end}'; }
training_is() { [ "$(training)" = "$1" ]; }
job wide 100000 "{name: turku}" "$(wanting "min: 1, max: 3, replicas: 3, spares: 1, stabilizationSeconds: 5" "$each")" "$with_checkpoints"
until_true "the job to say that it waits for room" reason_is fusionjob/wide Scheduled InsufficientCapacity
short=$(condition_of fusionjob/wide Scheduled message)
for word in "2 of 3" turku "too little cpu"; do
  [[ $short == *"$word"* ]] || fail "what is short is not told as '$word': $short"
done
echo "  $short"
until_true "the job to begin with fewer" reason_is fusionjob/wide Scheduled PartiallyScheduled
wait_for wide condition=Ready
until_true "its first steps" has_passed wide 20
training_is "wide-turku-0-r0 wide-turku-1-r0 " || fail "in turku there is: $(training)"
status_is wide executors 2/4 || fail "the status tells of $(status_of wide executors) executors"
took "it trains with two executors of three"

# ---- what people see ----
# As kubectl prints it: each value below the head of its column, whatever is in it.
column() {
  k get fj "$1" --output wide | awk -v head="$2" '
    NR == 1 { from = match($0, "(^|  )" head "(  |$)"); if ($0 !~ "^" head) from += 2; rest = substr($0, from + length(head)); width = length(head) + match(rest, /[^ ]/) - 1 }
    NR == 2 && from { value = match(rest, /[^ ]/) ? substr($0, from, width) : substr($0, from); sub(/ +$/, "", value); print value }'
}
expect_column() { [[ $(column wide "$1") =~ $2 ]] || fail "the column $1 has '$(column wide "$1")': $(k get fj wide --output wide)"; }
has_link() { [ -n "$(status_of wide trainerStatus.slowestLink)" ]; }
until_true "a link that has been measured" has_link
expect_column PROGRESS '^[0-9]+%$'
expect_column ETA '^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$'
expect_column ETA '[1-9]'
expect_column STEP '^[1-9][0-9]*$'
expect_column 'SLOWEST LINK' '^turku-[01] ?-?> ?turku-[01].* [0-9.]+ [kMG]?B/s$'
# The estimate is that of the steps that are left, at the pace that the status tells.
left=$(status_of wide trainerStatus.estimatedRemainingSeconds) pace=$(status_of wide trainerStatus.measuredStepMilliseconds)
awk -v left="$left" -v pace="$pace" -v steps=$((100000 - $(step_of wide))) 'BEGIN { plain = steps * pace / 1000; exit !(plain > 0 && left > plain / 3 && left < plain * 3) }' ||
  fail "$((100000 - $(step_of wide))) steps of $pace ms are left, and the estimate is $left s"
k get fj wide --output wide
took "kubectl get tells how it goes"

# ---- room for more ----
machines+=(turku2)
"$cluster_scripts/add-node.sh" turku turku2
"$cluster_scripts/import-image.sh" turku2 "$build_folder/images/executor.tar"
shape_links 50mbit 20ms "$hub" turku2
# number_is N: it has so many, spares among them, and all are ready.
number_is() { status_is wide executors "$1/$1" && condition_is fusionjob/wide Ready True; }
# resized WHAT ATTEMPT PODS: the attempt has these Pods, and goes on from where the one before was.
resized() {
  local step
  until_true "$1: another attempt" status_is wide attempt "$2"
  wait_for wide condition=Ready
  until_true "$1: the Pods $3; there are: $(training)" training_is "$3"
  step=$(step_of wide)
  [ "$step" -ge "$reached" ] || fail "$1: at step $reached before, and now at $step"
  until_true "$1: steps after $step" has_passed wide $((step + 20))
  status_is wide restarts 0 || fail "$1 counts as $(status_of wide restarts) restarts"
  reached=$(step_of wide)
  took "$1: it trains with $(status_of wide executors) executors on from step $step, now at $reached"
}
reached=$(step_of wide)
resized "another node" 1 "wide-turku-0-r1 wide-turku-1-r1 wide-turku-2-r1 wide-turku-3-r1 "
until_true "three executors and a spare" number_is 4
summary_is readyNodes 2 || fail "the FusionCluster tells of $(summary readyNodes) nodes that are ready"
spare_of() { kubectl_in turku get pods --selector fusionllm.io/job=wide --output 'jsonpath={range .items[*]}{.metadata.name} {.spec.containers[0].command}{"\n"}{end}' | awk '/"--spare"/ { print $1 }'; }
[ "$(spare_of)" = wide-turku-3-r1 ] || fail "the spare is $(spare_of)"

# ---- the spare takes over ----
# One that has a stage, of three that could have one.
victim=$(k logs wide-broker-r1 --container broker | sed -n 's/.*plan epoch [0-9]* on \(turku-[0-9]\).*/\1/p' | tail -1)
[ -n "$victim" ] || fail "the broker does not say who has a stage"
others=$(pods_of "$hub")
before=$(uid_of turku "wide-$victim-r1")
kubectl_in turku delete pod "wide-$victim-r1" --grace-period=0 --force >/dev/null 2>&1
told() { k logs wide-broker-r1 --container broker | grep '"SpareActivated"' >"$scratch/told"; }
until_true "the spare to take a stage" told
takes="turku-3 takes stage [0-9]* from $victim"
grep -q "$takes" "$scratch/told" || fail "the broker says: $(cat "$scratch/told")"
spare_events() { k get events --field-selector involvedObject.kind=FusionJob,involvedObject.name=wide,reason=SpareActivated --output 'jsonpath={range .items[*]}{.message}{"\n"}{end}'; }
told_to_the_user() { spare_events | grep -q "$takes"; }
until_true "an event of the job that tells it" told_to_the_user
[ "$(spare_events | wc -l)" -eq 1 ] || fail "the spare is told as $(spare_events)"
step=$(step_of wide)
until_true "steps after step $step" has_passed wide $((step + 20))
until_true "the lost one to be replaced" uid_is_new turku "wide-$victim-r1" "$before"
[ "$(pods_of "$hub")" = "$others" ] || fail "the broker was started again: $(pods_of "$hub")"
status_is wide attempt 1 || fail "there was another attempt: $(status_of wide attempt)"
reached=$(step_of wide)
took "an executor is lost: $(grep -o "$takes" "$scratch/told")"

# ---- what the user wants ----
refused=$(k scale fj wide --replicas=4 2>&1) && fail "kubectl scale went beyond max"
[[ $refused == *"at most max"* ]] || fail "the refusal of kubectl scale does not name the field: $refused"
k scale fj wide --replicas=2 >/dev/null
resized "kubectl scale down" 2 "wide-turku-0-r2 wide-turku-1-r2 wide-turku-2-r2 "
until_true "two executors and a spare" number_is 3
[ "$(spare_of)" = wide-turku-2-r2 ] || fail "the spare is $(spare_of)"
k scale fj wide --replicas=3 >/dev/null
resized "kubectl scale up" 3 "wide-turku-0-r3 wide-turku-1-r3 wide-turku-2-r3 wide-turku-3-r3 "
until_true "three executors and a spare" number_is 4
status_is wide replicas 4 || fail "the scale subresource tells of $(status_of wide replicas)"

end_soon wide 20
expect_trained wide
took "$(k get fusionjob wide --no-headers)"
delete_job wide
took "deleted, nothing is left in any cluster"
take_down "as many executors as there is room for"
