# Describes the daemons of one node: containerd with runc, the kubelet, kube-proxy, the network of Pods.

describe_containerd() {
  local name=$1 folder=$state_root/$1
  # restrict_oom_score_adj: inside a container or a restricted service nobody may lower the score, and containers would not start.
  # netns_mounts_under_state_dir: with the rest of what is this cluster's, not in the host's /run/netns.
  cat >"$folder/containerd.toml" <<CONFIG
version = 2
root = "$folder/containerd"
state = "$folder/run/containerd-state"
[grpc]
  address = "$folder/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause_image"
  disable_hugetlb_controller = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$folder/registries"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$folder/cni"
CONFIG
  # ptp, not bridge: a Pod that reaches another one of the same node by a Service gets its answers through the node, which must undo the
  # translation; over a bridge they would pass it by unless the kernel's bridge filter is there.
  cat >"$folder/cni/10-pods.conflist" <<CONFIG
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "dataDir": "$folder/ipam",
   "ranges": [[{"subnet": "$(pod_network "$name")"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
CONFIG
  describe "$name" containerd containerd --config "$folder/containerd.toml" --log-level warn
}

# describe_kubelet NAME NAME_SERVER: the address of the cluster's.
describe_kubelet() {
  local name=$1 name_server=$2 folder=$state_root/$1 address
  address=$(node_address "$name")
  # Of the host's own resolver nothing is of use inside; Pods ask CoreDNS.
  echo "nameserver $name_server" >"$folder/resolv.conf"
  # imageGCHighThresholdPercent 100: images were imported, and nothing could pull them again. makeIPTablesUtilChains: kube-proxy does it.
  cat >"$folder/kubelet.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $folder/credentials/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $folder/credentials/kubelet.crt
tlsPrivateKeyFile: $folder/credentials/kubelet.key
containerRuntimeEndpoint: unix://$folder/run/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$(prefixed "$name")
enforceNodeAllocatable: [pods]
failSwapOn: false
failCgroupV1: false
clusterDNS: [$name_server]
clusterDomain: cluster.local
resolvConf: $folder/resolv.conf
podLogsDir: $folder/logs/pods
volumePluginDir: $folder/volume-plugins
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
CONFIG
  describe "$name" kubelet "$state_root/bin/kubelet" --config="$folder/kubelet.yaml" --kubeconfig="$folder/credentials/kubelet.kubeconfig" \
    --root-dir="$folder/kubelet" --hostname-override="$name-0" --node-ip="$address" --cert-dir="$folder/credentials"
}

describe_kube_proxy() {
  local name=$1 folder=$state_root/$1
  # conntrack: the host's limits are not this cluster's to change.
  cat >"$folder/kube-proxy.yaml" <<CONFIG
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $folder/credentials/kube-proxy.kubeconfig}
mode: iptables
hostnameOverride: $name-0
clusterCIDR: $(pod_network "$name")
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
CONFIG
  describe "$name" kube-proxy "$state_root/bin/kube-proxy" --config="$folder/kube-proxy.yaml"
}

# The cluster's cgroups: its daemons in one, for counting and for finding them all; the kubelet makes those of the Pods beside it.
make_cgroups() {
  local root own group controller
  for root in $(cgroup_roots); do
    own=$root/$(prefixed "$1")
    mkdir -p "$own/daemons"
    if [ -e "$root/cpuset.cpus" ]; then
      # v1: a group without processors and memory nodes takes no process.
      for group in "$own" "$own/daemons"; do
        cat "$root/cpuset.cpus" >"$group/cpuset.cpus"
        cat "$root/cpuset.mems" >"$group/cpuset.mems"
      done
    fi
    if [ -e "$root/cgroup.subtree_control" ]; then
      for controller in $(cat "$root/cgroup.controllers"); do
        echo "+$controller" >"$root/cgroup.subtree_control" 2>/dev/null || true
        echo "+$controller" >"$own/cgroup.subtree_control" 2>/dev/null || true
      done
    fi
  done
}
