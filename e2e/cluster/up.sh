#!/bin/bash
# up.sh NAME...: brings up whole Kubernetes clusters on this machine, side by side, each with its own etcd, API server, controllers,
# scheduler, name server, containerd, kubelet and kube-proxy in its own network namespace, and joins each with every other. Prints the
# variables that tools and tests take. About 330 MB of memory for the daemons of each cluster. down.sh takes them down.
# The programs come from controlplane/build.sh, or from the folder FUSIONLLM_E2E_BIN, where a release of Kubernetes lies unpacked, say.
# Needs root, the packages of the group e2e (tools/packages.txt) and build/e2e (cmake --build build --target e2e_programs).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for part in names network credentials control_plane node machine; do
  # shellcheck disable=SC1090
  . "$here/${part}_lib.sh"
done
[ $# -ge 1 ] || die "usage: up.sh NAME..."
check_can_make "$@"

make_cluster() {
  local name=$1 start=$SECONDS daemon
  make_machine "$name"
  make_credentials "$name"
  describe_control_plane "$name"
  describe_containerd "$name"
  describe_kubelet "$name" "$(node_address "$name")"
  describe_kube_proxy "$name"
  for daemon in etcd kube-apiserver; do "$here/daemon.sh" start "$name" $daemon; done
  wait_for "$name" "its API server" kubectl_of "$name" get --raw /readyz
  name_server_rights | kubectl_of "$name" apply -f - >/dev/null
  start_node "$name" kube-controller-manager kube-scheduler coredns
  wait_for "$name" "the service account of Pods" kubectl_of "$name" get serviceaccount default
  echo "$name is up after $((SECONDS - start)) s: $(node_address "$name")" >&2
}

programs=${FUSIONLLM_E2E_BIN:-$("$here/../controlplane/build.sh")}
for program in etcd kube-apiserver kube-controller-manager kube-scheduler coredns kubelet kube-proxy kubectl; do
  [ -x "$programs/$program" ] || die "$programs has no $program"
done
lock_state
ln -sfn "$programs" "$state_root/bin"
[ -e "$state_root/pause.tar" ] || "$here/one-program-image.sh" "$build_folder/e2e/pause" $pause_image "$state_root/pause.tar"
# In the order in which they were named, so that the same call gives the same addresses.
for name in "$@"; do reserve "$name"; done
exec 8<&-
# One that does not come up is taken down; the others stay.
make_and_join() {
  unfinished=$1
  trap abandon EXIT
  make_cluster "$1"
  (flock 8 && join_all "$1") 8<"$state_root"
  unfinished=
}
makers=()
trap 'kill "${makers[@]}" 2>/dev/null || true; wait' EXIT
for name in "$@"; do
  make_and_join "$name" &
  makers+=($!)
done
failed=
for maker in "${makers[@]}"; do wait "$maker" || failed=true; done
makers=()
[ -z "$failed" ] || exit 1

members=$(for name in "${@:2}"; do printf '%s,' "$state_root/$name/admin.kubeconfig"; done)
echo "export PATH=$programs:\$PATH"
echo "export HUB_KUBECONFIG=$state_root/$1/admin.kubeconfig"
echo "export MEMBER_KUBECONFIGS=${members%,}"
