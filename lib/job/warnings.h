// What is odd about a valid job: things a user may want but more likely overlooked. Pure function.
#pragma once

#include <string>
#include <vector>

#include "lib/job/fusion_job.h"

namespace fusionllm::job {

// One sentence each, beginning with the field. Short runs of a long job are common (--set spec.training.steps=5), so these are no errors.
std::vector<std::string> Warnings(const FusionJob& job);

}  // namespace fusionllm::job
