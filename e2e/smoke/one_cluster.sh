#!/bin/bash
# one_cluster.sh: one cluster comes up; a restricted Pod of the executor's image runs `fusion-executor --version` and its log is read; a
# Pod that is not restricted is refused; the API server's audit log names who wrote; the cluster goes and leaves nothing, although parts
# of it were killed. Needs build/images/executor.tar (make images).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../cluster/names_lib.sh
. "$here/../cluster/names_lib.sh"
# shellcheck source=checks_lib.sh
. "$here/checks_lib.sh"
cluster=${1:-smoke}
archive=$build_folder/images/executor.tar
[ -r "$archive" ] || die "$archive is not there: make images"
image=$(tar --extract --to-stdout --file "$archive" manifest.json | sed 's/.*"RepoTags":\["\([^"]*\)".*/\1/')
version=$(sed -n 's/^project(fusionllm VERSION \([0-9.]*\).*/\1/p' "$here/../../CMakeLists.txt")

before=$(shared_places)
trap '"$here/../cluster/down.sh" "$cluster"' EXIT

# An up.sh that is killed in the middle of its work has cleaned nothing.
"$here/../cluster/up.sh" "$cluster" >/dev/null 2>&1 &
half_done=$!
until [ -e "$state_root/$cluster/pids/kube-apiserver" ]; do
  kill -0 $half_done 2>/dev/null || fail "up.sh ended before it had started an API server"
  sleep 0.05
done
kill -KILL $half_done
wait $half_done 2>/dev/null || true
"$here/../cluster/down.sh" "$cluster"
expect_nothing_left "$before" "$cluster"

start=$SECONDS
"$here/../cluster/up.sh" "$cluster" >/dev/null
echo "up after $((SECONDS - start)) s; its daemons hold $(memory_of "$cluster")"

"$here/../cluster/import-image.sh" "$cluster" "$archive"
restricted_namespace "$cluster" smoke
kubectl=(kubectl_of "$cluster" --namespace smoke)
start=$SECONDS
restricted_pod executor "$image" --version | "${kubectl[@]}" apply -f - >/dev/null
"${kubectl[@]}" wait --for=jsonpath='{.status.phase}'=Succeeded pod/executor --timeout=300s >/dev/null || {
  "${kubectl[@]}" describe pod executor >&2
  fail "the executor's Pod did not succeed"
}
log=$("${kubectl[@]}" logs executor)
[ "$log" = "fusion-executor $version" ] || fail "the executor's log is '$log'"
echo "a restricted Pod of $image ran after $((SECONDS - start)) s: $log"

if refusal=$(restricted_pod careless "$image" --version | sed 's/runAsNonRoot: true/runAsNonRoot: false/' | "${kubectl[@]}" apply -f - 2>&1); then
  fail "a Pod that may run as root was accepted"
fi
[[ $refusal == *runAsNonRoot* ]] || fail "the refusal does not say why: $refusal"

"${kubectl[@]}" delete pod executor --timeout=300s >/dev/null
audit=$state_root/$cluster/logs/audit.log
grep -q "\"verb\":\"create\",\"user\":{\"username\":\"system:kube-scheduler\"" "$audit" || fail "the audit log does not have the scheduler's binding"

# What was killed can be started again.
"$here/../cluster/daemon.sh" kill "$cluster" kube-apiserver
if "${kubectl[@]}" get pods >/dev/null 2>&1; then fail "a killed API server answers"; fi
"$here/../cluster/daemon.sh" start "$cluster" kube-apiserver
for _ in $(seq 600); do
  if "${kubectl[@]}" get --raw /readyz >/dev/null 2>&1; then break; fi
  sleep 0.5
done
"${kubectl[@]}" get --raw /readyz >/dev/null || fail "the API server does not come back"

# Taken down in disorder: a dead kubelet, a hung API server and a container whose shim is gone must not keep it.
restricted_pod left-over "$image" --help | "${kubectl[@]}" apply -f - >/dev/null
"$here/../cluster/daemon.sh" kill "$cluster" kubelet
"$here/../cluster/daemon.sh" kill "$cluster" containerd
"$here/../cluster/daemon.sh" pause "$cluster" kube-apiserver
start=$SECONDS
"$here/../cluster/down.sh" "$cluster"
trap - EXIT
expect_nothing_left "$before" "$cluster"
echo "down after $((SECONDS - start)) s, nothing left"
echo "one cluster: passed"
