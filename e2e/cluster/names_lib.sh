# Where a cluster keeps things, and how a command gets into it. Sourced; sets no option of the shell.
# FUSIONLLM_E2E_STATE: one folder for each cluster (default /var/lib/fusionllm-e2e). Unix sockets lie in it: keep it short.
e2e_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
state_root=${FUSIONLLM_E2E_STATE:-/var/lib/fusionllm-e2e}
build_folder=${FUSIONLLM_BUILD_DIR:-$e2e_folder/../build}

die() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# Network interfaces have at most 15 letters, and carry the cluster's name.
check_name() {
  [[ $1 =~ ^[a-z]([a-z0-9-]{0,8}[a-z0-9])?$ ]] || die "'$1' is no name of a cluster: 1 to 10 lower-case letters, digits and dashes, a letter first"
}
check_root() { [ "$(id -u)" -eq 0 ] || die "needs root: it makes namespaces, mounts and cgroups"; }
check_exists() {
  check_name "$1"
  [ -f "$state_root/$1/index" ] || die "there is no cluster $1 (up.sh $1 makes it)"
}

# lock_state: the state folder, made if need be, and for this process alone until it ends or closes descriptor 8. The folder that it has waited
# for may be gone: down.sh removes one without clusters.
lock_state() {
  while :; do
    mkdir -p "$state_root"
    exec 8<"$state_root" || continue
    flock 8
    if [ "$state_root" -ef /dev/fd/8 ]; then return; fi
  done
}

# Names outside the state folder, found again without it.
prefixed() { echo "fe2e-$1"; }
index_of() { cat "$state_root/$1/index"; }
node_address() { echo "10.77.$(index_of "$1").1"; }
pod_network() { echo "10.244.$(index_of "$1").0/24"; }
service_network() { echo "10.96.$(index_of "$1").0/24"; }
host_address=10.77.0.1

existing_clusters() {
  local file
  for file in "$state_root"/*/index; do
    if [ -f "$file" ]; then basename "$(dirname "$file")"; fi
  done
}

# Roots of the cgroup hierarchies: one on a machine with cgroup v2, one for each controller with v1 (or both, side by side).
cgroup_roots() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts | sort -u; }

# enter NAME COMMAND...: becomes that command, in the cluster's network and mount namespaces and among its daemons' cgroups: what it starts
# is the cluster's, and down.sh ends it.
enter() {
  local name=$1 root
  shift
  for root in $(cgroup_roots); do
    if [ -e "$root/$(prefixed "$name")/daemons/cgroup.procs" ]; then echo "$BASHPID" >"$root/$(prefixed "$name")/daemons/cgroup.procs"; fi
  done
  exec nsenter --net="/run/netns/$(prefixed "$name")" --mount="$state_root/$name/namespaces/mount" -- "$@"
}
inside() { (enter "$@"); }

kubeconfig_of() { echo "$state_root/$1/admin.kubeconfig"; }
tool() { echo "$state_root/bin/$1"; }  # kubectl, helm
kubectl_of() { "$(tool kubectl)" --kubeconfig="$(kubeconfig_of "$1")" "${@:2}"; }
