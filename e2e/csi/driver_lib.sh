# Gives a cluster a CSI driver, for scenarios, which source this after scenario_lib.sh: inline volumes are folders that are there, claims of
# the storage class `folders` get one each, which goes with its claim. What is started ends with the cluster. Sets no option of the shell.
csi_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# csi_volumes CLUSTER: where its folders are: given/NAME for inline volumes, claims/NAME.
csi_volumes() { echo "$state_root/$1/csi"; }

# start_csi CLUSTER [ANNOTATIONS]: after it, inline volumes and claims are served. ANNOTATIONS: of the class, as YAML.
start_csi() {
  local name=$1 folder kubelet built driver provisioner
  folder=$(csi_volumes "$name") kubelet=$state_root/$1/kubelet
  built=$("$csi_folder/build.sh") || return
  { read -r driver && read -r provisioner; } <<<"$built"
  mkdir -p "$folder"/{given,claims}
  # As two more daemons of the node.
  printf '%q ' "$driver" "$folder" "$kubelet" "$name-0" >"$state_root/$name/daemons/csi-folders"
  printf '%q ' "$provisioner" --csi-address="$kubelet/plugins/folders/csi.sock" --kubeconfig="$(kubeconfig_of "$name")" \
    >"$state_root/$name/daemons/csi-provisioner"
  kubectl_of "$name" apply --filename - >/dev/null <<DRIVER
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: folders.csi.fusionllm.io}
spec: {attachRequired: false, podInfoOnMount: false, fsGroupPolicy: None, volumeLifecycleModes: [Persistent, Ephemeral]}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: folders, annotations: {${2:-}}}
provisioner: folders.csi.fusionllm.io
DRIVER
  "$cluster_scripts/daemon.sh" start "$name" csi-folders
  until_true "the kubelet of $name to take the driver" has_csi "$name"
  "$cluster_scripts/daemon.sh" start "$name" csi-provisioner
}
# has_csi CLUSTER: its kubelet has taken the driver.
has_csi() { [[ $(kubectl_of "$1" get csinode "$1-0" --output 'jsonpath={.spec.drivers[*].name}') == *folders.csi.fusionllm.io* ]]; }
