# Enforcement of NetworkPolicies on the nodes of clusters that are up, which their own network does not have. Sourced after
# ../cluster/names_lib.sh; needs `cluster_scripts`.

# enforce_policies PROGRAM CLUSTER...: kube-router's firewall, and nothing else of it, as one more daemon of each node.
enforce_policies() {
  local program=$1 cluster folder
  for cluster in "${@:2}"; do
    folder=$state_root/$cluster
    # enable-cni: it would write its own configuration of the Pods' network over ours.
    printf '%q ' "$program" --run-firewall=true --run-router=false --run-service-proxy=false --enable-cni=false --health-port=0 \
      --hostname-override="$cluster-0" --kubeconfig="$folder/admin.kubeconfig" --iptables-sync-period=30s >"$folder/daemons/kube-router"
    "$cluster_scripts/daemon.sh" start "$cluster" kube-router
  done
}

# in_pod CLUSTER NAMESPACE POD COMMAND...: in the network of a Pod, with the programs of this machine.
in_pod() {
  local containerd=(ctr --address "$state_root/$1/run/containerd.sock" --namespace k8s.io) id process
  id=$("${containerd[@]}" containers list --quiet "labels.\"io.kubernetes.pod.namespace\"==$2,labels.\"io.kubernetes.pod.name\"==$3" | head -1)
  process=$("${containerd[@]}" tasks list | awk -v id="$id" '$1 == id { print $2 }')
  [ -n "$process" ] || die "$1 has no Pod $3 in $2 that runs"
  nsenter --net="/proc/$process/ns/net" "${@:4}"
}
