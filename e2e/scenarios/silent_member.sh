#!/bin/bash
# silent_member.sh [ROUNDS]: how long until a member is missed whose API server answers nothing any more, with its connections open (SIGSTOP): by
# the FusionCluster's condition, at moments that differ; and how long until it is known to be back. A job trains there all the while, and
# nothing of it is touched.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
rounds=${1:-3}
limit=45  # seconds: docs/results/operator-failures.md
only_on_own "it stops a member's API server"
bring_up shub delft
members_behind 50mbit 20ms
job long 1000000 "{name: delft, min: 2}" "$two_executors" "$with_checkpoints"
wait_for long condition=Ready
until_true "its first steps" has_passed long 5
pods=$(pods_of "${machines[@]}")
took "a hub and a member, behind a link of 50 Mbit/s and 20 ms; a job trains"

answers() { audit_log delft | grep -c '"requestURI":"/version".*"userAgent":"fusion-operator.*"code":200' || true; }
answers_more_than() { [ "$(answers)" -gt "$1" ]; }
missed=() found=()
for round in $(seq "$rounds"); do
  # A question goes out every eleven seconds. One must have been answered since the silence before; and the next is not always as far off.
  answered=$(answers)
  until_true "an answer of delft" answers_more_than "$answered"
  sleep $((round * 4 % 11))
  since=$(now)
  "$cluster_scripts/daemon.sh" pause delft kube-apiserver
  until_true "delft to be missed" condition_is fusioncluster/delft Connected False
  missed+=("$(seconds_between "$since" "$(now)")")
  condition_is fusionjob/long Ready True || fail "the job is not ready: $(condition_of fusionjob/long Ready message)"
  since=$(now)
  "$cluster_scripts/daemon.sh" resume delft kube-apiserver
  until_true "delft to be back" condition_is fusioncluster/delft Connected True
  found+=("$(seconds_between "$since" "$(now)")")
  echo "  round $round: missed after ${missed[-1]} s, back after ${found[-1]} s"
  at_most "${missed[-1]}" $limit "it until the silence was noticed"
done
took "missed after ${missed[*]} s, known to be back after ${found[*]} s"

status_is long restarts 0 || fail "the job was restarted"
# The API server has to tell of its Pods first, which its own controllers may have missed, too.
same_pods() { [ "$(pods_of "${machines[@]}")" = "$pods" ]; }
until_true "the Pods that there were" same_pods
step=$(step_of long)
until_true "a status after step $step" has_passed long "$step"
end_soon long 20
expect_trained long
delete_job long
took "the job has come to its end, and is deleted; nothing is left in any cluster"
take_down "a silent member"
