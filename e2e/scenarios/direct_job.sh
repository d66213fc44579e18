#!/bin/bash
# direct_job.sh: a job over two members in mode Direct, whose Pods' addresses are routed between the members as in one flat network: executors
# dial each other's Pods, tensors go from member to member, no Service is made for them. It trains to its end.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
bring_up ihub nantes split
members_behind 50mbit 20ms
shape_links 50mbit 20ms nantes split
if given; then
  reach_each_other Pods || not_here "the members do not route each other's Pods"
else
  "$cluster_scripts/link.sh" route-pods nantes split
fi
took "a hub and two members$behind; the members route each other's Pods"

count_sent nantes split "$hub"
network_mode=Direct
job flat 60 "$(one_in_each)"
wait_for flat condition=Ready
for member in "${members[@]}"; do
  empty kubectl_in "$member" get services --selector fusionllm.io/job --output name || fail "$member has a Service for an executor that is dialled directly"
  status_is flat "clusterStatuses[?(@.name==\"$member\")].endpoint" "addresses of their Pods" ||
    fail "the status says that $member is reached at $(status_of flat "clusterStatuses[?(@.name==\"$member\")].endpoint")"
done
wait_for flat condition=Complete
expect_trained flat
took "$(k get fusionjob flat --output wide --no-headers), loss $(status_of flat trainerStatus.loss)"
expect_sent nantes split "$hub"
delete_job flat
took "deleted, nothing is left in any cluster"
take_down "two members, directly"
