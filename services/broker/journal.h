// What must survive a broker's death: the plan in force, the profiles it was made from, how far training came.
//
// A file of JSON lines, appended and synced before the world hears of what it says; a torn last line is ignored. Not thread-safe.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/broker/run_state.h"

namespace fusionllm::services {

// Bytes by sender and receiver.
using Traffic = std::map<std::string, std::map<std::string, int64_t>>;

struct JournalState {
  uint32_t epoch = 0;  // 0: no plan was ever in force
  bool ended = false;  // the run had finished
  broker::RunPlan plan;
  std::string codec_limit;  // broker::RequestPlan's
  broker::CodecLimits codec_limits;
  int backoffs = 0;  // times that these two were made less aggressive
  std::map<std::string, std::string> profiles;
  std::vector<broker::Link> links;
  int64_t last_step = 0;
  std::vector<std::pair<uint32_t, broker::StepRecord>> steps;  // with their epochs, in the order they were reported
  std::vector<broker::ShardWritten> shards;                    // of this epoch, of steps after the checkpoint's
  Traffic earlier_bytes;                                       // of the epochs before this one
  Traffic epoch_bytes;                                         // of this one, as last recorded: the newest steps may be missing
  std::map<std::string, int64_t> ended_at;                     // last steps of this epoch's stages that have ended
  int64_t checkpoint_step = 0;
  std::string checkpoint_path;
};

class Journal {
 public:
  // Opens or creates the file and replays it into *state. Errors: base::FileError's; DataLoss for a line that is not a
  // journal entry, naming file and line, unless it is the last.
  static absl::StatusOr<Journal> Open(const std::string& path, JournalState* state);
  // Removes the file of an earlier run, if there is one. Errors: base::FileError's.
  static absl::Status Discard(const std::string& path);
  Journal(Journal&& other) noexcept : fd_(other.fd_), path_(std::move(other.path_)) { other.fd_ = -1; }
  ~Journal();

  absl::Status RecordEpoch(uint32_t epoch, const broker::RunPlan& plan, const std::map<std::string, std::string>& profiles,
                           const std::vector<broker::Link>& links, const std::string& codec_limit, const Traffic& earlier_bytes);
  absl::Status RecordStep(uint32_t epoch, const broker::StepRecord& record);
  // What one device has sent since the epoch began.
  absl::Status RecordTraffic(uint32_t epoch, const std::string& device, const std::map<std::string, int64_t>& bytes);
  absl::Status RecordCodecLimits(const std::string& codec_limit, const broker::CodecLimits& limits);
  absl::Status RecordStageEnd(const broker::StageEnded& ended);
  absl::Status RecordShard(const broker::ShardWritten& shard);
  absl::Status RecordCheckpoint(int64_t step, const std::string& path);
  absl::Status RecordEnd();

 private:
  Journal(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  absl::Status Append(const std::string& line, bool sync);
  int fd_ = -1;
  std::string path_;
};

}  // namespace fusionllm::services
