#!/bin/bash
# node_ports_job.sh: a job over two members in mode NodePort: an executor in each, which dial each other at node ports of the other's
# cluster. It trains to its end; its tensors have gone from member to member, not by way of the hub; when it is over, no Service is left anywhere.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
bring_up nhub bern riga
members_behind 50mbit 20ms
shape_links 50mbit 20ms bern riga
if given; then reach_each_other NodePorts || not_here "the members do not reach each other's node ports"; fi
took "a hub and two members$behind"

count_sent bern riga "$hub"

network_mode=NodePort
job ports 60 "$(one_in_each)"
wait_for ports condition=Ready
declare -A node_port
for member in "${members[@]}"; do
  node_port[$member]=$(kubectl_in "$member" get service "ports-$member-0" --output 'jsonpath={.spec.ports[0].nodePort}')
done
wait_for ports condition=Complete
expect_trained ports
expect_no_warnings ports
took "$(k get fusionjob ports --output wide --no-headers), loss $(status_of ports trainerStatus.loss)"

for member in "${members[@]}"; do
  node=$(outer_address "$member")
  port=${node_port[$member]}
  pod=pod/ports-$member-0-r0
  advertised=$(kubectl_in "$member" get "$pod" --output 'jsonpath={.metadata.annotations.fusionllm\.io/advertised-address}')
  [ "$advertised" = "$node:$port" ] || fail "$pod is reached at '$advertised', its node port at $node:$port"
  command=$(kubectl_in "$member" get "$pod" --output 'jsonpath={.spec.containers[0].command}')
  [[ $command == *"\"--advertise\",\"$advertised\""* ]] || fail "$pod does not advertise $advertised: $command"
  [[ $command != *--relay* ]] || fail "$pod may use the relay: $command"
done
expect_sent bern riga "$hub"
expect_no_services

delete_job ports
took "deleted, nothing is left in any cluster"
take_down "two members, by node ports"
