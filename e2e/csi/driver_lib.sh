# Gives a cluster a CSI driver, for the scripts that source this after cluster/names_lib.sh: inline volumes are folders that are there, claims of
# the storage class `folders` get one each, which goes with its claim. What is started ends with the cluster. Sets no option of the shell.
csi_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# csi_volumes CLUSTER: where its folders are: given/NAME for inline volumes, claims/NAME.
csi_volumes() { echo "$state_root/$1/csi"; }

# start_csi CLUSTER: after it, inline volumes and claims are served. CSI_CLASS_NOTES: annotations of the class, as YAML.
start_csi() {
  local name=$1 folder kubelet programs
  folder=$(csi_volumes "$name") kubelet=$state_root/$1/kubelet
  mapfile -t programs < <("$csi_folder/build.sh")
  mkdir -p "$folder"/{given,claims}
  (enter "$name" "${programs[0]}" "$folder" "$kubelet" "$name-0" >"$state_root/$name/logs/csi-folders.log" 2>&1) &
  kubectl_of "$name" apply --filename - >/dev/null <<DRIVER
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: folders.csi.fusionllm.io}
spec: {attachRequired: false, podInfoOnMount: false, fsGroupPolicy: None, volumeLifecycleModes: [Persistent, Ephemeral]}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: folders, annotations: {${CSI_CLASS_NOTES:-}}}
provisioner: folders.csi.fusionllm.io
DRIVER
  until [ -S "$kubelet/plugins/folders/csi.sock" ]; do sleep 0.1; done
  (enter "$name" "${programs[1]}" --csi-address="$kubelet/plugins/folders/csi.sock" --kubeconfig="$(kubeconfig_of "$name")" \
    >"$state_root/$name/logs/csi-provisioner.log" 2>&1) &
}
# has_csi CLUSTER: its kubelet has taken the driver.
has_csi() { [[ $(kubectl_of "$1" get csinode "$1-0" --output 'jsonpath={.spec.drivers[*].name}') == *folders.csi.fusionllm.io* ]]; }
