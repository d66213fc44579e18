#include "lib/broker/run_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fusionllm::broker {

const char* Name(Phase phase) {
  switch (phase) {
    case Phase::kGathering:
      return "gathering";
    case Phase::kCalibrating:
      return "calibrating";
    case Phase::kProbing:
      return "probing";
    case Phase::kPlanning:
      return "planning";
    case Phase::kLoading:
      return "loading";
    case Phase::kRunning:
      return "running";
    case Phase::kDraining:
      return "draining";
    case Phase::kFinishing:
      return "finishing";
    case Phase::kDone:
      return "done";
    case Phase::kFailed:
      return "failed";
  }
  return "unknown";
}

RunState::RunState(RunOptions options)
    : options_(std::move(options)),
      profiles_(options_.known_profiles),
      links_(options_.known_links),
      epoch_(options_.last_epoch),
      last_step_(options_.start_step),
      checkpoint_step_(options_.start_step),
      checkpoint_path_(options_.start_checkpoint),
      codec_limits_(options_.codec_limits) {
  if (const auto limit = compression::ParseCodecSpec(options_.codec_limit); limit.ok()) codec_limit_ = *limit;
}

void RunState::Adopt(uint32_t epoch, PlanSummary plan, std::map<std::string, std::string> profiles, std::vector<Link> links,
                     int64_t last_step, std::vector<ShardWritten> shards, std::map<std::string, int64_t> ended_at,
                     const std::string& codec_limit, CodecLimits codec_limits) {
  epoch_ = epoch;
  plan_ = std::move(plan);
  profiles_ = std::move(profiles);
  links_ = std::move(links);
  most_trainers_ = plan_.wanted;
  last_step_ = last_step;
  stepped_ = last_step > options_.start_step;
  for (ShardWritten& shard : shards) {
    if (!IsCoveredByCheckpoint(shard.step)) shards_[shard.step][shard.stage] = std::move(shard);
  }
  ended_at_ = std::move(ended_at);
  if (const auto limit = compression::ParseCodecSpec(codec_limit); limit.ok()) codec_limit_ = *limit;
  codec_limits_ = std::move(codec_limits);
  adopted_ = true;
  loaded_once_ = true;
  waiting_ = {plan_.devices.begin(), plan_.devices.end()};
  adopted_epoch_is_over_ =
      std::any_of(plan_.devices.begin(), plan_.devices.end(), [this](const std::string& name) { return options_.gone.contains(name); });
}

int64_t PlanSummary::MicroBatchesOf(int rank) const {
  return micro_batches_by_replica.empty() ? micro_batches / replicas : micro_batches_by_replica[static_cast<size_t>(ReplicaOf(rank))];
}

std::string PlanSummary::Describe(int rank) const {
  if (replicas == 1) return absl::StrCat("stage ", rank);
  return absl::StrFormat("stage %d of replica %d", StageOf(rank), ReplicaOf(rank));
}

std::vector<Action> RunState::On(const Event& event) {
  actions_.clear();
  if (phase_ != Phase::kDone && phase_ != Phase::kFailed) {
    std::visit([this](const auto& e) { Handle(e); }, event);
  }
  return std::move(actions_);
}

void RunState::Await(double seconds, std::string what) { Do(StartTimer{.id = ++expect_id_, .seconds = seconds, .what = std::move(what)}); }

void RunState::Fail(absl::Status status, std::string refusal_reason) {
  for (const std::string& device : plan_.devices) {
    if (Present(device)) Do(SendAbort{.name = device, .epoch = epoch_, .why = std::string(status.message())});
  }
  phase_ = Phase::kFailed;
  Do(Finish{.status = std::move(status), .refusal_reason = std::move(refusal_reason)});
}

int RunState::RankOf(const std::string& name) const {
  const auto found = std::find(plan_.devices.begin(), plan_.devices.end(), name);
  return found == plan_.devices.end() ? -1 : static_cast<int>(found - plan_.devices.begin());
}

int RunState::StageOf(const std::string& name) const {
  const int rank = RankOf(name);
  return rank < 0 ? -1 : plan_.StageOf(rank);
}

void RunState::SetStageAndReplica(int rank, EmitEvent& event) const {
  if (rank < 0) return;
  event.stage = plan_.StageOf(rank);
  if (plan_.replicas > 1) event.replica = plan_.ReplicaOf(rank);
}

}  // namespace fusionllm::broker
