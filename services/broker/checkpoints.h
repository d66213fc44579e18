// The broker's side of checkpoints: which one to start from, and making a finished set of shards a whole one. Blocking.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/archive/mirror_target.h"
#include "lib/broker/run_state.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/writer.h"
#include "lib/job/fusion_job.h"
#include "lib/workload/found_checkpoint.h"

namespace fusionllm::services {

using workload::CheckpointFound;

// Removes what a crash left half written, unless executors may be writing. Errors: those of base::FileError.
absl::Status CleanUp(const std::string& directory, bool executors_are_running);

// Removes the staged files of one checkpoint; best effort.
void AbandonCheckpoint(const std::string& directory, int64_t step);

// Follows spec.checkpoint.resume: auto (the newest whole one, of the folder or of `places`, from which it is fetched then; else none),
// never, or a path. Errors: those of archive::FetchLatest, NotFound or DataLoss for a path that is not a whole checkpoint, InvalidArgument
// for one that is no run's, FailedPrecondition for one of more steps than the job has; the message names file and reason.
absl::StatusOr<CheckpointFound> FindCheckpoint(const job::FusionJob& job, const std::string& directory, const std::string& base_directory,
                                               const std::vector<archive::MirrorTarget*>& places = {});

// Likewise for a run that has begun and cannot restore a checkpoint: the newest of the folder and of `places` that is eligible, else what
// spec.checkpoint.resume names, if that is one and eligible, else none. Errors: as above; DataLoss where resume names what is not eligible.
absl::StatusOr<CheckpointFound> FindFallbackCheckpoint(const job::FusionJob& job, const std::string& directory,
                                                       const std::string& base_directory, const std::vector<archive::MirrorTarget*>& places,
                                                       const checkpoint::CheckpointFilter& eligible);

// What users read of the checkpoint that a run goes on from at `step`. `rules_kept`: what of its data's rules the job does not say.
std::vector<broker::EmitEvent> StartupEvents(const CheckpointFound& start, int64_t step, const std::string& rules_kept);

// The residuals of error feedback that a checkpoint holds, by name. Errors: those of checkpoint::CheckpointReader.
absl::StatusOr<std::vector<std::string>> ResidualsIn(const std::string& checkpoint);

// Whether the staged files of a checkpoint are what their writers reported, but for those that stay in sites. Reads them all. Errors:
// DataLoss naming the file, base::FileError's.
absl::Status CheckStaged(const std::string& directory, const broker::CommitCheckpoint& commit);

// Writes index and manifest beside the shards of `commit.step`, makes the folder visible, prunes old ones.
absl::StatusOr<checkpoint::CommittedCheckpoint> CommitCheckpoint(const job::FusionJob& job, const std::string& directory,
                                                                 int64_t first_sequence, const broker::RunPlan& plan,
                                                                 const broker::CommitCheckpoint& commit,
                                                                 const workload::InputFingerprints& contents = {});

// The first sequence that a run may remove which goes on from the checkpoint `start` (empty: from none).
absl::StatusOr<int64_t> FirstSequence(const std::string& directory, const std::string& start);

}  // namespace fusionllm::services
