// The checkpoint that a job goes on from: what it is, and whether it is of the job's model.
//
// Blocks on the disk, where it only reads; holds no state.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/checkpoint/catalog.h"
#include "lib/job/fusion_job.h"
#include "lib/workload/input_fingerprints.h"

namespace fusionllm::workload {

struct CheckpointFound {
  std::optional<job::FusionJob> made_by;  // as it was then; nothing: that cannot be read
  int64_t step = 0;                       // steps it has seen; 0 and an empty path: start from the beginning
  std::string path;
  int64_t micro_batch_size = 0;                                      // that it was trained with; 0: not known
  std::string codec_limit;                                           // broker::RunOptions' of the run that made it
  std::map<std::pair<std::string, bool>, std::string> codec_limits;  // likewise: broker::CodecLimits
  std::vector<std::string> skipped;                                  // newer ones that are not whole: a sentence about each
  std::string fetched_from;                                          // the place that had it, where the run's folder had not; empty: none
  std::string changed;  // how the job, or what lies in its files, differs from the one that made it, but for the number of steps where the
                        // learning rate is constant; empty: not
  InputFingerprints contents;  // as its manifest tells them
  std::string unusable;        // why no run may begin with what was found, a sentence for users: see AddSkipped; empty: it may
  std::string other_model;  // why it cannot be gone on from: it is of another model than the job's, by fields and parameters; empty: it can
};

// Of the checkpoint at `path`, whole or not. Errors: those of checkpoint::CheckpointReader; InvalidArgument for one that is no run's,
// FailedPrecondition for one of more steps than the job has; the message names file and reason.
absl::StatusOr<CheckpointFound> DescribeCheckpoint(const job::FusionJob& job, const std::string& base_directory, const std::string& path);

// Puts what was passed over in `directory`, or in a place of copies, into `found`. Where nothing at all can be used, or a later release
// made something newer than what can, `found` is unusable: to begin at step 0, or with less, would not be what was meant.
void AddSkipped(const std::string& directory, const std::vector<checkpoint::SkippedCheckpoint>& skipped, CheckpointFound& found);

// FailedPrecondition where a run must not begin with what was found: "OtherModel: .." with the fields and tensors that differ;
// "NoUsableCheckpoint: .." with why each cannot be used; "NewerCheckpoint: .." with which it is.
absl::Status CheckCanStartFrom(const CheckpointFound& found);

// What a run that begins now would find by spec.checkpoint.resume (auto, never or a path) in its folder of checkpoints, by reading only: of
// other places nothing is fetched, and a file that is damaged stays. An empty path: none; where there are other places, in none of which is
// looked, one of them may have what can be used. Errors: as above, and NotFound or DataLoss for a
// path that is not a whole checkpoint.
absl::StatusOr<CheckpointFound> PreviewCheckpoint(const job::FusionJob& job, const std::string& directory,
                                                  const std::string& base_directory);

}  // namespace fusionllm::workload
