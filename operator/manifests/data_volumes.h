// Whether the Pods of a job can have the files of data that it names.
#pragma once

#include "absl/status/status.h"
#include "lib/job/fusion_job.h"

namespace fusionllm::op::manifests {

// InvalidArgument, naming the field, for a relative path of data or of the start: it is a file of the machine where the job was written,
// and in a cluster it lies in spec.data.volume, which the job does not have. Not judged are absolute paths, Pods whose template names an
// image or mounts, of which it is not known here what lies in them, and a start where checkpoints have a volume, which it may name from
// there.
absl::Status CheckDataVolumes(const job::Spec& spec);

}  // namespace fusionllm::op::manifests
