# Clusters that are there already, in place of those that a scenario makes. Nothing but their kubeconfigs is used, and copies of those; what a
# scenario makes there goes with it. Sourced by scenario_lib.sh; ../README.md describes the variables:
#   HUB_KUBECONFIG, MEMBER_KUBECONFIGS             the clusters; without the first, scenarios bring up their own
#   IMAGE_REGISTRY, IMAGE_TAG, IMAGE_PULL_POLICY   where they pull the images, as values of the chart
#   IMAGE_NEXT_TAG                                 another tag of the same images, for an upgrade
#   E2E_STORAGE_CLASS, E2E_ACCESS_MODE             of the claims for checkpoints
#   E2E_HUB_ADDRESS, E2E_MEMBER_SERVERS            where members reach the hub's node ports, and the hub's Pods the members' API servers

given() { [ -n "${HUB_KUBECONFIG:-}" ]; }
not_here() {
  echo "$(basename "$0" .sh): not here: $*"
  exit 0
}
# For scenarios, and parts of them, that need a power over the machines which no kubeconfig gives.
only_on_own() { if given; then not_here "$*"; fi; }
# here WHAT: whether this part can be tried; says so where it cannot.
here() {
  if given; then echo "  not here: $*"; fi
  ! given
}

# program_of NAME: the one in PATH, else the one that is built for clusters of one's own.
program_of() { command -v "$1" || echo "$("$scenario_folder/../controlplane/build.sh")/$1"; }

if given; then
  kubeconfig_of() { echo "$scratch/given/$1.kubeconfig"; }
  tool() { echo "$scratch/given/bin/$1"; }
fi

made_namespaces=(team fusionllm)  # by scenarios, in any cluster
found=                            # "CLUSTER NAMESPACE" of those that were there, a line each
given_are_ours=                   # once they are seen to be free

# take_given NAME...: the clusters under the names of the scenario, if there are as many, each is another one, and nothing is in the way.
take_given() {
  local files name index uid uids="" left servers
  IFS=,: read -ra files <<<"$HUB_KUBECONFIG,${MEMBER_KUBECONFIGS:-}"
  [ ${#files[@]} -ge $# ] || not_here "it takes a hub and $(($# - 1)) further clusters, and MEMBER_KUBECONFIGS names $((${#files[@]} - 1))"
  IFS=, read -ra servers <<<",${E2E_MEMBER_SERVERS:-}"
  mkdir -p "$scratch/given/bin"
  for name in kubectl helm; do ln -s "$(program_of $name)" "$scratch/given/bin/$name"; done
  for name in "$@"; do
    index=$((${index:--1} + 1))
    # With what its files hold inside, and without other clusters: the hub's Pods are given it, too.
    (umask 077 && KUBECONFIG=${files[$index]} "$(tool kubectl)" config view --raw --flatten --minify >"$scratch/given/$name.kubeconfig") ||
      die "${files[$index]} is no kubeconfig with a current context"
    uid=$(kubectl_of "$name" get namespace kube-system --output 'jsonpath={.metadata.uid}') || die "${files[$index]} does not reach its cluster"
    [[ $uids != *"$uid"* ]] || die "${files[$index]} is of a cluster that is named already"
    uids+=" $uid"
    (umask 077 && cp "$scratch/given/$name.kubeconfig" "$scratch/given/$name.for-hub")
    if [ -n "${servers[$index]:-}" ]; then
      kubectl_of "$name" --kubeconfig "$scratch/given/$name.for-hub" config set "clusters.$(kubectl_of "$name" config view --output 'jsonpath={.clusters[0].name}').server" \
        "${servers[$index]}" >/dev/null
    fi
    left=$(traces_in "$name") || die "${files[$index]} does not let its cluster be looked at"
    [ -z "$left" ] || die "${files[$index]}: these are in the way, and left alone: $(tr '\n' ',' <<<"$left")"
    for namespace in "${made_namespaces[@]}"; do
      if has_namespace "$name" "$namespace"; then found+="$name $namespace"$'\n'; fi
    done
  done
  given_are_ours=yes
}

# One that is not found is made, and deleted at the end: nobody may guess.
has_namespace() {
  local there
  there=$(kubectl_of "$1" get namespace "$2" --ignore-not-found --output name) || die "$1 does not say whether it has the namespace $2"
  [ -n "$there" ]
}

# traces_in CLUSTER: what a scenario may have left there, as "NAMESPACE KIND/NAME": all that is in its namespaces, but for what Kubernetes puts
# into each; of what is in no namespace, by its name or for whom it is.
traces_in() {
  local kinds namespace
  kinds=$(kubectl_of "$1" api-resources --namespaced --verbs=list,delete --output name | grep -vE '^events(\.|$)' | sort -u | paste -sd,) || return
  for namespace in "${made_namespaces[@]}"; do
    kubectl_of "$1" --namespace "$namespace" get "$kinds" --ignore-not-found --output name |
      { grep -vxE 'configmap/kube-root-ca.crt|serviceaccount/default' || true; } | sed "s,^,$namespace ," || return
  done
  kinds=$(kubectl_of "$1" api-resources --namespaced=false --verbs=list,delete --output name |
    grep -E '^(customresourcedefinitions|clusterroles|clusterrolebindings|validatingadmissionpolic(ies|ybindings)|namespaces)(\.|$)' | paste -sd,) || return
  kubectl_of "$1" get "$kinds" --output name | { grep -E '/fusion-(fusionllm|hub)-|\.fusionllm\.io$|/crd-test-' || true; } | sed 's,^,- ,' || return
  kubectl_of "$1" get persistentvolumes --output \
    'jsonpath={range .items[?(@.spec.claimRef.namespace=="team")]}{.spec.persistentVolumeReclaimPolicy} {.metadata.name}{"\n"}{end}' |
    # What its class retains is for whoever made the class to remove.
    sed -n 's,^Delete ,- persistentvolume/,p'
}

# put_back CLUSTER: as it was found. What is still there of a scenario that has failed goes, too.
put_back() {
  local name=$1 namespace object said
  if [ -n "$(kubectl_of "$name" get crd fusionjobs.fusionllm.io --ignore-not-found --output name)" ]; then
    kubectl_in "$name" annotate fusionjobs --all fusionllm.io/force-delete=true >/dev/null 2>&1 || true
    kubectl_in "$name" delete fusionjobs --all --timeout=60s >/dev/null 2>&1 || true
    for object in $(kubectl_in "$name" get fusionjobs --output name 2>/dev/null); do
      kubectl_in "$name" patch "$object" --type=merge --patch '{"metadata": {"finalizers": null}}' >/dev/null || true
    done
  fi
  said=$(helm_in "$name" uninstall fusion --ignore-not-found --no-hooks --wait --timeout "$patience" 2>&1) || echo "helm uninstall in $name: $said" >&2
  for namespace in "${made_namespaces[@]}"; do
    if ! grep -qx "$name $namespace" <<<"$found"; then
      kubectl_of "$name" delete namespace "$namespace" --ignore-not-found --timeout="$patience" >/dev/null || true
    fi
  done
  traces_in "$name" | while read -r namespace object; do
    if [ "$namespace" = - ]; then
      kubectl_of "$name" delete "$object" --ignore-not-found --wait=false >/dev/null || true
    else
      kubectl_of "$name" --namespace "$namespace" delete "$object" --ignore-not-found --wait=false >/dev/null || true
    fi
  done
}
clean_of_traces() { empty traces_in "$1" 2>/dev/null; }  # while a definition goes, so does its kind

# leave_given: as they were found, and it is looked at that they are.
leave_given() {
  local name namespace
  given_are_ours=
  for name in "${machines[@]}"; do put_back "$name" & done
  wait
  for name in "${machines[@]}"; do
    until_true "$name to be as it was" clean_of_traces "$name"
    for namespace in "${made_namespaces[@]}"; do
      if has_namespace "$name" "$namespace" && ! grep -qx "$name $namespace" <<<"$found"; then fail "the namespace $namespace stays in $name"; fi
    done
  done
}

# ---- what is otherwise in clusters that were given ----
# As options of helm, one a line.
given_chart_values() {
  printf -- '--set\nimage.registry=%s,image.pullPolicy=%s\n' "$IMAGE_REGISTRY" "${IMAGE_PULL_POLICY:-IfNotPresent}"
  if [ -n "${IMAGE_TAG:-}" ]; then printf -- '--set-string\nimage.tag=%s\n' "$IMAGE_TAG"; fi
  if [ -n "${E2E_HUB_ADDRESS:-}" ]; then printf -- '--set\noperator.hubAddress=%s\n' "$E2E_HUB_ADDRESS"; fi
}

make_given_claim() {
  kubectl_in "$1" apply --filename - >/dev/null <<CLAIM
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: checkpoints}
spec:
  accessModes: [${E2E_ACCESS_MODE:-ReadWriteOnce}]
  ${E2E_STORAGE_CLASS:+storageClassName: $E2E_STORAGE_CLASS}
  resources: {requests: {storage: 1Gi}}
CLAIM
}

# reaches FROM ADDRESS: whether a Pod in FROM gets a page from a server at ADDRESS, HOST:PORT, that is up. Asked by the operator's image.
reaches() {
  local reached=yes
  page_pod asker operator "--check-ready=$2" | kubectl_in "$1" apply --filename - >/dev/null
  kubectl_in "$1" wait --for='jsonpath={.status.phase}=Succeeded' pod/asker --timeout=60s >/dev/null 2>&1 || reached=
  kubectl_in "$1" delete pod asker --timeout="$patience" >/dev/null
  [ -n "$reached" ]
}
# page_pod NAME PROGRAM ARGUMENT...: a Pod of one of the images; `asker` tries until it gets through.
page_pod() {
  local version
  version=$(sed -n 's/^project(fusionllm VERSION \([0-9.]*\).*/\1/p' "$source_folder/CMakeLists.txt")
  restricted_pod "$1" "$IMAGE_REGISTRY/$2:${IMAGE_TAG:-$version}" "${@:3}" |
    sed "s/restartPolicy: .*/restartPolicy: OnFailure/; s/imagePullPolicy: .*/imagePullPolicy: ${IMAGE_PULL_POLICY:-IfNotPresent}/"
}
# serve_page CLUSTER: a Pod `page` with a page for `reaches`, at port 7002 of its address.
serve_page() {
  page_pod page scheduler --insecure --metrics-address=0.0.0.0:7002 | kubectl_in "$1" apply --filename - >/dev/null
  kubectl_in "$1" wait --for=condition=Ready pod/page --timeout="$patience" >/dev/null || fail "the Pod page in $1 is not ready"
}

# reach_each_other HOW: whether Pods of each member are reached from the others, at their own addresses (Pods) or at node ports (NodePorts).
reach_each_other() {
  local member other address reached=yes
  for member in "${members[@]}"; do
    serve_page "$member"
    if [ "$1" = NodePorts ]; then
      kubectl_in "$member" expose pod page --type=NodePort --port=7002 >/dev/null
      address=$(outer_address "$member"):$(kubectl_in "$member" get service page --output 'jsonpath={.spec.ports[0].nodePort}')
    else
      address=$(kubectl_in "$member" get pod page --output 'jsonpath={.status.podIP}'):7002
    fi
    for other in "${members[@]}"; do
      if [ -n "$reached" ] && [ "$other" != "$member" ] && ! reaches "$other" "$address"; then reached=; fi
    done
    kubectl_in "$member" delete pod,service --selector app=page --timeout="$patience" >/dev/null
  done
  [ -n "$reached" ]
}
# outer_address CLUSTER: of its first node, as others see it.
outer_address() {
  local addresses
  addresses=$(kubectl_of "$1" get nodes --output 'jsonpath={.items[0].status.addresses[?(@.type=="ExternalIP")].address} {.items[0].status.addresses[?(@.type=="InternalIP")].address}')
  read -r addresses _ <<<"$addresses"
  echo "$addresses"
}
