// RunState: shards become checkpoints.
#include "lib/broker/run_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "lib/base/exit_code.h"
#include "lib/checkpoint/layout.h"

namespace fusionllm::broker {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 50;  // of a file that cannot be looked at here: sums do not overflow

}  // namespace

bool RunState::IsOfItsStage(const ShardWritten& event) const {
  // Replica 0 writes for all: its ranks are those of its stages.
  return event.epoch == epoch_ && event.stage >= 0 && RankOf(event.name) == event.stage && event.stage < plan_.stages() &&
         event.step >= 0 && event.step <= options_.total_steps;
}

bool RunState::IsCurrent(const ShardWritten& event) const {
  const int stages = plan_.stages();
  return IsOfItsStage(event) && std::all_of(event.files.begin(), event.files.end(), [&](const ShardFile& file) {
           return checkpoint::IsShardFileOf(file.name, event.stage, stages) && IsWhereItMayBe(file, event);
         });
}

// In the broker's folder, or in its writer's own site under its writer's own name.
bool RunState::IsWhereItMayBe(const ShardFile& file, const ShardWritten& event) const {
  if (file.site.empty()) return file.site_folder.empty();
  const auto member = members_.find(event.name);
  const std::optional<checkpoint::SiteFolder> folder = checkpoint::ParseSiteFolder(file.site_folder);
  return member != members_.end() && member->second.holds_shards && member->second.site == file.site && folder.has_value() &&
         folder->device == event.name && folder->step == event.step && file.bytes <= kMaxFileBytes && file.tensor_bytes >= 0 &&
         file.tensor_bytes <= file.bytes;
}

void RunState::Handle(const ShardWritten& event) {
  if (!IsOfItsStage(event)) return;
  if (event.status.ok() && !IsCurrent(event)) {  // nothing better will come from this stage: the checkpoint fails
    ShardWritten refused = event;
    refused.status = absl::InvalidArgumentError(
        absl::StrFormat("stage %d on %s reported files that are not those of its shard", event.stage, event.name));
    Handle(refused);
    return;
  }
  // Repeated to a restarted broker whose checkpoint is whole already.
  if (committing_.contains(event.step) || IsCoveredByCheckpoint(event.step)) return;
  if (event.status.ok()) shard_s_ = event.seconds;
  auto& shards = shards_[event.step];
  const bool first_failure =
      !event.status.ok() && std::all_of(shards.begin(), shards.end(), [](const auto& shard) { return shard.second.status.ok(); });
  shards[event.stage] = event;
  if (first_failure) {
    Handle(CheckpointCommitted{.step = event.step, .status = event.status});
    if (phase_ == Phase::kFailed) return;
  }
  CommitIfComplete(event.step);
}

void RunState::CommitIfComplete(int64_t step) {
  const std::map<int, ShardWritten>& shards = shards_[step];
  if (static_cast<int>(shards.size()) < plan_.stages()) return;
  CommitCheckpoint commit{.step = step, .codec_limit = codec_limit(), .codec_limits = codec_limits_};
  bool whole = true;
  for (const auto& [stage, shard] : shards) {
    whole = whole && shard.status.ok();
    commit.files.insert(commit.files.end(), shard.files.begin(), shard.files.end());
    // The first stage that reads data says where the next step goes on; those after it read the same.
    if (commit.samples_consumed == 0) commit.samples_consumed = shard.samples_consumed;
  }
  shards_.erase(step);
  if (whole) {
    committing_.insert(step);
    Do(std::move(commit));
  } else {
    Do(AbandonCheckpoint{.step = step});  // nothing is written there any more, and the room may be needed
    MaybeFinish();
  }
}

// What is missing of these will not be believed any more: a report that a broker before this one lost, say.
void RunState::AbandonCoveredSteps() {
  while (!shards_.empty() && IsCoveredByCheckpoint(shards_.begin()->first)) {
    Do(AbandonCheckpoint{.step = shards_.begin()->first});
    shards_.erase(shards_.begin());
  }
}

void RunState::Handle(const CheckpointCommitted& event) {
  committing_.erase(event.step);
  if (!event.status.ok()) {
    const std::string message = absl::StrFormat("checkpoint of step %d was not saved: %s", event.step, std::string(event.status.message()));
    // In the middle of a run training goes on, the earlier checkpoints are whole; at the end there is nothing left to try.
    const bool is_last = (phase_ == Phase::kFinishing && !EndedForAnotherPlan()) || event.step >= options_.total_steps || stop_asked_;
    if (is_last && !IsCoveredByCheckpoint(event.step)) {
      const absl::Status failure = base::AsDataLossInRun(absl::Status(event.status.code(), message));
      if (phase_ == Phase::kRunning && event.step >= last_step_) {
        last_checkpoint_lost_ = {event.step, failure};
      } else {
        Fail(failure);
      }
      return;
    }
    Do(EmitEvent{.reason = "CheckpointFailed", .step = event.step, .message = message});
    MaybeFinish();
    return;
  }
  if (event.step >= checkpoint_step_) {
    checkpoint_step_ = event.step;
    checkpoint_path_ = event.path;
    AbandonCoveredSteps();
  }
  Do(EmitEvent{.reason = "CheckpointSaved", .step = event.step, .message = event.path});
  MaybeFinish();
}

void RunState::Handle(const CheckpointUnusable& event) {
  if (phase_ != Phase::kLoading || event.epoch != epoch_ || event.path != checkpoint_path_) return;
  unusable_ = event;
  Drain(std::string(event.status.message()));
}

void RunState::Replace() {
  if (replacing_) return;
  replacing_ = true;
  ++expect_id_;  // places that copies are fetched from have a timeout of their own
  Do(ReplaceCheckpoint{.path = unusable_->path});
}

void RunState::Handle(const CheckpointReplaced& event) {
  if (!replacing_) return;
  replacing_ = false;
  const CheckpointUnusable unusable = *std::exchange(unusable_, std::nullopt);
  if (!event.status.ok()) {
    Fail(base::AsDataLossInRun(
        absl::Status(event.status.code(), absl::StrFormat("%s cannot be restored: %s; %s", unusable.path,
                                                          std::string(unusable.status.message()), std::string(event.status.message())))));
    return;
  }
  Do(EmitEvent{.reason = "CheckpointUnusable",
               .step = checkpoint_step_,
               .message = absl::StrFormat("%s cannot be restored: %s; the newest that may is %s", unusable.path,
                                          std::string(unusable.status.message()), event.path)});
  checkpoint_step_ = event.step;
  checkpoint_path_ = event.path;
  retries_without_progress_ = 0;
  Recover();
}

void RunState::MaybeFinish() {
  if (phase_ != Phase::kFinishing || !shards_.empty() || !committing_.empty()) return;
  if (EndedForAnotherPlan()) {
    SwitchPlan();
    return;
  }
  phase_ = Phase::kDone;
  Do(Finish{.status = absl::OkStatus(), .interrupted = stop_asked_ && last_step_ < options_.total_steps});
}

}  // namespace fusionllm::broker
