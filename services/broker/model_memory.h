// The least memory that training a job's model takes, by its graph alone.
#pragma once

#include "lib/broker/min_model_memory.h"
#include "lib/job/fusion_job.h"
#include "lib/opdag/graph.h"

namespace fusionllm::services {

broker::MinModelMemory MinModelMemoryOf(const opdag::Graph& forward, const job::Spec& spec);

}  // namespace fusionllm::services
