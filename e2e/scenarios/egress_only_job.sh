#!/bin/bash
# egress_only_job.sh: a job over two members, of which one lets nothing in but requests to its API server: the FusionCluster says egressOnly,
# a firewall on its machine sees to it, and a dial that would succeed without the firewall proves that it does. The job's mode is NodePort:
# the executors of the open member are reached at node ports, also by that of the closed one; what they send to it goes by the broker's relay,
# and the status says so. It trains to its end.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
only_on_own "it puts a firewall on a member's machine"
bring_up xhub malmo vigo
members_behind 50mbit 20ms
shape_links 50mbit 20ms malmo vigo
register vigo "$(for_hub vigo)" "network: {egressOnly: true}"
# What comes in by the links to other clusters and belongs to no connection that began here goes no further: not to Pods, not by node ports,
# which are Pods' addresses by then, and of the machine itself to the API server alone.
firewall() {
  local peer
  for peer in "$hub" malmo; do
    inside vigo iptables "$1" FORWARD -i "to-$peer" -m conntrack --ctstate NEW -j DROP
    inside vigo iptables "$1" INPUT -i "to-$peer" -p tcp ! --dport 6443 -m conntrack --ctstate NEW -j DROP
  done
}
firewall -I
took "a hub and two members, behind links of 50 Mbit/s and 20 ms; vigo lets nobody in but to its API server"

network_mode=NodePort
stages=3
job closed 1000000 "{name: malmo, min: 2, max: 2}, {name: vigo, min: 1, max: 1}" "{replicas: 3, threads: 1}" "$with_checkpoints"
wait_for closed condition=Ready
until_true "its first steps" has_passed closed 5
took "the job trains"

# ---- nobody gets in ----
# A node port to the page that each executor serves for Prometheus.
kubectl_in vigo apply --filename - >/dev/null <<SERVICE
apiVersion: v1
kind: Service
metadata: {name: page}
spec: {type: NodePort, selector: {fusionllm.io/role: executor}, ports: [{port: 80, targetPort: metrics}]}
SERVICE
page=$(node_address vigo)/$(kubectl_in vigo get service page --output 'jsonpath={.spec.ports[0].nodePort}')
dials() { ip netns exec "$(prefixed "$1")" timeout 3 bash -c ": </dev/tcp/$page" 2>/dev/null; }
until_true "the page inside vigo" dials vigo
for cluster in "$hub" malmo; do
  if dials "$cluster"; then fail "$cluster reaches a Pod in vigo"; fi
done
firewall -D
for cluster in "$hub" malmo; do dials "$cluster" || fail "$cluster would not reach a Pod in vigo without the firewall: it proves nothing"; done
firewall -I
for cluster in "$hub" malmo; do
  if dials "$cluster"; then fail "$cluster reaches a Pod in vigo"; fi
done
kubectl_in vigo delete service page >/dev/null
took "nobody reaches a Pod in vigo, and without the firewall all would"

# ---- by the relay ----
in_cluster() { status_of closed "clusterStatuses[?(@.name==\"$1\")].endpoint"; }
broker=$(status_of closed endpoint)
[ "$broker" = "$(node_address "$hub"):$(k get service closed-broker --output 'jsonpath={.spec.ports[0].nodePort}')" ] || fail "the status says that the broker is at '$broker'"
[ "$(in_cluster vigo)" = "relay $broker" ] || fail "the status says that vigo is reached at '$(in_cluster vigo)', not by the relay at $broker"
expected=
for index in 0 1; do
  expected+="${expected:+, }$(node_address malmo):$(kubectl_in malmo get service closed-malmo-$index --output 'jsonpath={.spec.ports[0].nodePort}')"
done
[ "$(in_cluster malmo)" = "$expected" ] || fail "the status says that malmo is reached at '$(in_cluster malmo)', not $expected"
empty kubectl_in vigo get services --selector fusionllm.io/job --output name || fail "there are Services in vigo, through which nobody gets in"
into=$(sent "$hub" vigo) past=$(sent malmo vigo) out=$(sent vigo malmo)
step=$(step_of closed)
until_true "steps after step $step" has_passed closed $((step + 20))
into=$(($(sent "$hub" vigo) - into)) past=$(($(sent malmo vigo) - past)) out=$(($(sent vigo malmo) - out))
# By malmo's link come acknowledgements of what vigo sends there itself, by connections of its own.
[ "$into" -gt $((3 * past)) ] || fail "the hub has sent vigo $into bytes, and malmo $past"
[ "$out" -gt $((3 * past)) ] || fail "vigo has sent malmo $out bytes, and malmo has sent it $past"
took "vigo is reached by $(in_cluster vigo), malmo at $(in_cluster malmo); in these steps the hub has sent vigo $into bytes and malmo $past; vigo has sent malmo $out"

end_soon closed 20
expect_trained closed
took "$(k get fusionjob closed --no-headers), loss $(status_of closed trainerStatus.loss)"
delete_job closed
took "deleted, nothing is left in any cluster"
take_down "a member with egress only"
