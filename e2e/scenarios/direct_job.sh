#!/bin/bash
# direct_job.sh: a job over two members in mode Direct, whose Pods' addresses are routed between the members as in one flat network: executors
# dial each other's Pods, tensors go from member to member, no Service is made for them. It trains to its end.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
bring_up ihub nantes split
members_behind 50mbit 20ms
"$cluster_scripts/link.sh" shape nantes split 50mbit 20ms
"$cluster_scripts/link.sh" route-pods nantes split
took "a hub and two members, behind links of 50 Mbit/s and 20 ms; the members route each other's Pods"

# sent FROM TO: bytes that have left FROM for TO, of everything that is there.
sent() { ip netns exec "$(prefixed "$1")" cat "/sys/class/net/to-$2/statistics/tx_bytes"; }
direct=$(sent nantes split)
by_hub=$(sent nantes "$hub")
network_mode=Direct
job flat 60 "$(one_in_each)"
wait_for flat condition=Ready
for member in "${members[@]}"; do
  [ -z "$(kubectl_in "$member" get services --selector fusionllm.io/job --output name)" ] || fail "$member has a Service for an executor that is dialled directly"
  status_is flat "clusterStatuses[?(@.name==\"$member\")].endpoint" "addresses of their Pods" ||
    fail "the status says that $member is reached at $(status_of flat "clusterStatuses[?(@.name==\"$member\")].endpoint")"
done
wait_for flat condition=Complete
expect_trained flat
direct=$(($(sent nantes split) - direct))
by_hub=$(($(sent nantes "$hub") - by_hub))
took "$(k get fusionjob flat --output wide --no-headers), loss $(status_of flat trainerStatus.loss)"
# Link probes alone are some megabytes each way. By the relay nothing would go from member to member.
[ "$direct" -gt 1000000 ] || fail "nantes has sent split $direct bytes"
[ "$by_hub" -lt "$direct" ] || fail "nantes has sent the hub $by_hub bytes, and split $direct"
took "nantes has sent split $direct bytes, and the hub $by_hub"
delete_job flat
took "deleted, nothing is left in any cluster"
take_down "two members, directly"
