#include "lib/broker/run_checkpoints.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "lib/base/exit_code.h"
#include "lib/checkpoint/layout.h"

namespace fusionllm::broker {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 50;  // of a file that cannot be looked at here: sums do not overflow

// In the broker's folder, or in its writer's own site under its writer's own name.
bool IsWhereItMayBe(const checkpoint::FileEntry& file, const ShardWritten& event, const ExecutorSet& executors) {
  if (file.site.empty()) return file.site_folder.empty();
  const auto executor = executors.present().find(event.name);
  const std::optional<checkpoint::SiteFolder> folder = checkpoint::ParseSiteFolder(file.site_folder);
  return executor != executors.present().end() && executor->second.holds_shards && executor->second.site == file.site &&
         folder.has_value() && folder->device == event.name && folder->step == event.step && file.bytes <= kMaxFileBytes &&
         file.tensor_bytes >= 0 && file.tensor_bytes <= file.bytes;
}

}  // namespace

bool IsCurrentShard(const ShardWritten& event, const PlanEpoch& epoch, const ExecutorSet& executors) {
  const int stages = epoch.plan().stages();
  return epoch.IsCurrent(event) && std::all_of(event.files.begin(), event.files.end(), [&](const checkpoint::FileEntry& file) {
           return checkpoint::IsShardFileOf(file.name, event.stage, stages) && IsWhereItMayBe(file, event, executors);
         });
}

RunCheckpoints::RunCheckpoints(const RunOptions& options) : step_(options.start_step), path_(options.start_checkpoint) {}

void RunCheckpoints::Adopt(std::vector<ShardWritten> shards) {
  for (ShardWritten& shard : shards) {
    if (!Covers(shard.step)) shards_[shard.step][shard.stage] = std::move(shard);
  }
}

std::vector<int64_t> RunCheckpoints::Collecting() const {
  std::vector<int64_t> steps;
  for (const auto& [step, shards] : shards_) steps.push_back(step);
  return steps;
}

void RunCheckpoints::BeginEpoch() {
  shards_.clear();
  lost_.reset();
}

RunCheckpoints::AddResult RunCheckpoints::Add(const ShardWritten& event) {
  if (committing_.contains(event.step) || Covers(event.step)) return AddResult::kIgnored;
  if (event.status.ok()) shard_s_ = event.seconds;
  auto& shards = shards_[event.step];
  const bool first_failure =
      !event.status.ok() && std::all_of(shards.begin(), shards.end(), [](const auto& shard) { return shard.second.status.ok(); });
  shards[event.stage] = event;
  return first_failure ? AddResult::kFirstFailure : AddResult::kAccepted;
}

bool RunCheckpoints::CommitIfComplete(int64_t step, int stages, CommitCheckpoint commit, ActionQueue& queue) {
  const auto found = shards_.find(step);
  if (found == shards_.end() || static_cast<int>(found->second.size()) < stages) return true;
  commit.step = step;
  bool whole = true;
  for (const auto& [stage, shard] : found->second) {
    whole = whole && shard.status.ok();
    commit.files.insert(commit.files.end(), shard.files.begin(), shard.files.end());
    // The first stage that reads data says where the next step goes on; those after it read the same.
    if (commit.samples_consumed == 0) commit.samples_consumed = shard.samples_consumed;
  }
  shards_.erase(found);
  if (whole) {
    committing_.insert(step);
    queue.Push(std::move(commit));
  } else {
    queue.Push(AbandonCheckpoint{.step = step});  // nothing is written there any more, and the room may be needed
  }
  return whole;
}

RunCheckpoints::Outcome RunCheckpoints::OnCommitted(const CheckpointCommitted& event, const CommitContext& at, ActionQueue& queue) {
  committing_.erase(event.step);
  if (!event.status.ok()) {
    const std::string message = absl::StrFormat("checkpoint of step %d was not saved: %s", event.step, std::string(event.status.message()));
    if (at.is_last && !Covers(event.step)) {
      lost_ = {event.step, base::AsDataLossInRun(absl::Status(event.status.code(), message))};
      return at.runs && event.step >= at.last_step ? Outcome::kLost : Outcome::kFatal;
    }
    queue.Push(EmitEvent{.reason = "CheckpointFailed", .step = event.step, .message = message});
    return Outcome::kContinues;
  }
  if (event.step >= step_) {
    step_ = event.step;
    path_ = event.path;
    while (!shards_.empty() && Covers(shards_.begin()->first)) {
      queue.Push(AbandonCheckpoint{.step = shards_.begin()->first});
      shards_.erase(shards_.begin());
    }
  }
  queue.Push(EmitEvent{.reason = "CheckpointSaved", .step = event.step, .message = event.path});
  return Outcome::kContinues;
}

void RunCheckpoints::Replace(ActionQueue& queue) {
  if (restore_ != Restore::kUnusable) return;
  restore_ = Restore::kReplacing;
  queue.DisarmTimer();  // places that copies are fetched from have a timeout of their own
  queue.Push(ReplaceCheckpoint{.path = unusable_.path});
}

absl::Status RunCheckpoints::OnReplaced(const CheckpointReplaced& event, ActionQueue& queue) {
  restore_ = Restore::kUsable;
  const std::string unusable = absl::StrFormat("%s cannot be restored: %s; ", unusable_.path, std::string(unusable_.status.message()));
  if (!event.status.ok()) {
    return base::AsDataLossInRun(absl::Status(event.status.code(), absl::StrFormat("%s%s", unusable, std::string(event.status.message()))));
  }
  queue.Push(EmitEvent{
      .reason = "CheckpointUnusable", .step = step_, .message = absl::StrFormat("%sthe newest that may is %s", unusable, event.path)});
  step_ = event.step;
  path_ = event.path;
  return absl::OkStatus();
}

}  // namespace fusionllm::broker
