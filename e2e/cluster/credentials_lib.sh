# The certificates and kubeconfigs of one cluster. Each part has an identity of its own, so that the audit log tells who did what and
# Kubernetes' own RBAC rules are in force.

# certificate FILE SUBJECT NAMES: FILE.key and FILE.crt, signed by the cluster's authority.
certificate() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$1.crt" \
    -extfile <(echo "subjectAltName=$3"; echo "extendedKeyUsage=serverAuth,clientAuth") 2>/dev/null
  rm "$1.csr"
}

# kubeconfig FILE IDENTITY SERVER: credentials inside, so that the file can be carried elsewhere.
kubeconfig() {
  cat >"$1" <<CONFIG
apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: "$3", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: user, user: {client-certificate-data: $(base64 -w0 "$2.crt"), client-key-data: $(base64 -w0 "$2.key")}}]
contexts: [{name: context, context: {cluster: cluster, user: user}}]
current-context: context
CONFIG
}

make_credentials() {
  local name=$1 folder=$state_root/$1 address server part
  address=$(node_address "$name")
  server=https://$address:6443
  (
    umask 077
    cd "$folder/credentials"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.crt -days 30 -subj "/CN=$name" 2>/dev/null
    openssl ecparam -name prime256v1 -genkey -noout -out service-accounts.key
    openssl ec -in service-accounts.key -pubout -out service-accounts.pub 2>/dev/null
    certificate apiserver /CN=kube-apiserver \
      "IP:$address,IP:10.96.$(index_of "$name").1,IP:127.0.0.1,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    certificate admin "/O=system:masters/CN=$name-admin" DNS:admin
    certificate kubelet "/O=system:nodes/CN=system:node:$name-0" "DNS:$name-0,IP:$address"
    for part in kube-controller-manager kube-scheduler kube-proxy coredns; do
      certificate $part "/CN=system:$part" DNS:$part
    done
    for part in kubelet kube-controller-manager kube-scheduler kube-proxy coredns; do
      kubeconfig "$part.kubeconfig" $part "$server"
    done
    kubeconfig ../admin.kubeconfig admin "$server"
  )
}
