# What up.sh and add-node.sh share: a machine is a network namespace, a mount namespace, cgroups and a folder, all under one name.
# Sourced after the other parts, by scripts that set `here`.
pause_image=registry.k8s.io/pause:3.10
patience_s=${FUSIONLLM_E2E_PATIENCE:-300}  # for one part of a cluster to become ready, on a machine that does other things too

check_can_make() {
  local name tool program
  check_root
  for name in "$@"; do
    check_name "$name"
    [ ! -e "$state_root/$name" ] && [ ! -e "/run/netns/$(prefixed "$name")" ] || die "there is a cluster $name, or what is left of one: down.sh $name"
  done
  for tool in containerd runc iptables ip tc nsenter unshare openssl setsid; do
    command -v $tool >/dev/null || die "$tool is not installed: tools/install-deps.sh e2e"
  done
  for program in pause delay_packets; do
    [ -x "$build_folder/e2e/$program" ] || die "$build_folder/e2e/$program is not built: cmake --build build --target e2e_programs"
  done
}

# wait_for NAME WHAT COMMAND...: until the command succeeds. A daemon that has ended will not become ready: the end of its log tells.
wait_for() {
  local name=$1 what=$2 daemon deadline=$((SECONDS + patience_s))
  shift 2
  until "$@" >/dev/null 2>&1; do
    for daemon in "$state_root/$name/pids"/*; do
      daemon=$(basename "$daemon")
      if ! "$here/daemon.sh" running "$name" "$daemon" >/dev/null; then
        tail -n 20 "$state_root/$name/logs/$daemon.log" >&2
        die "$name: $daemon has ended while waiting for $what"
      fi
    done
    [ $SECONDS -lt $deadline ] || die "$name: waited $patience_s s in vain for $what; logs are in $state_root/$name/logs"
    sleep 0.2
  done
}

# claim_index NAME: a free one. Under the lock of the state folder.
claim_index() {
  local index
  for index in $(seq 1 254); do
    if ! grep -qx "$index" "$state_root"/*/index 2>/dev/null; then
      echo "$index" >"$state_root/$1/index"
      return
    fi
  done
  die "there are 254 clusters already"
}

# A mount namespace of its own: what Kubernetes and containerd mount, and what they keep in places that cannot be configured, is seen by
# nobody else and is gone with the last process.
make_mount_namespace() {
  local folder=$state_root/$1 place
  mount --bind "$folder/namespaces" "$folder/namespaces"
  mount --make-private "$folder/namespaces"
  touch "$folder/namespaces/mount"
  unshare --mount="$folder/namespaces/mount" --propagation private true
  # To lay something over a folder it must be there.
  for place in /var/lib/cni /var/lib/kubelet; do
    if mkdir $place 2>/dev/null; then echo $place >>"$state_root/made-folders"; fi
    [ -d $place ] || die "$place is not there, and cannot be made"
  done
  # shellcheck disable=SC2016
  nsenter --mount="$folder/namespaces/mount" bash -ec '
    mount --make-rshared /
    mount --bind "$1/run" /run
    mount --bind "$1/var-log" /var/log
    mount --bind "$1/cni-results" /var/lib/cni
    mount --bind "$1/kubelet-fixed" /var/lib/kubelet' _ "$folder"
}

# reserve NAME: its folder and a free index. Under the lock of the state folder.
reserve() {
  local name=$1
  mkdir -p "$state_root/$name"/{credentials,daemons,pids,logs/pods,links,namespaces,etcd,run,var-log,cni,cni-results,kubelet-fixed,kubelet,containerd}
  claim_index "$name"
}

# make_machine NAME: of a reserved name.
make_machine() {
  local name=$1
  make_network "$name"
  make_mount_namespace "$name"
  make_cgroups "$name"
}

# start_node NAME FURTHER_DAEMON...: what was described of it; those first that make a node of a machine.
start_node() {
  local name=$1 daemon
  "$here/daemon.sh" start "$name" containerd
  wait_for "$name" containerd ctr --address "$state_root/$name/run/containerd.sock" version
  "$here/import-image.sh" "$name" "$state_root/pause.tar"
  for daemon in "${@:2}" kubelet kube-proxy; do "$here/daemon.sh" start "$name" "$daemon"; done
  wait_for "$name" "its node" kubectl_of "$name" wait --for=condition=Ready "node/$name-0" --timeout=1s
}

unfinished=
# A machine that did not come up is taken down, all but its logs, which tell why.
abandon() {
  if [ -z "$unfinished" ]; then return; fi
  cp -r "$state_root/$unfinished/logs" "$(mktemp -d "/tmp/fusionllm-e2e-$unfinished.XXXXXX")" 2>/dev/null || true
  echo "$(basename "$0"): $unfinished did not come up; its logs are in /tmp/fusionllm-e2e-$unfinished.*" >&2
  "$here/down.sh" "$unfinished" || true
}
