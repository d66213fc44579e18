#!/bin/bash
# two_members_job.sh [short]: a job over two member clusters behind slow links. A hub and two members come up, their links are shaped; helm
# installs the operator on the hub; members are registered by Secrets with kubeconfigs; a job with an executor in each trains to its end and
# is deleted. That is all of `short`. Else a member's API server hangs while another job trains, and comes back; a job is deleted while a
# member is away; nothing is left anywhere.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
[ "${1:-short}" = short ] || die "usage: two_members_job.sh [short]"
bring_up fhub paris tokyo
members_behind 50mbit 20ms
took "a hub and two members$behind, the operator is connected to both"

# ---- to its end ----
job short 60 "$(one_in_each)"
wait_for short condition=Complete
for member in "${members[@]}"; do
  [ "$(kubectl_in "$member" get pods --output name)" = "pod/short-$member-0-r0" ] || fail "$member did not have its executor"
done
expect_trained short
expect_no_warnings short
took "$(k get fusionjob short --output wide --no-headers), loss $(status_of short trainerStatus.loss)"
delete_job short
took "deleted, nothing is left in any cluster"
if [ "${1:-}" = short ] || ! here "a member's API server that hangs: it takes power over its machine"; then
  take_down "two members, one job"
  exit
fi

# ---- a member's API server hangs ----
job long 1000000 "$(one_in_each)"
wait_for long condition=Ready
until_true "its first steps" has_passed long 0
"$cluster_scripts/daemon.sh" pause tokyo kube-apiserver
took "the second job trains; the API server of tokyo hangs"
before=$(step_of long)
until_true "steps while tokyo is away" has_passed long $((before + 20))
job other 40 "{name: paris, min: 2}"
wait_for other condition=Complete
took "training went on, and a job in paris alone has come to its end"
k delete fusionjob other long --wait=false >/dev/null
until_true "paris to be clean" nothing_left_in paris
[ "$(field_of fusionjob/long metadata.name)" = long ] || fail "the job was let go while objects are left in tokyo"
"$cluster_scripts/daemon.sh" resume tokyo kube-apiserver
wait_for long delete
for cluster in "$hub" "${members[@]}"; do until_true "$cluster to be clean" nothing_left_in "$cluster"; done
took "deleted while tokyo was away, clean once it was back"
take_down "two members, a hanging API server"
