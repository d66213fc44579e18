#include "services/executor/stage_epoch.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/autodiff/activation_kinds.h"
#include "lib/base/object_uri.h"
#include "lib/base/status_macros.h"
#include "lib/runtime/edge_codec.h"
#include "lib/runtime/evaluation_pass.h"
#include "lib/runtime/expected_messages.h"
#include "lib/runtime/not_finite.h"
#include "lib/schedule/pipeline_schedule.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/executor/assigned_plan.h"
#include "services/executor/machine_lock.h"
#include "services/executor/process_memory.h"
#include "services/executor/stage_group.h"

namespace fusionllm::services {
namespace {

// Micro-batches by which an emulated device learns how long its ops take, and when they are enough.
constexpr int kMinMeasured = 5, kMaxMeasured = 250;
constexpr double kMeasuredSeconds = 0.2;

bool ReadsData(const runtime::StageProgram& program, const workload::Workload& workload) {
  return std::any_of(program.forward.ops.begin(), program.forward.ops.end(),
                     [&](const runtime::ProgramOp& op) { return workload.training.graph.op(op.op).kind == opdag::OpKind::kPlaceholder; });
}

runtime::StageConfig ConfigOf(const workload::Workload& workload, const plan::Plan& plan, int stage, int replica) {
  runtime::StageConfig config = workload::StageConfigOf(workload);
  config.replica = replica;
  config.replicas = plan.replicas;
  config.batch_micro_batches = config.micro_batches;
  config.micro_batches = plan.MicroBatchesOf(replica);
  config.first_micro_batch = plan.FirstMicroBatchOf(replica);
  config.schedule = schedule::Find(plan.schedule).value_or(schedule::k1F1B);  // plans of other names are not read
  config.in_flight =
      std::clamp(plan.ReplicaOf(stage, replica).in_flight, config.schedule.MinInFlight(config.micro_batches), config.micro_batches);
  config.recompute = plan.recompute == "full" ? runtime::Recompute::kFull : runtime::Recompute::kNone;
  return config;
}

runtime::MessagePort& JoinNetwork(const StageContext& setting, const v1::Assign& assign, StageEpoch& epoch) {
  std::vector<v1::PeerAddress> peers(assign.peers().begin(), assign.peers().end());
  peers.insert(peers.end(), assign.replicas().begin(), assign.replicas().end());
  for (const v1::PeerAddress& replica : assign.replicas()) {
    epoch.group_is_near = epoch.group_is_near && (replica.name() == setting.name || replica.same_site());
  }
  for (const v1::PeerAddress& peer : peers) {
    const bool self = peer.name() == setting.name;
    epoch.peers.push_back(peer.name());
    if (!self) setting.data_plane.SetPeer(peer.name(), peer.address(), peer.same_site(), peer.incarnation());
    epoch.stats_before.push_back(self ? transport::LinkStats{} : setting.data_plane.stats(peer.name()));
  }
  return setting.data_plane.Attach(epoch.number, epoch.peers, epoch.inbox,
                                   [loss = epoch.loss](const std::string& peer) { loss->Record(peer); });
}

// The group ends with the inbox, who ever cancels that and whatever it is waiting for.
void MakeGroup(const StageContext& setting, runtime::MessagePort& port, StageEpoch& epoch) {
  const collective::GroupRank group_rank{
      .group = absl::StrCat("stage-", epoch.stage), .epoch = epoch.number, .rank = epoch.replica, .size = epoch.replicas};
  epoch.channel = std::make_unique<ReplicaChannel>(port, *epoch.inbox, epoch.stages, epoch.replica, epoch.replicas);
  epoch.group = std::make_shared<collective::DeferredCommunicator>(group_rank, setting.backend.memory());
  epoch.inbox->WhenCancelled([group = std::weak_ptr(epoch.group)](const absl::Status& why) {
    if (const auto alive = group.lock(); alive != nullptr) alive->Abort(why);
  });
}

void AddBackoff(const opdag::Graph& graph, const runtime::CodecBackoff& backoff, v1::LinkBytes& link) {
  v1::CodecBackoff& out = *link.add_backoffs();
  out.set_value(graph.value(backoff.of).name);
  out.set_gradient(backoff.gradient);
  out.set_kind(std::string(opdag::Name(backoff.kind)));
  out.set_from(compression::ToString(backoff.from));
  out.set_to(compression::ToString(backoff.to));
  out.set_relative_error(backoff.relative_error);
  out.set_cosine(backoff.cosine);
  out.set_limit(backoff.limit);
  out.set_remaining_error(backoff.remaining_error);
}

// What went over the links to all other stages and replicas since the epoch began.
void AddLinks(const StageEpoch& epoch, const DataPlane& data_plane, google::protobuf::RepeatedPtrField<v1::LinkBytes>& links) {
  const std::map<int, runtime::LinkCompression> compression = epoch.executor->compression();
  for (size_t i = 0; i < epoch.peers.size(); ++i) {
    if (static_cast<int>(i) == epoch.stage || static_cast<int>(i) == epoch.stages + epoch.replica) continue;  // itself
    const transport::LinkStats& before = epoch.stats_before[i];
    const transport::LinkStats stats = data_plane.stats(epoch.peers[i]);
    v1::LinkBytes& link = *links.Add();
    link.set_peer(epoch.peers[i]);
    link.set_wire_bytes_sent(static_cast<int64_t>(stats.wire_bytes_sent - before.wire_bytes_sent));
    for (size_t p = 0; p < transport::kPriorityCount; ++p) {
      link.add_wire_bytes_sent_by_class(static_cast<int64_t>(stats.wire_bytes_sent_by_priority[p] - before.wire_bytes_sent_by_priority[p]));
      link.add_wire_bytes_received_by_class(
          static_cast<int64_t>(stats.wire_bytes_received_by_priority[p] - before.wire_bytes_received_by_priority[p]));
    }
    link.set_evaluation_bytes_sent(data_plane.evaluation_bytes(epoch.peers[i]));
    link.set_bandwidth_bytes_per_second(stats.bandwidth_bytes_per_s);
    link.set_bandwidth_samples(static_cast<int64_t>(stats.bandwidth_samples));
    link.set_rtt_seconds(stats.rtt_s);
    if (const auto found = compression.find(static_cast<int>(i)); found != compression.end()) {
      link.set_ratio(found->second.ratio);
      link.set_compared_messages(found->second.compared_messages);
      link.set_relative_error(found->second.relative_error);
      link.set_cosine(found->second.cosine);
      link.set_residual_norm(found->second.residual_norm);
      for (const runtime::CodecBackoff& backoff : found->second.backoffs) AddBackoff(*epoch.graph, backoff, link);
    }
  }
}

}  // namespace

StageEpoch::StageEpoch(const v1::Assign& assign)
    : number(assign.epoch()),
      stage(assign.stage()),
      stages(assign.peers_size()),
      replica(assign.replica()),
      replicas(std::max(1, assign.replicas_size())),
      first_step(assign.first_step()) {}

StageEpoch::~StageEpoch() {
  executor.reset();
  if (group != nullptr) group->Leave();  // on this thread, for others may still be about to end it
}

absl::Status EmptySource::Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) {
  return absl::InternalError(absl::StrCat("placeholder '", placeholder.name, "' on a stage without data"));
}

absl::Status TimedSource::Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) {
  const int64_t begin_ns = runtime::MonotonicNanoseconds();
  const absl::Status status = source_->Fill(evaluation, step, micro_batch, placeholder, out);
  if (!evaluation) seconds_ += static_cast<double>(runtime::MonotonicNanoseconds() - begin_ns) * 1e-9;
  return status;
}

absl::Status BuildStage(const StageContext& setting, const v1::Assign& assign, runtime::StageCallbacks callbacks, StageEpoch& epoch) {
  const workload::Workload& workload = setting.workload;
  FUSIONLLM_ASSIGN_OR_RETURN(AssignedPlan assigned, ReadAssignedPlan(assign, workload));
  if (assigned.codec_limit.has_value()) epoch.codec_limit->Set(*assigned.codec_limit);
  assigned.guard.limit = epoch.codec_limit;
  epoch.graph = &workload.training.graph;
  epoch.plan = std::move(assigned.plan);
  runtime::StageConfig config = ConfigOf(workload, epoch.plan, epoch.stage, epoch.replica);
  config.tied_codecs = std::move(assigned.tied_codecs);
  config.codec_limit = epoch.codec_limit;
  const std::vector<int> placement = autodiff::AssignStages(workload.training, assigned.stage_of_op);
  FUSIONLLM_ASSIGN_OR_RETURN(const runtime::StageProgram program,
                             runtime::BuildStageProgram(workload.training, placement, epoch.stage, epoch.stages, config.recompute));
  epoch.inbox->Expect(
      std::make_unique<runtime::ExpectedMessages>(workload.training, placement, program, config.micro_batches, epoch.replicas,
                                                  runtime::EvaluationWindow(workload.training, placement, epoch.stages)),
      epoch.first_step);
  runtime::MessagePort& port = JoinNetwork(setting, assign, epoch);
  if (epoch.replicas > 1) MakeGroup(setting, port, epoch);
  ResetPeak();
  runtime::BatchSource* source = &epoch.no_data;
  if (ReadsData(program, workload)) {
    if (setting.source == nullptr) {
      FUSIONLLM_ASSIGN_OR_RETURN(setting.source, setting.open_data());
    }
    epoch.data.Wrap(*setting.source);
    source = &epoch.data;
  }
  epoch.throttle = std::make_unique<runtime::DeviceThrottle>(setting.compute_scale, setting.emulate);
  std::vector<opdag::ActivationKind> kinds = assigned.guard.kinds;
  runtime::EdgeCodecPtr codecs =
      runtime::CompressedEdgeCodec(epoch.stage, std::move(assigned.codecs), runtime::kComparisonPeriod,
                                   runtime::TensorCodecFor(setting.backend), std::move(kinds), std::move(assigned.guard));
  FUSIONLLM_ASSIGN_OR_RETURN(epoch.executor, runtime::StageExecutor::Create(workload.training, placement, epoch.stage, epoch.stages, config,
                                                                            std::move(codecs), setting.backend, port, *epoch.inbox, *source,
                                                                            *epoch.throttle, std::move(callbacks), epoch.group.get()));
  FUSIONLLM_RETURN_IF_ERROR(epoch.executor->store().InitializeAll(static_cast<uint64_t>(workload.job.spec.model.init.seed)));
  if (setting.emulate) {
    const MachineLock alone(setting.measure_lock);
    const runtime::MeasureOptions measure{.min_micro_batches = kMinMeasured,
                                          .max_micro_batches = kMaxMeasured,
                                          .seconds = kMeasuredSeconds,
                                          .quantile = runtime::kUncontendedQuantile,
                                          .thread_cpu = setting.threads == 1};
    FUSIONLLM_RETURN_IF_ERROR(epoch.executor->MeasureOps(measure).status());
  }
  return absl::OkStatus();
}

absl::Status JoinReplicaGroup(const StageContext& setting, StageEpoch& epoch) {
  if (epoch.group == nullptr) return absl::OkStatus();
  const plan::Stage& stage = epoch.plan.stages[static_cast<size_t>(epoch.stage)];
  const StageChain chain{.replicas = stage.chain, .chunk_bytes = stage.chunk_bytes};
  return epoch.group->Join([&](std::stop_token stop) {
    return JoinGroup(epoch.group->group_rank(), setting.backend, *epoch.channel, chain, epoch.group_is_near, std::move(stop));
  });
}

absl::Status RestoreEpoch(const StageContext& setting, const v1::Assign& assign, StageEpoch& epoch) {
  const workload::Workload& workload = setting.workload;
  if (!assign.restore_from().empty()) {
    const std::vector<std::string>& own = epoch.executor->residual_names();
    std::copy_if(assign.residuals().begin(), assign.residuals().end(), std::back_inserter(epoch.residuals),
                 [&](const std::string& name) { return std::find(own.begin(), own.end(), name) != own.end(); });
    FUSIONLLM_ASSIGN_OR_RETURN(
        const CheckpointPosition position,
        setting.restorer.Restore(epoch.number, assign.restore_from(), assign.site_files(), *epoch.executor, epoch.residuals));
    if (setting.source != nullptr) setting.source->StartAt(position.step + 1, {.samples_consumed = position.samples_consumed});
    return absl::OkStatus();
  }
  if (const std::optional<std::string>& from = workload.job.spec.model.init.from; from.has_value()) {
    const bool whole = from->front() == '/' || base::IsUri(*from);
    const std::string path = whole ? *from : absl::StrCat(workload.base_directory, "/", *from);
    FUSIONLLM_RETURN_IF_ERROR(setting.restorer.Initialize(epoch.number, path, workload, epoch.executor->store()));
  }
  if (setting.source != nullptr) setting.source->StartAt(1, {});
  return absl::OkStatus();
}

v1::ExecutorMessage StepReportOf(const StageEpoch& epoch) {
  v1::ExecutorMessage message;
  v1::StepReport& report = *message.mutable_step();
  report.set_epoch(epoch.number);
  report.set_step(epoch.result.step);
  report.set_loss(epoch.result.loss);
  report.set_counted(epoch.result.counted);
  report.set_gradient_norm(epoch.result.gradient_norm);
  report.set_learning_rate(epoch.result.learning_rate);
  report.set_step_seconds(static_cast<double>(runtime::MonotonicNanoseconds() - epoch.step_begin_ns) * 1e-9);
  return message;
}

v1::ExecutorMessage TimesReportOf(const StageEpoch& epoch, const runtime::StageStepTimes& times, int64_t memory_at_join,
                                  const DataPlane& data_plane) {
  v1::ExecutorMessage message;
  v1::StageTimes& report = *message.mutable_times();
  report.set_epoch(epoch.number);
  report.set_step(times.step);
  report.set_busy_seconds(times.busy_seconds);
  report.set_forward_seconds(times.forward_seconds);
  report.set_backward_seconds(times.backward_seconds);
  report.set_wait_seconds(times.wait_seconds);
  report.set_lateness_seconds(times.lateness_seconds);
  report.set_epoch_steps(epoch.steps);
  report.set_epoch_busy_seconds(epoch.busy_seconds);
  report.set_epoch_lateness_seconds(epoch.lateness_seconds);
  report.set_peak_memory_bytes(std::max<int64_t>(0, PeakResidentBytes() - memory_at_join));
  for (const runtime::TraceSpan& span : epoch.spans) {
    v1::Span& out = *report.add_spans();
    out.set_kind(static_cast<int>(span.kind));
    out.set_micro_batch(span.micro_batch);
    out.set_begin_ns(span.begin_ns);
    out.set_end_ns(span.end_ns);
  }
  AddLinks(epoch, data_plane, *report.mutable_links());
  return message;
}

v1::ExecutorMessage EndReportOf(const StageEpoch& epoch, int64_t last_step, const absl::Status& status, const DataPlane& data_plane) {
  v1::ExecutorMessage message;
  v1::StageEnded& ended = *message.mutable_ended();
  ended.set_epoch(epoch.number);
  ended.set_stage(epoch.stage);
  ended.set_last_step(last_step);
  ended.set_code(static_cast<int>(status.code()));
  ended.set_message(std::string(status.message()));
  ended.set_not_finite(runtime::IsNotFinite(status));
  ended.set_lost_peer(epoch.loss->peer());
  AddLinks(epoch, data_plane, *ended.mutable_links());
  return message;
}

}  // namespace fusionllm::services
