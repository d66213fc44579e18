// Whether the Pods of a job can have the files of data that it names.
#pragma once

#include "absl/status/status.h"
#include "lib/job/fusion_job.h"

namespace fusionllm::op {

// InvalidArgument, naming the field: a relative path, which the folder of the job's file has on a machine, is nowhere in a cluster without
// spec.data.volume. Not judged are absolute paths, and executors whose template names an image or mounts: what is in those nobody here
// knows.
absl::Status DataHaveAPlace(const job::Spec& spec);

}  // namespace fusionllm::op
