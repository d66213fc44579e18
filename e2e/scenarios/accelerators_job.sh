#!/bin/bash
# accelerators_job.sh: nodes tell of accelerators as they do where a device plugin and feature discovery run: a label that names the kind, and
# how many there are. A job that asks for a kind, and for no number of executors, gets as many as are free in both members, each with one of its
# own; the next one waits, hears what is short where, and starts when the first has ended. A job that asks for a GPU of NVIDIA's gets a node
# that tells of one, and there says what it misses, the image with CUDA, and with another image too: it does not train on the processor instead.
# What is counted is real, the accelerators are not: executors of the first kind, which FusionLLM does not compute on, train on the processor.
# Needs the images of the four programs (make images) and helm (controlplane/build.sh).
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
bring_up vhub lund oslo
members_behind 50mbit 20ms

# has CLUSTER RESOURCE NUMBER LABEL=VALUE: what its node tells of (Kubernetes: Advertise Extended Resources for a Node).
has() {
  local node
  node=$(kubectl_of "$1" get nodes --output 'jsonpath={.items[0].metadata.name}')
  kubectl_of "$1" label node "$node" "$4" >/dev/null
  kubectl_of "$1" patch node "$node" --subresource=status --type=merge --patch "{\"status\": {\"capacity\": {\"$2\": \"$3\"}}}" >/dev/null
  gives() { [ "$(kubectl_of "$1" get nodes --output "jsonpath={.items[0].status.allocatable.${2//./\\.}}")" = "$3" ]; }
  until_true "the node of $1 to give $3 $2" gives "$1" "$2" "$3"
}
has lund amd.com/gpu 1 amd.com/gpu.product-name=AMD_Instinct_MI210
has oslo amd.com/gpu 2 amd.com/gpu.product-name=AMD_Instinct_MI210
has oslo nvidia.com/gpu 1 nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3
took "a hub and two members$behind, whose nodes tell of one and of three accelerators"

any="{threads: 1}"
placed="device: mi210" stages=3 job first 300 "" "$any"
wait_for first condition=Ready
# asked CLUSTER JOB: what each executor of the job there asks for.
asked() {
  kubectl_in "$1" get pods --selector "fusionllm.io/job=$2,fusionllm.io/role=executor" --output \
    'jsonpath={range .items[*]}{.spec.containers[?(@.name=="executor")].resources.limits.amd\.com/gpu} {end}'
}
[ "$(asked lund first)" = "1 " ] || fail "executors in lund ask for accelerators: $(asked lund first)"
[ "$(asked oslo first)" = "1 1 " ] || fail "executors in oslo ask for accelerators: $(asked oslo first)"
took "$(k get fusionjob first --no-headers): one executor for each accelerator of that kind"

placed="device: mi210" job second 20 "" "$any"
waits() { condition_is fusionjob/second Scheduled False && [ "$(condition_of fusionjob/second Scheduled message | grep -c 'amd.com/gpu')" = 1 ]; }
until_true "the second job to say what is short" waits
short=$(condition_of fusionjob/second Scheduled message)
for member in "${members[@]}"; do grep -q "$member" <<<"$short" || fail "the second job does not say what is short in $member: $short"; done
for member in "${members[@]}"; do empty asked "$member" second || fail "the second job has executors in $member"; done
took "the second job waits: $short"
wait_for first condition=Complete
expect_trained first
wait_for second condition=Complete
took "the first has come to its end, and the second after it, $(k get fusionjob second --no-headers)"

# The image with CUDA is not there, which the job says. In its place, the one of the others, which computes on no GPU.
placed="device: h100" stages=1 job card 20 "" "$any"
lacks_image() { [[ $(condition_of fusionjob/card Ready message) == *card-oslo-0-r0*executor-cuda* ]]; }
until_true "the job to say that it lacks the image with CUDA" lacks_image
took "$(condition_of fusionjob/card Ready message)"
k delete fusionjob card --timeout="$patience" >/dev/null
image=$(kubectl_in oslo get pods --selector fusionllm.io/job=second --output 'jsonpath={.items[0].spec.containers[?(@.name=="executor")].image}')
helm_in "$hub" upgrade fusion "$source_folder/helm/fusionllm" --reuse-values --set "image.executorCuda=$image" --wait --timeout "$patience" >/dev/null
placed="device: h100" stages=1 job card 20 "" "$any"
lacks_cuda() { [[ $(condition_of fusionjob/card Ready message) == *card-oslo-0-r0*"no CUDA back end"* ]]; }
until_true "the job to say that its executor has no CUDA" lacks_cuda
status_is card state Starting || fail "the job without CUDA is $(status_of card state)"
took "it does not train on the processor instead: $(condition_of fusionjob/card Ready message)"
k delete fusionjob first second --timeout="$patience" >/dev/null
delete_job card
took "deleted, nothing is left in any cluster"
take_down "accelerators"
