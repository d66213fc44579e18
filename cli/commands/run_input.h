// What a run reads: its model, data and start, looked at before any process is started. Blocks on the disk and on object stores.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/job/fusion_job.h"
#include "lib/workload/workload.h"

namespace fusionllm::cli {

struct CheckedInput {
  std::unique_ptr<workload::Workload> workload;  // the job as it will be run
  std::vector<std::string> warnings;             // what is odd about model and data
  std::vector<std::string> of_start;             // what is odd about the file of init.from
  std::string data;                              // what is read (DatasetSource::Summary); empty: it lies in an object store
};
// `base` is the folder of the job's file. Without `reads_start` nothing is asked of the file of init.from: the run goes on from a
// checkpoint. Errors: what is wrong, beginning with the field; Unavailable for an object store that does not answer.
absl::StatusOr<CheckedInput> CheckInput(const job::FusionJob& job, const std::string& base, bool reads_start = true);

// What is odd about the model, a sentence each that begins with the field: embeddings whose tables are frozen zeros that nothing of the job
// fills; probabilities where a loss wants logits; a placeholder that nothing reads; a start that does not say how many heads it has. Blocks
// on the disk.
std::vector<std::string> ModelWarnings(const workload::Workload& workload);

}  // namespace fusionllm::cli
