#!/bin/bash
# add-node.sh CLUSTER NAME: a second node of a cluster that is up, or a third: a machine with containerd, kubelet and kube-proxy, joined
# with all others as a cluster is. It is the node NAME-0; link.sh, daemon.sh, machine.sh, import-image.sh and down.sh take NAME as they take
# a cluster's. Pods of the two nodes reach each other by their addresses.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for part in names network credentials control_plane node machine; do
  # shellcheck disable=SC1090
  . "$here/${part}_lib.sh"
done
[ $# -eq 2 ] || die "usage: add-node.sh CLUSTER NAME"
cluster=$1 name=$2
check_exists "$cluster"
check_can_make "$name"

# As an administrator would: the cluster's authority signs for the new node, its key stays where it is.
node_credentials() {
  local folder=$state_root/$name address
  address=$(node_address "$name")
  (
    umask 077
    cd "$state_root/$cluster/credentials"
    cp ca.crt kube-proxy.kubeconfig "$folder/credentials/"
    cp ../admin.kubeconfig "$folder/"
    certificate "$folder/credentials/kubelet" "/O=system:nodes/CN=system:node:$name-0" "DNS:$name-0,IP:$address"
    kubeconfig "$folder/credentials/kubelet.kubeconfig" "$folder/credentials/kubelet" "https://$(node_address "$cluster"):6443"
  )
}

start=$SECONDS
trap abandon EXIT
unfinished=$name
lock_state
reserve "$name"
exec 8<&-
make_machine "$name"
(flock 8 && join_all "$name") 8<"$state_root"
node_credentials
describe_containerd "$name"
describe_kubelet "$name" "$(node_address "$cluster")"
describe_kube_proxy "$name"
start_node "$name"
"$here/link.sh" route-pods "$cluster" "$name"
unfinished=
echo "$name-0 is a node of $cluster after $((SECONDS - start)) s: $(node_address "$name")" >&2
