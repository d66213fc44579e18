#!/bin/bash
# rest.sh [SECONDS]: what an operator writes when there is nothing to do, by the audit logs of its hub and of two members. There are jobs that
# are Complete, one with its Pods and one without, one that has failed, one that is suspended, and two members that stay as they are. Once
# everything is settled nothing at all is written in ten minutes, or SECONDS, but the Lease by which the operator leads. Then a job trains,
# and its status is written every ten seconds at most; the members are not written to.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
rest=${1:-600}
only_on_own "it reads audit logs"
bring_up idlehub faro kyoto
members_behind 50mbit 20ms
took "a hub and two members, behind links of 50 Mbit/s and 20 ms"

job complete 20 "$(one_in_each)"
job bare 20 "$(one_in_each)" "$two_executors" "  cleanPodPolicy: All"
job failed 1000000 "{name: kyoto, min: 2}" "$two_executors" "  activeDeadlineSeconds: 1"
job suspended 1000000 "$(one_in_each)" "$two_executors" "$with_checkpoints"
wait_for suspended condition=Ready
until_true "its first steps" has_passed suspended 5
k patch fusionjob suspended --type=merge --patch '{"spec": {"suspend": true}}' >/dev/null
wait_for complete condition=Complete
wait_for bare condition=Complete
wait_for failed condition=Failed
wait_for suspended condition=Suspended
took "jobs that are Complete, Failed and Suspended"

writes_since() { for cluster in "${machines[@]}"; do operator_writes "$cluster" "$1" | sed "s/^/$cluster /" || return; done; }
# A FusionCluster's status is 75 s old at most: what its nodes have taken was told for the last time after that.
settled() { empty writes_since "$(date --utc --date '120 seconds ago' +%Y-%m-%dT%H:%M:%S.%6NZ)"; }
until_true "two minutes without a write" settled
took "two minutes have gone by without a write"
since=$(audit_time)
leases() { operator_requests "$hub" | awk -v since="$since" '$1 >= since && $3 == "leases" && $2 == "update"' | wc -l; }
asked() { for cluster in "${machines[@]}"; do operator_requests "$cluster"; done | awk -v since="$since" '$1 >= since && $3 != "leases"' | wc -l; }
sleep "$rest"
written=$(writes_since "$since")
[ -z "$written" ] || fail "at rest the operator has written: $written"
# That the logs would have told it.
[ "$(asked)" -gt 0 ] && [ "$(leases)" -gt 0 ] || fail "the audit logs know nothing of the operator"
took "$rest s of rest: 0 writes, $(leases) renewals of the Lease, $(asked) other requests"

job long 1000000 "$(one_in_each)"
wait_for long condition=Ready
until_true "its first steps" has_passed long 5
sleep 90  # until what its start has changed is told: FusionClusters, events
since=$(audit_time)
sleep 120
written=$(writes_since "$since")
others=$(grep -v " patch fusionjobs/status team " <<<"$written" || true)
count=$(grep -c " patch fusionjobs/status team " <<<"$written" || true)
[ "$count" -le 13 ] || fail "a job that trains was written $count times in two minutes: $written"
[ "$count" -ge 1 ] || fail "nothing was written of a job that trains"
[ -z "$others" ] || fail "while a job trains the operator has written, besides: $others"
took "two minutes of training: $count writes of the job's status, 0 others"
for name in complete bare failed suspended; do k delete fusionjob $name --timeout="$patience" >/dev/null; done
delete_job long
took "deleted, nothing is left in any cluster"
take_down "at rest"
