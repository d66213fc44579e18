#!/bin/bash
# tombstones.sh: a job over two members is deleted while one of them is cut off. The other one and the hub are cleaned at once; after the time
# that the job allows it goes, and a tombstone says what is owed to the member that is away, where the executor still runs. The operator is
# killed and another one started, which knows no more than that. The link is mended: what the job left in the member goes, and the tombstone.
# Then the same with a job that loses its finalizer, so that there is not even a tombstone: it is found as an orphan. A job of the same member
# that nobody has deleted trains on.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
only_on_own "it cuts links and kills an operator"
bring_up thub lagos sofia
members_behind 50mbit 20ms
took "a hub and two members, behind links of 50 Mbit/s and 20 ms"

shortest="  forceDeleteAfterSeconds: 60"  # as long as a job waits at least
job kept 1000000 "{name: sofia, min: 2}" "$two_executors" "$with_checkpoints"
job gone 1000000 "$(one_in_each)" "$two_executors" "$shortest"
job orphan 1000000 "$(one_in_each)" "$two_executors" "$shortest"
for name in kept gone orphan; do wait_for $name condition=Ready; done
for name in kept gone orphan; do until_true "the first steps of $name" has_passed $name 0; done
of_job() { kubectl_in "$1" get pods,configmaps,secrets,services --selector "fusionllm.io/job=$2" --output name; }
kept=$(kubectl_in sofia get pods --selector fusionllm.io/job=kept --output 'jsonpath={range .items[*]}{.metadata.uid}{"\n"}{end}')
in_sofia=$(of_job sofia gone)
[ -n "$in_sofia" ] || fail "nothing of the job is in sofia"
took "three jobs train"

# ---- deleted while a member is away ----
"$cluster_scripts/link.sh" cut "$hub" sofia
until_true "sofia to be missed" condition_is fusioncluster/sofia Connected False
took "sofia is cut off, and missed"
since=$(now)
k delete fusionjob gone --wait=false >/dev/null
for cluster in "$hub" lagos; do until_true "$cluster to be clean of it" empty of_job "$cluster" gone; done
until_true "the job to say what holds it" reason_is fusionjob/gone Deleting ClusterUnreachable
[[ $(condition_of fusionjob/gone Deleting message) == *sofia* ]] || fail "it does not say where: $(condition_of fusionjob/gone Deleting message)"
wait_for gone delete
took "the job went after $(seconds_between "$since" "$(now)") s"
tombstones() { own get configmaps --selector fusionllm.io/role=tombstone --output 'jsonpath={range .items[*]}{.data.cluster}/{.data.job} {end}'; }
[ "$(tombstones)" = "sofia/gone " ] || fail "the tombstones are: $(tombstones)"
[ "$(of_job sofia gone)" = "$in_sofia" ] || fail "something has touched what is in sofia, which nobody could"

# A job that went without its operator.
process=$(process_of_operator "$(leader)")
kill -KILL "$process"
own scale deployment "$account" --replicas=0 >/dev/null
until_true "the operator to be gone" empty own get pods --selector app.kubernetes.io/instance=fusion --output name
k patch fusionjob orphan --type=merge --patch '{"metadata": {"finalizers": null}}' >/dev/null
k delete fusionjob orphan --timeout="$patience" >/dev/null
[ -n "$(of_job lagos orphan)" ] || fail "somebody has cleaned up without an operator"
own scale deployment "$account" --replicas=1 >/dev/null
until_true "another operator" operators_ready 1
leads() { [ -n "$(leader)" ]; }
until_true "another operator to lead" leads
[ "$(tombstones)" = "sofia/gone " ] || fail "the tombstones are: $(tombstones)"
took "the operator was killed, another one leads; a second job is gone without either"

# ---- the member is back ----
"$cluster_scripts/link.sh" mend "$hub" sofia
since=$(now)
until_true "sofia to be clean of what is owed" empty of_job sofia gone
took "sofia is back, and clean of the first job after $(seconds_between "$since" "$(now)") s"
until_true "the tombstone to go" empty tombstones
for cluster in "${machines[@]}"; do until_true "$cluster to be clean of the orphan" empty of_job "$cluster" orphan; done
took "the tombstone is gone, and so is the orphan, after $(seconds_between "$since" "$(now)") s"

[ "$(kubectl_in sofia get pods --selector fusionllm.io/job=kept --output 'jsonpath={range .items[*]}{.metadata.uid}{"\n"}{end}')" = "$kept" ] ||
  fail "Pods of the job that was left alone have changed"
status_is kept restarts 0 || fail "the job that was left alone was restarted"
end_soon kept 20
expect_trained kept
delete_job kept
took "the third job has come to its end, and is deleted"
take_down "what is left in a member that is away"
