# Describes the daemons of one control plane: etcd, the API server with its audit log, controllers, scheduler, name server.

# describe NAME DAEMON COMMAND...: what daemon.sh starts.
describe() {
  local file=$state_root/$1/daemons/$2
  shift 2
  printf '%q ' "$@" >"$file"
}

describe_control_plane() {
  local name=$1 folder=$state_root/$1 bin=$state_root/bin address credentials
  address=$(node_address "$name")
  credentials=$folder/credentials

  describe "$name" etcd "$bin/etcd" --data-dir="$folder/etcd" --unsafe-no-fsync --log-level=warn \
    --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 --listen-peer-urls=http://127.0.0.1:2380

  # Who did what to which object, without the objects: enough to prove that nobody writes at rest and that no right is unused.
  cat >"$folder/audit-policy.yaml" <<'POLICY'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
POLICY
  describe "$name" kube-apiserver "$bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
    --bind-address=0.0.0.0 --advertise-address="$address" --secure-port=6443 --service-cluster-ip-range="$(service_network "$name")" \
    --tls-cert-file="$credentials/apiserver.crt" --tls-private-key-file="$credentials/apiserver.key" --client-ca-file="$credentials/ca.crt" \
    --service-account-key-file="$credentials/service-accounts.pub" --service-account-signing-key-file="$credentials/service-accounts.key" \
    --service-account-issuer=https://kubernetes.default.svc --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --kubelet-certificate-authority="$credentials/ca.crt" --kubelet-client-certificate="$credentials/admin.crt" \
    --kubelet-client-key="$credentials/admin.key" --kubelet-preferred-address-types=InternalIP --allow-privileged \
    --audit-policy-file="$folder/audit-policy.yaml" --audit-log-path="$folder/logs/audit.log" --audit-log-maxsize=200 --audit-log-maxbackup=0

  describe "$name" kube-controller-manager "$bin/kube-controller-manager" --kubeconfig="$credentials/kube-controller-manager.kubeconfig" \
    --service-account-private-key-file="$credentials/service-accounts.key" --root-ca-file="$credentials/ca.crt" \
    --use-service-account-credentials --allocate-node-cidrs=false --leader-elect=false --flex-volume-plugin-dir="$folder/volume-plugins"

  describe "$name" kube-scheduler "$bin/kube-scheduler" --kubeconfig="$credentials/kube-scheduler.kubeconfig" --leader-elect=false

  # On the node's own address, as there is one node; names outside the cluster do not exist, and are refused at once.
  cat >"$folder/Corefile" <<COREFILE
cluster.local:53 {
  bind $address
  kubernetes cluster.local {
    kubeconfig $credentials/coredns.kubeconfig context
  }
  cache 5
}
.:53 {
  bind $address
  template ANY ANY . {
    rcode NXDOMAIN
  }
}
COREFILE
  describe "$name" coredns "$bin/coredns" -conf "$folder/Corefile"
}

# What a fresh API server lacks for the name server, in a form that kubectl applies.
name_server_rights() {
  cat <<'RIGHTS'
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:coredns}
rules:
- {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: system:coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:coredns}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: system:coredns}]
RIGHTS
}
