#!/bin/bash
# three_clusters.sh: a hub and two members joined by links of different speeds; a Pod in member a measures, through a NodePort of member b,
# the rate and the round trip that the link was given; a Pod in b reaches the Service by its name, unshaped; a cut link is cut, and mended
# it is back; all of it goes, by two calls at once and with one machine frozen, and leaves nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../cluster/names_lib.sh
. "$here/../cluster/names_lib.sh"
# shellcheck source=checks_lib.sh
. "$here/checks_lib.sh"
rate_mbit=${RATE_MBIT:-40} delay_ms=${DELAY_MS:-25}
image=localhost/fusionllm/probe:1
clusters=(hub a b)

before=$(shared_places)
scratch=$(mktemp -d)
trap '"$here/../cluster/down.sh" "${clusters[@]}"; rm -rf "$scratch"' EXIT
start=$SECONDS
"$here/../cluster/up.sh" "${clusters[@]}" >"$scratch/variables"
echo "three clusters up after $((SECONDS - start)) s; daemons hold hub $(memory_of hub), a $(memory_of a), b $(memory_of b)"
# shellcheck disable=SC1091
. "$scratch/variables"
IFS=, read -ra members <<<"$MEMBER_KUBECONFIGS"
[ ${#members[@]} -eq 2 ] || fail "up.sh printed MEMBER_KUBECONFIGS=$MEMBER_KUBECONFIGS"
for file in "$HUB_KUBECONFIG" "${members[@]}"; do kubectl --kubeconfig="$file" get nodes --no-headers >/dev/null || fail "$file does not reach its cluster"; done

"$here/../cluster/link.sh" shape hub a 100mbit 5ms
"$here/../cluster/link.sh" shape hub b 100mbit 5ms
"$here/../cluster/link.sh" shape a b "${rate_mbit}mbit" "${delay_ms}ms"

"$here/../cluster/one-program-image.sh" "$build_folder/e2e/probe" $image "$scratch/probe.tar"
for member in a b; do
  "$here/../cluster/import-image.sh" $member "$scratch/probe.tar"
  restricted_namespace $member smoke
done
restricted_pod server $image serve 7000 | kubectl_of b --namespace smoke apply -f - >/dev/null
kubectl_of b --namespace smoke apply -f - >/dev/null <<'SERVICE'
apiVersion: v1
kind: Service
metadata: {name: server}
spec: {type: NodePort, selector: {app: server}, ports: [{port: 7000, nodePort: 30700}]}
SERVICE
kubectl_of b --namespace smoke wait --for=condition=Ready pod/server --timeout=300s >/dev/null || fail "the server's Pod is not ready"

# measure CLUSTER NAME ADDRESS PORT BYTES: what a Pod there prints; it tries until it gets through, and not for ever.
measure() {
  local kubectl=(kubectl_of "$1" --namespace smoke)
  for _ in $(seq 20); do
    restricted_pod "$2" $image measure "$3" "$4" "$5" | "${kubectl[@]}" apply -f - >/dev/null
    if "${kubectl[@]}" wait --for=jsonpath='{.status.phase}'=Succeeded "pod/$2" --timeout=30s >/dev/null 2>&1; then
      "${kubectl[@]}" logs "$2"
      "${kubectl[@]}" delete pod "$2" >/dev/null
      return
    fi
    "${kubectl[@]}" delete pod "$2" >/dev/null
  done
  return 1
}
within() { awk -v value="$1" -v low="$2" -v high="$3" 'BEGIN { exit !(value >= low && value <= high) }'; }

line=$(measure a client "$(node_address b)" 30700 20000000) || fail "the Pod in a does not reach b's NodePort"
echo "from a Pod in a to a NodePort of b, over $rate_mbit Mbit/s and $delay_ms ms each way: $line"
eval "$line"
# tbf counts headers too, and a transfer starts slowly: somewhat below the rate, never above. The processors of a busy machine add to the
# round trip, never take from it.
# shellcheck disable=SC2154
within "$mbit_per_s" "$(awk -v rate="$rate_mbit" 'BEGIN { print 0.75 * rate }')" "$rate_mbit" || fail "the rate is far from $rate_mbit Mbit/s"
# shellcheck disable=SC2154
within "$rtt_ms" $((2 * delay_ms)) $((2 * delay_ms + 25)) || fail "the round trip is far from $((2 * delay_ms)) ms"

near=$(measure b near server 7000 20000000) || fail "b's Pods do not reach b's Service by its name"
echo "from a Pod in b to the same Service, by name: $near"
eval "$near"
within "$rtt_ms" 0 25 || fail "the shape of a link is felt inside a cluster"

"$here/../cluster/link.sh" route-pods a b
flat=$(measure a flat "$(kubectl_of b --namespace smoke get pod server -o 'jsonpath={.status.podIP}')" 7000 1000) || fail "a's Pods do not reach b's Pod"
echo "from a Pod in a to the Pod's own address: $flat"

"$here/../cluster/link.sh" cut a b
if in_time=$(timeout 5 nsenter --net="/run/netns/$(prefixed a)" "$build_folder/e2e/probe" measure "$(node_address b)" 30700 1 2>&1); then
  fail "over a cut link came: $in_time"
fi
"$here/../cluster/link.sh" mend a b
line=$(nsenter --net="/run/netns/$(prefixed a)" timeout 60 "$build_folder/e2e/probe" measure "$(node_address b)" 30700 1000) || fail "the mended link is still cut"
echo "cut, and mended: $line"

# A machine that hangs holds up nobody, nor does a second call: two scripts may end at once.
"$here/../cluster/machine.sh" freeze b
start=$SECONDS
timeout 150 "$here/../cluster/down.sh" "${clusters[@]}" &
timeout 150 "$here/../cluster/down.sh" "${clusters[@]}" || fail "with b frozen, one of two calls of down.sh ended with $?"
wait $! || fail "with b frozen, one of two calls of down.sh ended with $?"
rm -rf "$scratch"
trap - EXIT
expect_nothing_left "$before" "${clusters[@]}"
echo "down after $((SECONDS - start)) s, nothing left"
echo "three clusters: passed"
