#!/bin/bash
# failover.sh: two operators, of which one leads, over a member where jobs train. The leader is deleted as an eviction does it, then its process
# is killed with SIGKILL; how long until another one leads is measured by the API server's clock. Then a leader is frozen, just when there is
# something to do, for longer than its Lease lasts: the standby takes over and does it; the old one wakes up, ends, and by the audit logs of
# hub and member it has written nothing after it had lost the Lease. All the while the job trains, and none of its Pods is replaced.
# The chart's admission policies are in force from the second half on: what they are for is refused, by hub and member, and was not before.
# In clusters that were given the leader is deleted, and that is all: how soon another one leads is told as kubectl sees it, and held to no limit.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
graceful_limit=2.5 crash_limit=17  # seconds: docs/results/operator-failures.md
bring_up hhub genoa
members_behind 50mbit 20ms
helm_in "$hub" upgrade fusion "$source_folder/helm/fusionllm" --reuse-values --set operator.replicas=2 \
  --set operator.livenessProbe.failureThreshold=60 --wait --timeout "$patience" >/dev/null
# (Whoever is frozen with its whole machine is not killed by a kubelet either.)
until_true "two operators" operators_ready 2
# Nothing is compressed: what is looked at here is who leads. A model that has trained on one executor alone, while the other is replaced, begins
# with a higher loss where compression sets in (docs/concepts/compression.md).
compression="{policy: none}"
job long 1000000 "{name: genoa, min: 2}" "$two_executors" "$with_checkpoints"
wait_for long condition=Ready
until_true "its first steps" has_passed long 5
pods=$(pods_of "${machines[@]}")
took "a hub with two operators and a member$behind; a job trains"

undisturbed() {
  wait_for long condition=Ready
  local step
  step=$(step_of long)
  until_true "a status after step $step" has_passed long "$step"
  [ "$(pods_of "${machines[@]}")" = "$pods" ] || fail "Pods of the job have changed: $(diff <(echo "$pods") <(pods_of "${machines[@]}"))"
  status_is long restarts 0 || fail "the job was restarted"
}
# led_since INSTANCE: when it wrote the Lease for the first time; each process leads once.
led_since() {
  operator_requests "$hub" | awk -v instance="$1" '
    $6 == instance && $3 == "leases" && $2 == "update" && $5 == 200 && !found { print $1; found = 1 }'
}
seconds_of() { date --date "$1" +%s.%N; }
# taken_over FORMER SINCE: until another one leads, in seconds.
taken_over() {
  until_true "another operator to lead" another_leads "$1"
  if given; then
    seconds_between "$2" "$(now)"
    return
  fi
  seconds_between "$2" "$(seconds_of "$(led_since "$(leading_instance)")")"
}

# ---- an end as Kubernetes orders it ----
for round in 1 2 3; do
  former=$(leader)
  since=$(now)
  own delete pod "$former" --wait=false >/dev/null
  graceful=$(taken_over "$former" "$since")
  echo "  round $round: deleted, another leads after $graceful s"
  given || at_most "$graceful" $graceful_limit "the change of leaders after an ordered end"
  until_true "two operators" operators_ready 2
done
undisturbed
took "the leader was deleted three times"
if ! here "leaders that are killed and frozen, which takes power over their machines, and the admission policies"; then
  end_soon long 20
  expect_trained long
  delete_job long
  took "deleted, nothing is left in any cluster"
  take_down "leaders come and go"
  exit
fi

# ---- a crash ----
for round in 1 2 3; do
  former=$(leading_instance)
  process=$(process_of_operator "${former%%_*}")
  since=$(now)
  kill -KILL "$process"
  crashed=$(taken_over "$former" "$since")
  echo "  round $round: killed, another leads after $crashed s"
  at_most "$crashed" $crash_limit "the change of leaders after a crash"
  until_true "two operators" operators_ready 2
done
undisturbed
took "the leader was killed three times"

# ---- the admission policies ----
epoch_in() { kubectl_in "$1" get configmap long-anchor --output 'jsonpath={.metadata.annotations.fusionllm\.io/epoch}'; }
# as_of CLUSTER EPOCH: does the API server take a Pod of the job from an operator that leads by this epoch? Its words go to $scratch/said.
as_of() {
  local marks
  marks="labels: {fusionllm.io/origin: hub, fusionllm.io/job-uid: $(field_of fusionjob/long metadata.uid)}, annotations: {fusionllm.io/epoch: \"$2\"}"
  restricted_pod late localhost/fusionllm/executor late | sed "s#labels: {app: late}#$marks#" |
    kubectl_in "$1" create --dry-run=server --filename - >"$scratch/said" 2>&1
}
refuses() { ! as_of "$@" && grep -q "of an operator that leads no more: its epoch is $2" "$scratch/said"; }
for cluster in "${machines[@]}"; do
  epoch=$(epoch_in "$cluster")
  [ "$epoch" -gt 1 ] || fail "after six changes of leaders the epoch in $cluster is '$epoch'"
  as_of "$cluster" $((epoch - 1)) || fail "$cluster refuses an older epoch without a policy: $(cat "$scratch/said")"
done
helm_in "$hub" upgrade fusion "$source_folder/helm/fusionllm" --reuse-values --set admission.fence=true,admission.executorLimits=true \
  --wait --timeout "$patience" >/dev/null
make_namespace genoa fusionllm
helm_in genoa install fusion "$source_folder/helm/fusionllm" --set role=member,admission.fence=true,rbac.jobNamespaces='{team}' --wait --timeout "$patience" >/dev/null
for cluster in "${machines[@]}"; do
  epoch=$(epoch_in "$cluster")
  # The server takes a moment to know a policy.
  until_true "$cluster to refuse a Pod of an older epoch" refuses "$cluster" $((epoch - 1))
  echo "  $cluster: $(grep -o 'of an operator that leads no more.*' "$scratch/said")"
  as_of "$cluster" "$epoch" || fail "$cluster refuses a Pod of the leader: $(cat "$scratch/said")"
done
kubectl_of "$hub" annotate namespace team fusionllm.io/max-executors=2 >/dev/null
limited() { job more 20 "{name: genoa, min: 3}" "{replicas: 3, threads: 1}" 2>"$scratch/said" && return 1 || grep -q "allows a job 2 executors" "$scratch/said"; }
takes_no_more() {
  if limited; then return; fi
  k delete fusionjob more --ignore-not-found >/dev/null
  return 1
}
until_true "a job with three executors to be refused" takes_no_more
echo "  $hub: $(grep -o 'spec.executors: .*' "$scratch/said")"
refused=$(job more 20 "{name: genoa, min: 2}" "{replicas: 2, spares: 1, threads: 1}" 2>&1) && fail "spares went beyond what the namespace allows"
[[ $refused == *"allows a job 2 executors"* ]] || fail "the refusal of spares does not say why: $refused"
refused=$(k scale fusionjob long --replicas=3 2>&1) && fail "kubectl scale went beyond what the namespace allows"
[[ $refused == *"allows a job 2 executors"* ]] || fail "the refusal of kubectl scale does not say why: $refused"
stages=1 job spared 20 "{name: genoa, min: 1}" "{replicas: 1, spares: 1, threads: 1}" "  suspend: true"
counts_spares() { ! k scale fusionjob spared --replicas=2 >"$scratch/said" 2>&1 && grep -q "has 1 as spares" "$scratch/said"; }
until_true "kubectl scale to be refused what the spares leave no room for" counts_spares
k delete fusionjob spared --timeout="$patience" >/dev/null
until_true "two operators" operators_ready 2
undisturbed
took "with the admission policies on, older epochs and more executors than allowed are refused, and the job trains on"

# ---- a leader that is frozen, and wakes up ----
former=$(leader)
frozen=$(leading_instance)
process=$(process_of_operator "$former")
# As it begins to work on the later ones: there is much that it has read, and not yet written.
job late-1 20 "{name: genoa, min: 2}"
begun() { [ -n "$(uid_of genoa late-1-genoa-0-r0)" ]; }
until_true "the first of its jobs to be begun" begun
for number in 2 3; do job "late-$number" 20 "{name: genoa, min: 2}"; done
kill -STOP "$process"
since=$(now)
kubectl_in genoa delete pod long-genoa-0-r0 --wait=false >/dev/null  # and something that only a leader mends
replaced=$(uid_of genoa long-genoa-0-r0)
waited=$(taken_over "$former" "$since")
successor=$(leading_instance)
at_most "$waited" $crash_limit "the change of leaders after a freeze"
for number in 1 2 3; do wait_for "late-$number" condition=Complete; done
until_true "a new executor" uid_is_new genoa long-genoa-0-r0 "$replaced"
took "the leader froze, another led after $waited s and has brought what it left to an end"

last_led=$(led_since "$successor")
woke=$(audit_time)
kill -CONT "$process"
ended() { ! kill -0 "$process" 2>/dev/null; }
until_true "the former leader to end" ended
end_took=$(seconds_between "$(seconds_of "$woke")" "$(now)")
until_true "two operators" operators_ready 2
[ "$(leading_instance)" = "$successor" ] || fail "somebody else leads: $(leading_instance)"
# Of the container before the one that runs, once the kubelet has seen that one end.
says_why() { [[ $(own logs "$former" --previous 2>&1) == *"lost the lead"* ]]; }
until_true "the former leader to have said why it ended" says_why
asked=$(operator_requests "$hub" | awk -v instance="$frozen" -v woke="$woke" '$6 == instance && $1 >= woke' | wc -l)
for cluster in "${machines[@]}"; do
  late=$(operator_writes "$cluster" "$last_led" | awk -v instance="$frozen" '$6 == instance')
  [ -z "$late" ] || fail "the former leader has written in $cluster after another had led since $last_led: $late"
  # That the log would have told it: each process is known by its writes.
  for one in "$frozen" "$successor"; do
    [[ $(operator_writes "$cluster") == *" $one"* ]] || fail "the audit log of $cluster knows no write of $one"
  done
done
pods=$(pods_of "${machines[@]}")
took "it woke up, asked the API server $asked times, ended after $end_took s, and wrote nothing"

undisturbed
end_soon long 20
expect_trained long
for number in 1 2 3; do k delete fusionjob "late-$number" --timeout="$patience" >/dev/null; done
delete_job long
uninstall genoa
took "deleted, nothing is left in any cluster"
take_down "leaders come and go"
