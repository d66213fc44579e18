#!/bin/bash
# load_balancers_job.sh: a job over two members in mode LoadBalancer. This script plays the clouds: each cluster has an address beside that of
# its node, which the other clusters' packets find, and each Service of type LoadBalancer is given it a while after it was made. Executors
# wait for it, and dial each other and the broker there; tensors go from member to member, not by way of the hub; the status tells the
# addresses; when it is over, no Service is left anywhere.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
only_on_own "it plays the cloud that gives load balancers their addresses, and routes them"
bring_up bhub bern riga
members_behind 50mbit 20ms
shape_links 50mbit 20ms bern riga
balancer_of() { echo "10.77.$(index_of "$1").100"; }
for cluster in "${machines[@]}"; do
  for other in "${machines[@]}"; do
    if [ "$cluster" != "$other" ]; then
      ip -n "$(prefixed "$cluster")" route add "$(balancer_of "$other")/32" via "$(node_address "$other")" dev "to-$other" onlink \
        src "$(node_address "$cluster")"
    fi
  done
done
took "a hub and two members, behind links of 50 Mbit/s and 20 ms, each with an address for load balancers"

count_sent bern riga "$hub"
network_mode=LoadBalancer
job balanced 60 "$(one_in_each)"
asked_for() { [ -n "$(kubectl_in "$1" get service "$2" --ignore-not-found --output name)" ]; }
until_true "the broker's Service" asked_for "$hub" balanced-broker
until_true "the job to wait for an address" reason_is fusionjob/balanced Ready WaitingForAddress
[[ $(condition_of fusionjob/balanced Ready message) == *balanced-broker* ]] || fail "the job does not say what it waits for: $(condition_of fusionjob/balanced Ready message)"
empty pods_of "${machines[@]}" || fail "there are Pods before there is an address: $(pods_of "${machines[@]}")"
took "the job waits: $(condition_of fusionjob/balanced Ready message)"

# give_address CLUSTER SERVICE: as a cloud's controller does. kube-proxy takes packets for that address from then on.
give_address() {
  until_true "Service $2 in $1" asked_for "$1" "$2"
  [ "$(kubectl_in "$1" get service "$2" --output 'jsonpath={.spec.type}')" = LoadBalancer ] || fail "Service $2 in $1 is none for a load balancer"
  kubectl_in "$1" patch service "$2" --subresource=status --type=merge \
    --patch "{\"status\": {\"loadBalancer\": {\"ingress\": [{\"ip\": \"$(balancer_of "$1")\"}]}}}" >/dev/null
}
give_address "$hub" balanced-broker
for member in "${members[@]}"; do give_address "$member" "balanced-$member-0"; done
wait_for balanced condition=Complete
expect_trained balanced
took "$(k get fusionjob balanced --output wide --no-headers), loss $(status_of balanced trainerStatus.loss)"

status_is balanced endpoint "$(balancer_of "$hub"):7000" || fail "the status says that the broker is at $(status_of balanced endpoint)"
for member in "${members[@]}"; do
  address=$(balancer_of "$member"):7001
  pod=pod/balanced-$member-0-r0
  command=$(kubectl_in "$member" get "$pod" --output 'jsonpath={.spec.containers[0].command}')
  [[ $command == *"\"--advertise\",\"$address\""* ]] || fail "$pod does not advertise $address: $command"
  [[ $command == *"\"--broker\",\"$(balancer_of "$hub"):7000\""* ]] || fail "$pod does not dial the broker's load balancer: $command"
  [[ $command != *--relay* ]] || fail "$pod may use the relay: $command"
  status_is balanced "clusterStatuses[?(@.name==\"$member\")].endpoint" "$address" ||
    fail "the status says that $member is reached at $(status_of balanced "clusterStatuses[?(@.name==\"$member\")].endpoint")"
done
expect_sent bern riga "$hub"
expect_no_services

delete_job balanced
took "deleted, nothing is left in any cluster"
take_down "two members, by load balancers"
