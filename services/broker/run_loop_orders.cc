// RunLoop: carries out what the state machine orders.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lib/base/log.h"
#include "lib/base/object_uri.h"
#include "lib/base/output_file.h"
#include "lib/base/printable_text.h"
#include "lib/base/truncate_utf8.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/executor_reports.h"
#include "services/broker/plan_result.h"
#include "services/broker/profiles_document.h"
#include "services/broker/run_loop.h"
#include "services/broker/shard_retention.h"

namespace fusionllm::services {
namespace {

// Of what an executor says of its data.
constexpr size_t kMaxSummaryBytes = 4096, kMaxDataFiles = 200, kMaxPathBytes = 1024;

}  // namespace

void RunLoop::Execute(const broker::StartCalibration& action) {
  v1::BrokerMessage message;
  message.mutable_calibrate();
  executor_sessions_->Send(action.name, std::move(message));
}

void RunLoop::Execute(const broker::StartLinkProbe& action) {
  v1::BrokerMessage message;
  *message.mutable_probe()->add_peers() = PeerOf(state_.executors(), action.dst, action.src);
  executor_sessions_->Send(action.src, std::move(message));
}

// In the order declared, in which the baseline planners take devices; but the one that is to read the data goes first.
std::vector<std::string> RunLoop::InOrder(std::vector<std::string> devices, const std::string& first) const {
  const auto rank = [&](const std::string& name) {
    if (first.empty() ? options_.data_devices.contains(name) : name == first) return -1;
    const auto found = options_.order_of_device.find(name);
    return found == options_.order_of_device.end() ? std::numeric_limits<int>::max() : found->second;
  };
  std::stable_sort(devices.begin(), devices.end(), [&](const std::string& a, const std::string& b) { return rank(a) < rank(b); });
  return devices;
}

// For other runs (--profiles). Nothing depends on it here, so that a full disk is no reason to end the run.
void RunLoop::SaveProfiles() const {
  if (options_.profiles_file.empty()) return;
  std::vector<std::string> devices;
  for (const auto& [name, profile] : state_.profiles()) devices.push_back(name);
  const std::string text = ProfilesDocument(InOrder(std::move(devices)), state_) + "\n";
  const absl::Status status = base::ReplaceFile(options_.profiles_file, text);
  if (!status.ok()) base::Log(base::LogLevel::kWarning, absl::StrCat("profiles were not saved: ", std::string(status.message())));
}

void RunLoop::Execute(const broker::RequestPlan& action) {
  if (action.alternative == 0) SaveProfiles();
  const std::string profiles = ProfilesFor(action, InOrder(action.devices, action.data_device), state_);
  RunInBackground([this, ask = action, profiles] { PostEvent(PlanEventOf(ask, plan_(profiles, ask, stop_helpers_.get_token()))); });
}

void RunLoop::OpenExchange(uint32_t epoch, const std::string& restore_from) {
  if (options_.exchange == nullptr || exchanging_ == epoch) return;
  exchanging_ = epoch;
  const broker::RunPlan& plan = state_.plan();
  options_.exchange->Open({.number = epoch,
                           .devices = plan.devices,
                           .memory_bytes = plan.MemoryBytes(),
                           .replicas = plan.plan.replicas,
                           .restore_from = restore_from,
                           .tensors = TensorsOfStages()});
}

StageTensors RunLoop::TensorsOfStages() const {
  absl::StatusOr<StageTensors> tensors =
      options_.graph.ok() ? StageTensors::Of(*options_.graph, state_.plan().document) : options_.graph.status();
  if (tensors.ok()) return *std::move(tensors);
  base::Log(base::LogLevel::kWarning,
            absl::StrCat("no executor can fetch tensors of a checkpoint, because the tensors of the stages are unknown: ",
                         std::string(tensors.status().message())));
  return {};
}

void RunLoop::CloseExchange() {
  if (options_.exchange != nullptr) options_.exchange->Close();
}

void RunLoop::Execute(const broker::SendAssign& action) {
  OpenExchange(action.epoch, action.restore_from);
  v1::BrokerMessage message;
  v1::Assign& assign = *message.mutable_assign();
  assign.set_epoch(action.epoch);
  assign.set_plan_document(state_.plan().document);
  assign.set_stage(action.stage);
  const broker::RunPlan& plan = state_.plan();
  for (int rank = 0; rank < static_cast<int>(plan.devices.size()); ++rank) {
    const std::string& device = plan.devices[static_cast<size_t>(rank)];
    if (plan.ReplicaOf(rank) == action.replica) *assign.add_peers() = PeerOf(state_.executors(), device, action.name);
    if (plan.plan.replicas > 1 && plan.StageOf(rank) == action.stage)
      *assign.add_replicas() = PeerOf(state_.executors(), device, action.name);
  }
  assign.set_replica(action.replica);
  assign.set_restore_from(action.restore_from);
  assign.set_first_step(action.first_step);
  assign.set_codec_limit(state_.codec_limit());
  for (const auto& [value, codec] : state_.codec_limits()) {
    v1::CodecLimit& limit = *assign.add_codec_limits();
    limit.set_value(value.first);
    limit.set_gradient(value.second);
    limit.set_codec(codec);
  }
  assign.set_job_hash(options_.job_hash);
  if (action.stage == 0 && action.replica == 0) FindResiduals(action.restore_from);
  for (const std::string& residual : residuals_left_) assign.add_residuals(residual);
  if (const auto executor = state_.executors().find(action.name); executor != state_.executors().end()) {
    AddSiteFiles(action.restore_from, executor->second, assign);
  }
  executor_sessions_->Send(action.name, std::move(message));
}

// Before the first stage is asked to restore.
void RunLoop::FindResiduals(const std::string& checkpoint) {
  residuals_left_.clear();
  if (checkpoint.empty() || options_.job.spec.compression.policy == job::CompressionPolicy::kNone) return;
  // A checkpoint that cannot be read is the stages' error.
  if (const auto residuals = ResidualsIn(checkpoint); residuals.ok()) residuals_left_ = {residuals->begin(), residuals->end()};
}

void RunLoop::EmitResidualsDropped() {
  if (residuals_left_.empty()) return;
  Execute(broker::EmitEvent{
      .reason = "ResidualsDropped",
      .step = state_.last_step(),
      .message = absl::StrFormat(
          "what error feedback kept of cuts or tied parameters that this plan has not, or does not compress, is dropped: %s",
          absl::StrJoin(residuals_left_, ", "))});
  residuals_left_.clear();
}

void RunLoop::Execute(const broker::SendStart& action) {
  EmitResidualsDropped();  // all stages are ready
  v1::BrokerMessage message;
  message.mutable_start()->set_epoch(action.epoch);
  executor_sessions_->Send(action.name, std::move(message));
}

void RunLoop::Execute(const broker::SendAbort& action) {
  CloseExchange();
  v1::BrokerMessage message;
  message.mutable_abort()->set_epoch(action.epoch);
  message.mutable_abort()->set_reason(action.why);
  executor_sessions_->Send(action.name, std::move(message));
}

void RunLoop::Execute(const broker::SendStop& action) {
  v1::BrokerMessage message;
  message.mutable_stop()->set_epoch(action.epoch);
  executor_sessions_->Send(action.name, std::move(message));
}

void RunLoop::Execute(const broker::SendCodecLimit& action) {
  v1::BrokerMessage message;
  message.mutable_limit_codecs()->set_epoch(action.epoch);
  message.mutable_limit_codecs()->set_codec(action.codec);
  executor_sessions_->Send(action.name, std::move(message));
}

void RunLoop::Execute(const broker::Reject& action) {
  v1::BrokerMessage message;
  message.mutable_shutdown()->set_failed(true);
  message.mutable_shutdown()->set_reason(action.why);
  executor_sessions_->Send(action.name, std::move(message));
}

// Good checkpoints leave by `keep` when a new one is there: an executor's word, or its disk, must not be all that this one has.
void RunLoop::Execute(const broker::CommitCheckpoint& action) {
  to_commit_.push_back(action);
  if (to_commit_.size() == 1) CheckNextCommit();
}

void RunLoop::CheckNextCommit() {
  const std::vector<checkpoint::FileEntry>& files = to_commit_.front().files;
  if (std::all_of(files.begin(), files.end(), [](const checkpoint::FileEntry& file) { return !file.site.empty(); })) {
    Commit(to_commit_.front(), absl::OkStatus());  // there is nothing here to read
    to_commit_.pop_front();
    if (!to_commit_.empty()) CheckNextCommit();
    return;
  }
  RunInBackground([this, action = to_commit_.front()] {
    Post([this, action, staged = CheckStaged(options_.checkpoint_directory, action)] {
      Commit(action, staged);
      to_commit_.pop_front();
      if (!to_commit_.empty()) CheckNextCommit();
    });
  });
}

void RunLoop::Commit(const broker::CommitCheckpoint& action, const absl::Status& staged) {
  absl::StatusOr<checkpoint::CommittedCheckpoint> committed = absl::UnknownError("");
  if (!staged.ok()) {
    committed = staged;
  } else {
    committed = services::CommitCheckpoint(options_.job, options_.checkpoint_directory, first_sequence_, state_.plan(), action, contents_);
  }
  if (options_.exchange != nullptr) options_.exchange->Settled(action.step);
  if (committed.ok() && !committed->set_aside.empty()) {
    Execute(
        broker::EmitEvent{.reason = "CheckpointMovedAside",
                          .step = action.step,
                          .message = absl::StrCat("the checkpoint that an earlier run made of this step is now ", committed->set_aside)});
  }
  int64_t bytes = 0;
  for (const checkpoint::FileEntry& file : action.files) bytes += file.bytes;
  broker::CheckpointCommitted event{.step = action.step, .status = committed.status()};
  if (committed.ok()) event.path = committed->path;
  if (committed.ok() && options_.on_checkpoint) options_.on_checkpoint(committed->path, action.step);
  // Now: a run that is asked to stop may be over before the event's turn has come, and the checkpoint is there all the same.
  if (committed.ok()) run_metrics_.CheckpointCommitted(action.step, bytes);
  if (committed.ok()) unusable_.erase(committed->path);  // what was there before
  SendRetention(action.step);                            // also of one that failed, or sites fill up with what will never be named
  Post([this, event, action] {
    Dispatch(event);  // reported first, as with steps
    if (event.status.ok()) EmitShardsInSites(action);
    if (event.status.ok()) Recorded(journal_.RecordCheckpoint(event.step, event.path));
  });
}

void RunLoop::SendRetention(int64_t step) {
  absl::StatusOr<RetentionMessages> orders = RetentionMessagesUpTo(state_, options_.checkpoint_directory, step);
  if (!orders.ok()) {  // nothing is removed by hearsay
    const std::string why(orders.status().message());
    if (why == not_tidied_) return;
    not_tidied_ = why;
    Execute(broker::EmitEvent{
        .reason = "SiteCleanupSkipped",
        .step = step,
        .message = absl::StrCat("sites keep the parts of all checkpoints for now: the named checkpoints cannot be listed: ", why)});
    return;
  }
  not_tidied_.clear();
  for (auto& [executor, order] : *orders) executor_sessions_->Send(executor, std::move(order));
}

// As often as RetryReportThrottle has it, whatever they say.
void RunLoop::EmitStoreRetried(const std::string& name, const std::string& sentence) {
  if (!retries_[name].ShouldReport(absl::Now())) return;
  Execute(broker::EmitEvent{.reason = "StoreRetried",
                            .step = state_.last_step(),
                            .message = absl::StrCat(name, ": ", base::PrintableText(base::TruncateUtf8(sentence, kMaxSummaryBytes))),
                            .device = name});
}

void RunLoop::EmitDataOpened(const v1::DataOpened& opened) {
  const std::string summary = base::PrintableText(base::TruncateUtf8(opened.summary(), kMaxSummaryBytes));
  if (summary == data_summary_) return;
  data_summary_ = summary;
  const auto listed = [](const auto& given) {
    std::vector<broker::DataFile> files;
    for (const v1::DataFile& file : given) {
      if (files.size() == kMaxDataFiles) break;
      files.push_back({base::PrintableText(base::TruncateUtf8(file.path(), kMaxPathBytes)), file.bytes()});
    }
    return files;
  };
  const auto emit_changed = [&](const char* field, const std::string& contents, const char* what, const char* consequence) {
    if (contents.empty()) return;
    const workload::InputFingerprints now = {{field, base::PrintableText(base::TruncateUtf8(contents, kMaxSummaryBytes))}};
    if (const std::string changed = workload::ChangedInputs(contents_, now); !changed.empty()) {
      Execute(broker::EmitEvent{
          .reason = "DataChanged", .step = state_.last_step(), .message = absl::StrCat(what, ": ", changed, "; ", consequence)});
    }
    contents_[field] = now.at(field);
  };
  emit_changed(workload::kTrainingDataField, opened.contents(), "the data are not those that the run was trained on so far",
               "its place in their order means other samples now, so that some are seen twice or not at all");
  emit_changed(workload::kValidationDataField, opened.validation_contents(),
               "the validation data are not those that the run was evaluated on so far",
               "validation losses from here on are not comparable with those before");
  Execute(broker::EmitEvent{.reason = "DataOpened",
                            .step = state_.last_step(),
                            .message = summary,
                            .files = listed(opened.files()),
                            .validation_files = listed(opened.validation_files())});
}

// Once in a run: what a user may not expect of checkpoints.
void RunLoop::EmitShardsInSites(const broker::CommitCheckpoint& action) {
  std::set<std::string> sites;
  for (const checkpoint::FileEntry& file : action.files) {
    if (!file.site.empty()) sites.insert(file.site);
  }
  const job::Checkpoint& checkpoint = *options_.job.spec.checkpoint;
  if (sites_reported_ || sites.empty() || checkpoint.replica.has_value() || base::IsUri(checkpoint.path)) return;
  sites_reported_ = true;
  Execute(
      broker::EmitEvent{.reason = "ShardsInSites",
                        .step = action.step,
                        .message = absl::StrFormat("parts of the checkpoints lie in %s and nowhere else: the loss of a site loses them; "
                                                   "spec.checkpoint.replica keeps a whole copy elsewhere, spec.checkpoint.shards: Broker "
                                                   "has all of them sent to the broker",
                                                   absl::StrJoin(sites, ", "))});
}

void RunLoop::Execute(const broker::ReplaceCheckpoint& action) {
  unusable_.insert(action.path);
  const checkpoint::CheckpointFilter eligible{.first_sequence = first_sequence_, .unusable = unusable_};
  RunInBackground([this, eligible] {
    absl::StatusOr<CheckpointFound> found = absl::FailedPreconditionError("this run has no other checkpoints");
    if (options_.find_fallback) found = options_.find_fallback(eligible);
    Post([this, found = std::move(found)] {
      broker::CheckpointReplaced event{.status = found.status()};
      if (found.ok()) {
        for (const std::string& sentence : found->skipped) {
          Execute(broker::EmitEvent{.reason = "CheckpointSkipped", .step = found->step, .message = sentence});
        }
        event.step = found->step;
        event.path = found->path;
        unusable_.erase(found->path);  // it may be a copy in the place of one that was
        if (!base::IsUri(options_.job.spec.checkpoint->path)) run_metrics_.CheckpointFound(found->step);
      }
      if (found.ok() && !Recorded(journal_.RecordCheckpoint(found->step, found->path))) return;
      Dispatch(event);
    });
  });
}

void RunLoop::Execute(const broker::AbandonCheckpoint& action) {
  services::AbandonCheckpoint(options_.checkpoint_directory, action.step);
  if (options_.exchange != nullptr) options_.exchange->Settled(action.step);
  SendRetention(action.step);
}

void RunLoop::Execute(const broker::EmitEvent& action) {
  if (action.reduces_compression && !Recorded(journal_.RecordCodecLimits(state_.codec_limit(), state_.codec_limits()))) return;
  log_.Event(action);
  run_metrics_.Event(action);
  if (options_.events_in_log) base::Log(base::LogLevel::kInfo, absl::StrCat(action.reason, ": ", action.message));
}

void RunLoop::Execute(const broker::PublishPlan& action) {
  CloseExchange();
  // All stages of the plan before have stopped writing: what they left unfinished must not get into a checkpoint of this one.
  if (!options_.checkpoint_directory.empty()) (void)CleanUp(options_.checkpoint_directory, /*executors_are_running=*/false);
  if (!Recorded(
          journal_.RecordEpoch(state_.epoch(), state_.plan(), state_.profiles(), state_.links(), state_.codec_limit(), log_.SentBytes())))
    return;
  log_.Plan(state_.plan(), state_.epoch());
  run_metrics_.Plan(state_.plan());
  base::Log(base::LogLevel::kInfo, absl::StrFormat("plan epoch %d on %s", state_.epoch(), absl::StrJoin(state_.plan().devices, ", ")));
}

void RunLoop::Execute(const broker::PublishStep& action) {
  // Reported first: a broker that dies in between reports it twice in its next life, and not never.
  if (log_.Step(action.epoch, action.record)) {
    Execute(broker::EmitEvent{.reason = "NoTargetCounts",
                              .step = action.record.step,
                              .message =
                                  "no target of the batch counts, so the step has no loss and no gradient, and only momentum and weight "
                                  "decay change the weights; reported once per run"});
  }
  run_metrics_.Step(action.record);
  if (base::IsLogged(base::LogLevel::kDebug)) {
    base::Log(base::LogLevel::kDebug,
              absl::StrFormat("step %d: loss %g, %.3f s", action.record.step, action.record.loss, action.record.step_seconds));
  }
  Recorded(journal_.RecordStep(action.epoch, action.record));
}

void RunLoop::Execute(const broker::StartTimer& action) {
  const auto timeout = std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(action.seconds));
  timer_ = Timer{.id = action.id, .timeout = timeout, .deadline = std::chrono::steady_clock::now() + timeout};
}

void RunLoop::Execute(const broker::Finish& action) {
  if (action.status.ok()) {
    if (Recorded(journal_.RecordEnd())) log_.Summary(state_.representative_links());
  } else {
    log_.Error(action.status, action.refusal_reason);
    if (state_.last_step() > 0) log_.Summary(state_.representative_links());  // of what was done until then
  }
  if (!outcome_.has_value())
    outcome_ = RunOutcome{.status = action.status, .interrupted = action.interrupted, .refusal_reason = action.refusal_reason};
}

}  // namespace fusionllm::services
