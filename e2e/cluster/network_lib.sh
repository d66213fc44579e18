# The network of a cluster: a namespace with one address (10.77.INDEX.1), a link to this machine for kubectl, and one link to every other
# cluster (link.sh shapes those). The address is on every link, so that what leaves by any of them carries it.

in_network() { ip netns exec "$(prefixed "$1")" "${@:2}"; }

make_network() {
  local name=$1 space address
  space=$(prefixed "$name") address=$(node_address "$name")
  ip netns add "$space"
  ip link add "$space" type veth peer name host netns "$space"
  ip addr add "$host_address/32" dev "$space"
  ip link set "$space" up
  # Kernel defaults that machines differ in: Pods are routed, and an answer may come by another way than Linux would have taken.
  in_network "$name" sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
  # The default route leads to nobody but this machine; without one the kernel would refuse a Service's address before kube-proxy's rules
  # could translate it.
  ip -n "$space" -batch - <<BATCH
link set lo up
addr add $address/32 dev host
link set host up
route add $host_address/32 dev host src $address
route add default dev host src $address
BATCH
  ip route add "$address/32" dev "$space" src "$host_address"
}

# join A B: the pair of interfaces to-B in A and to-A in B, as fast as the machine. Nothing to do where they are joined.
join() {
  local a b from to
  a=$(prefixed "$1") b=$(prefixed "$2")
  if ip -n "$a" link show "to-$2" >/dev/null 2>&1; then return; fi
  ip link add "to-$2" netns "$a" type veth peer name "to-$1" netns "$b"
  for from in "$1" "$2"; do
    if [ "$from" = "$1" ]; then to=$2; else to=$1; fi
    ip -n "$(prefixed "$from")" -batch - <<BATCH
addr add $(node_address "$from")/32 dev to-$to
link set to-$to up
route add $(node_address "$to")/32 dev to-$to src $(node_address "$from")
BATCH
  done
}

# join_all NAME: with every cluster that is there, among them those that another up.sh is making: of the two, the first joins them.
join_all() {
  local other
  for other in $(existing_clusters); do
    if [ "$other" != "$1" ] && [ -e "/run/netns/$(prefixed "$other")" ]; then join "$other" "$1"; fi
  done
}
