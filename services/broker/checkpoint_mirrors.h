// The places besides the run's own folder where its checkpoints are kept: spec.checkpoint.path where that is a URI, and
// spec.checkpoint.replica. And what a run fetches from object stores before it begins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/archive/mirror.h"
#include "lib/archive/mirror_target.h"
#include "lib/broker/events.h"
#include "lib/job/fusion_job.h"
#include "lib/objectstore/settings.h"

namespace fusionllm::services {

class CheckpointMirrors {
 public:
  // Called while bytes move to or from a place, with how many since the last call.
  using Progress = std::function<void(int64_t bytes)>;
  using EventSink = std::function<void(broker::EmitEvent)>;
  // Does not connect. `emit` gets the news before Start: what of a store is tried again (StoreRetried). InvalidArgument that names what the
  // environment lacks for a URI.
  static absl::StatusOr<std::unique_ptr<CheckpointMirrors>> Make(const job::FusionJob& job, const std::string& output_directory,
                                                                 const objectstore::Environment& environment, Progress progress,
                                                                 EventSink emit);

  // The first goes first; for what comes before Start.
  std::vector<archive::MirrorTarget*> targets() const;

  // From now on `emit` gets the news, and `kept` the steps of checkpoints that are where spec.checkpoint.path says if that is a URI, each
  // on threads of its own. `first_sequence`: of checkpoints that may be removed.
  // `gather`: brings files that lie in sites into the folder of their checkpoint before it is copied.
  void Start(int64_t first_sequence, EventSink emit, std::function<void(int64_t step)> kept = {},
             const archive::Mirror::Gather& gather = {});
  // The checkpoints that are in the folder already, for a broker that ended before it had copied them.
  void OfferAll(const std::string& directory, int64_t first_sequence);
  // A whole checkpoint. Does not block.
  void Offer(const std::string& folder, int64_t step);

  // Sentences about the places that have not got everything yet; empty: none.
  std::string DescribeLag() const;
  // Waits until all is copied, in each place as long as something moves (archive::Mirror::Finish). Unavailable when the last checkpoint is
  // not where spec.checkpoint.path says; what goes wrong with a replica is reported and no error. Call it once, last.
  absl::Status Finish(absl::Duration timeout, const std::stop_token& stop);

 private:
  struct Copies {
    bool first = false;  // spec.checkpoint.path, not a replica
    std::unique_ptr<archive::Mirror> mirror;
  };
  CheckpointMirrors() = default;
  void Add(const std::string& path, bool first, int64_t keep, int64_t every_steps, const std::string& output_directory,
           const objectstore::StoreSettings& settings);

  Progress progress_;
  EventSink emit_;
  std::function<void(int64_t step)> kept_;
  std::vector<Copies> copies_;
};

// What a URI of a checkpoint or a model names, brought below `scratch`: a checkpoint, the latest of a prefix with several, a folder as
// Hugging Face has it, or a .safetensors file. Compared with its checksums where it has any. Blocks. Errors name the URI.
absl::StatusOr<std::string> FetchCheckpoint(const std::string& uri, const std::string& scratch, const objectstore::Environment& environment,
                                            const CheckpointMirrors::Progress& progress, const CheckpointMirrors::EventSink& emit);

// The event of what is tried again.
broker::EmitEvent StoreRetried(const std::string& sentence);

}  // namespace fusionllm::services
