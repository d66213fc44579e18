#!/bin/bash
# advised_job.sh: with a scheduler beside the operator, a job that names no clusters goes where its steps are fastest: into one of two members
# whose link is slow. One that names both, in an order of preference, goes into both by turns.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
bring_up fhub milan paros
shape_links 50mbit 20ms "$hub" "${members[@]}"
prepare_hub
install_operator --set scheduler.enabled=true
for member in "${members[@]}"; do
  prepare_member "$member"
  register "$member" "$(for_hub "$member")"
done
kubectl_of "$hub" patch fusioncluster milan --type=merge --patch \
  '{"spec": {"network": {"links": [{"to": "paros", "bandwidth": "10Mbit", "latency": "100ms"}]}}}' >/dev/null
for member in "${members[@]}"; do until_true "the connection to $member" condition_is "fusioncluster/$member" Connected True; done
took "a hub with a scheduler beside the operator, and two members that a slow link joins"

clusters_of() { status_of "$1" 'clusterStatuses[*].name'; }
job asked 20 ""
wait_for asked condition=Complete
condition_is fusionjob/asked PlacementHint True || fail "nobody asked the scheduler: $(condition_of fusionjob/asked PlacementHint message)"
echo "  $(condition_of fusionjob/asked PlacementHint reason): $(condition_of fusionjob/asked PlacementHint message)"
[ "$(clusters_of asked | wc -w)" = 1 ] || fail "the job was spread over $(clusters_of asked)"
expect_trained asked
took "$(k get fusionjob asked --no-headers), in $(clusters_of asked)"

job even 20 "{name: milan}, {name: paros}"
wait_for even condition=Complete
[ "$(clusters_of even | wc -w)" = 2 ] || fail "the job that names both is in $(clusters_of even)"
took "$(k get fusionjob even --no-headers), in $(clusters_of even)"
k delete fusionjob asked --timeout="$patience" >/dev/null
delete_job even
took "deleted, nothing is left in any cluster"
take_down "advised job"
