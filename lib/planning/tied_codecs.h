// What the gradients of tied parameters may travel as, and how long the messages then are.
#pragma once

#include "lib/compression/policy.h"
#include "lib/compression/spec.h"
#include "lib/job/fusion_job.h"
#include "lib/scheduler/snapshot.h"
#include "lib/workload/workload.h"

namespace fusionllm::planning {

// Expected increase of the loss, in nats per target, where a tied parameter's gradients travel as this with error feedback: measured with
// small GPTs (docs/results/tied-gradients.md). Other codecs than those of spec.compression.tiedGradients are not asked for.
double TiedLossIncrease(compression::CodecKind kind);

// Sets `codecs` and `codecs_why` of the request's tied parameters, which are the workload's. An embedding's messages are as long as the
// tokens of a step can make them.
void AddTiedCodecs(const workload::Workload& workload, scheduler::PlanRequest& request);

// The policy for links: the job's, whose budget of loss (maxLossIncrease) is less by what the lossiest codec of each tied parameter would
// cost, by half of it at most. Else links would spend all of it on the last percent of their ratio, and nothing would be left for these
// gradients.
compression::Policy LinkPolicyOf(const workload::Workload& workload);

}  // namespace fusionllm::planning
