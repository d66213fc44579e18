# What the smoke scripts share. Sourced by scripts that have sourced ../cluster/names_lib.sh.

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# processes_with FILE PATTERN: "process /proc/PID/FILE" for each of which that file has a match. Fails when that cannot be told.
processes_with() {
  local answer status=0
  answer=$(LC_ALL=C grep -lzE "$2" /proc/[0-9]*/"$1" 2>&1) || status=$?
  [ "$status" -le 2 ] || { echo "$answer" >&2; return 1; }
  # Some have ended meanwhile, the kernel's and zombies have none, and what root may not look at has more rights than what root started.
  awk '/^\/proc\// { print "process " $0; next }
    !/^$|: (No such file or directory|No such process|Permission denied)$/ { print >"/dev/stderr"; odd = 1 }
    END { exit odd }' <<<"$answer"
}

# traces_of NAME...: what there is of these clusters on this machine; nothing, once they are down. Fails when that cannot be told.
traces_of() {
  local root name spaces links routes roots
  spaces=$(ip netns list) || return
  links=$(ip -brief link show) || return
  routes=$(ip route show) || return
  roots=$(cgroup_roots) || return
  for name in "$@"; do
    awk -v space="fe2e-$name" '$1 == space { print "namespace " $1 }' <<<"$spaces" || return
    awk -v space="fe2e-$name" '{ sub(/@.*/, "", $1) } $1 == space { print "interface " $1 }' <<<"$links" || return
    awk -v device=" dev fe2e-$name " 'index($0 " ", device) { print "route " $0 }' <<<"$routes" || return
    awk -v folder="$state_root/$name/" -v space="/fe2e-$name/" 'index($5 "/", folder) || index($5 "/", space) { print "mount " $5 }' \
      /proc/self/mountinfo || return
    for root in $roots; do
      if [ -e "$root/fe2e-$name" ]; then echo "cgroup $root/fe2e-$name"; fi
    done
    # Daemons carry a mark, the shims of containers name their containerd's socket.
    processes_with environ "^FUSIONLLM_E2E_DAEMON=$name/" || return
    processes_with cmdline "${state_root%?}[${state_root: -1}]/$name/" || return
    if [ -e "$state_root/$name" ]; then echo "file $state_root/$name"; fi
  done
}

# What any cluster could have left in places that are not its own, sorted: the same before and after. Clusters that are up do not show, as
# they keep to themselves.
shared_places() {
  local links mounts rules=
  links=$(ip -brief link show) || return
  mounts=$(cat /proc/self/mountinfo) || return
  # Where there is no such program nobody has made rules with it.
  if command -v iptables-save >/dev/null; then rules=$(iptables-save) || return; fi
  {
    # Not all of these folders are there on each machine.
    find /run/containerd /var/lib/kubelet/* /var/lib/cni/* /var/log/pods /var/log/containers /usr/libexec/kubernetes /run/kubernetes \
      -printf 'file %p\n' 2>/dev/null || true
    awk '/^(to-|veth|cni)/ { print "interface " $1 }' <<<"$links"
    awk '/kubelet|k8s/ && !/fusionllm-e2e/ { print "mount " $5 }' <<<"$mounts"
    awk '/^-A|^:(KUBE|CNI)/ { sub(/\[.*/, ""); print "rule " $0 }' <<<"$rules"
  } | sort
}

# expect_nothing_left BEFORE NAME...: fails when something is left of these clusters, or shared_places differ from BEFORE.
expect_nothing_left() {
  local before=$1 after left
  shift
  left=$(traces_of "$@") || fail "what is left of $* cannot be told"
  [ -z "$left" ] || fail "of $* there is left: $left"
  after=$(shared_places) || fail "whether $* left traces cannot be told"
  [ "$before" = "$after" ] || fail "the clusters left traces: $(diff <(echo "$before") <(echo "$after"))"
}

# Resident memory of the cluster's daemons and of its Pods, shared pages once, as the kernel counts it for cgroups.
memory_of() {
  local root
  for root in $(cgroup_roots); do
    if [ -e "$root/$(prefixed "$1")/daemons/memory.stat" ]; then
      awk '$1 == "rss" || $1 == "anon" { total += $2 } END { printf "%.0f MB", total / 1e6 }' "$root/$(prefixed "$1")/daemons/memory.stat"
      return
    fi
  done
}

# A restricted Pod: what the Pod security standard `restricted` asks for, and a root file system that nobody writes.
# restricted_pod NAME IMAGE ARGUMENT...
restricted_pod() {
  local name=$1 image=$2 arguments
  shift 2
  arguments=$(printf '"%s",' "$@")
  cat <<POD
apiVersion: v1
kind: Pod
metadata: {name: $name, labels: {app: $name}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: main
    image: $image
    imagePullPolicy: Never
    args: [${arguments%,}]
    resources: {requests: {cpu: 10m, memory: 16Mi}}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
POD
}

# A namespace whose Pods the API server itself holds to the restricted standard.
restricted_namespace() {
  kubectl_of "$1" create namespace "$2" >/dev/null
  kubectl_of "$1" label namespace "$2" pod-security.kubernetes.io/enforce=restricted >/dev/null
  for _ in $(seq 600); do
    if kubectl_of "$1" --namespace "$2" get serviceaccount default >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  fail "namespace $2 of $1 has no service account"
}
