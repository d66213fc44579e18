#!/bin/bash
# given_clusters.sh [SCENARIO...]: scenarios in clusters that are there already, as ../README.md has it, by their kubeconfigs alone. For want of
# a stranger's clusters three of this machine play them: with a registry that all pull the images from, none is imported, and a default storage
# class whose volumes a CSI driver makes. Each scenario passes, says what of it is not to be had there, and leaves in each cluster the objects
# that it had before, by kind and name, and no other. Without arguments: two_members_job, two_hubs, hub_upgraded.
# Needs the images of the four programs (make images), buildah, docker-registry, helm (controlplane/build.sh) and the driver (csi/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
# shellcheck source=../registry/registry_lib.sh
. "$scenario_folder/../registry/registry_lib.sh"
# shellcheck source=../csi/driver_lib.sh
. "$scenario_folder/../csi/driver_lib.sh"
only_on_own "it makes the clusters that are given"
scenarios=("$@")
[ ${#scenarios[@]} -gt 0 ] || scenarios=(two_members_job two_hubs hub_upgraded)
for scenario in "${scenarios[@]}"; do [ -x "$scenario_folder/$scenario.sh" ] || die "there is no scenario $scenario"; done
for program in docker-registry buildah; do command -v $program >/dev/null || die "$program is not there: tools/install-deps.sh e2e images"; done
"$csi_folder/build.sh" >/dev/null

bring_up ghub gent graz
serve_registry "$scratch/registry" "$(node_address "$hub")" enter "$hub"  # as a process of the hub's, with which it ends
archives=()
for name in operator broker scheduler executor; do archives+=("$build_folder/images/$name.tar"); done
for tag in now next; do push_images "$registry/ml" $tag "${archives[@]}"; done
took "three clusters, and a registry with the images at $registry"

for cluster in "${machines[@]}"; do
  trust_registry "$cluster"
  start_csi "$cluster" 'storageclass.kubernetes.io/is-default-class: "true"'
  if [ "$cluster" != "$hub" ]; then "$cluster_scripts/link.sh" shape "$hub" "$cluster" 50mbit 20ms; fi
done

# objects_in CLUSTER: all that there is, but for what comes and goes by itself.
objects_in() {
  local kinds
  kinds=$(kubectl_of "$1" api-resources --verbs=list --output name |
    grep -vE '^(events|leases|endpoints|endpointslices|componentstatuses)(\.|$)' | sort | paste -sd,) || return
  kubectl_of "$1" get "$kinds" --all-namespaces --ignore-not-found --output \
    'jsonpath={range .items[*]}{.kind} {.metadata.namespace} {.metadata.name}{"\n"}{end}' | sort
}
for cluster in "${machines[@]}"; do objects_in "$cluster" >"$scratch/$cluster.before"; done
same_objects() { objects_in "$1" >"$scratch/$1.now" && diff "$scratch/$1.before" "$scratch/$1.now" >"$scratch/$1.difference"; }

# The scenario gets the kubeconfigs and what is in PATH; where clusters of this machine live it does not learn.
for scenario in "${scenarios[@]}"; do
  env --unset=FUSIONLLM_E2E_KEEP FUSIONLLM_E2E_STATE="$scratch/none" FUSIONLLM_BUILD_DIR="$scratch/none" PATH="$state_root/bin:$PATH" \
    HUB_KUBECONFIG="$(kubeconfig_of "$hub")" MEMBER_KUBECONFIGS="$(kubeconfig_of gent),$(kubeconfig_of graz)" IMAGE_REGISTRY="$registry/ml" \
    IMAGE_TAG=now IMAGE_NEXT_TAG=next \
    "$scenario_folder/$scenario.sh" | tee "$scratch/said" | sed 's/^/    /'
  # One that finds nothing to do there has not failed.
  grep -q ': passed in ' "$scratch/said" || fail "$scenario has not been tried: $(tail -1 "$scratch/said")"
  for cluster in "${machines[@]}"; do
    until_true "$cluster to have the objects it had before $scenario" same_objects "$cluster"
  done
  took "$scenario; $(cat "$scratch"/*.before | wc -l) objects are the same before and after"
done
leave "clusters that were given"
