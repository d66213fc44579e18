#!/bin/bash
# node_ports_job.sh: a job over two members in mode NodePort: an executor in each, which dial each other at node ports of the other's
# cluster. It trains to its end; its tensors have gone from member to member, not by way of the hub; deleted, it leaves no Service anywhere.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
bring_up nhub bern riga
members_behind 50mbit 20ms
"$cluster_scripts/link.sh" shape bern riga 50mbit 20ms
took "a hub and two members, behind links of 50 Mbit/s and 20 ms"

# sent FROM TO: bytes that have left FROM for TO, of everything that is there.
sent() { ip netns exec "$(prefixed "$1")" cat "/sys/class/net/to-$2/statistics/tx_bytes"; }
direct=$(sent bern riga)
by_hub=$(sent bern "$hub")

network_mode=NodePort
job ports 60 "$(one_in_each)"
wait_for ports condition=Complete
expect_trained ports
direct=$(($(sent bern riga) - direct))
by_hub=$(($(sent bern "$hub") - by_hub))
took "$(k get fusionjob ports --output wide --no-headers), loss $(status_of ports trainerStatus.loss)"

for member in "${members[@]}"; do
  node=$(kubectl_of "$member" get nodes --output 'jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}')
  port=$(kubectl_in "$member" get service "ports-$member-0" --output 'jsonpath={.spec.ports[0].nodePort}')
  pod=pod/ports-$member-0-r0
  advertised=$(kubectl_in "$member" get "$pod" --output 'jsonpath={.metadata.annotations.fusionllm\.io/advertised-address}')
  [ "$advertised" = "$node:$port" ] || fail "$pod is reached at '$advertised', its node port at $node:$port"
  command=$(kubectl_in "$member" get "$pod" --output 'jsonpath={.spec.containers[0].command}')
  [[ $command == *"\"--advertise\",\"$advertised\""* ]] || fail "$pod does not advertise $advertised: $command"
  [[ $command != *--relay* ]] || fail "$pod may use the relay: $command"
done
# Link probes alone are some megabytes each way. By the relay nothing would go from member to member.
[ "$direct" -gt 1000000 ] || fail "bern has sent riga $direct bytes"
[ "$by_hub" -lt "$direct" ] || fail "bern has sent the hub $by_hub bytes, and riga $direct"
took "bern has sent riga $direct bytes, and the hub $by_hub"

delete_job ports
took "deleted, nothing is left in any cluster"
take_down "two members, by node ports"
