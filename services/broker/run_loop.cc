#include "services/broker/run_loop.h"

#include <algorithm>
#include <utility>

#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/executor_reports.h"

namespace fusionllm::services {
namespace {

// Steps between two notes of what a device has sent. What a note misses is missing from the summary only when both broker and epoch are
// lost before the next.
constexpr int64_t kTrafficPeriod = 16;

}  // namespace

RunLoop::RunLoop(RunLoopOptions options, broker::RunState state, Journal journal, RunLog log, PlanFunction plan, RunMetrics& run_metrics)
    : options_(std::move(options)),
      plan_(std::move(plan)),
      state_(std::move(state)),
      journal_(std::move(journal)),
      log_(std::move(log)),
      run_metrics_(run_metrics),
      first_sequence_(options_.first_sequence),
      contents_(options_.contents) {
  if (state_.epoch() > 0) {  // taken over
    run_metrics_.Plan(state_.plan());
    // By the broker that has made these checkpoints.
    const std::string& folder = options_.checkpoint_directory;
    if (!folder.empty()) {
      const auto in_sites = checkpoint::SiteFoldersOf(folder);
      sites_reported_ = in_sites.ok() && !in_sites->empty();
    }
  }
  // Stages of an epoch that outlived its broker may have shards to send before anything else happens.
  if (!state_.plan().devices.empty()) OpenExchange(state_.epoch(), "");
}

RunLoop::~RunLoop() {
  stop_helpers_.request_stop();
  for (Helper& helper : helpers_) helper.thread.join();
}

void RunLoop::Post(Work work) {
  const base::MutexLock lock(mutex_);
  work_.push_back(std::move(work));
  news_.notify_one();
}

void RunLoop::LogEvent(broker::EmitEvent news) {
  {
    const base::MutexLock lock(mutex_);
    pending_events_.push_back(std::move(news));
    if (!over_) {
      work_.push_back([this] { LogPendingEvents(); });
      news_.notify_one();
      return;
    }
  }
  LogPendingEvents();
}

void RunLoop::LogFailure(const absl::Status& status, const std::string& reason) {
  const base::MutexLock log_lock(log_mutex_);
  log_.Error(status, reason);
}

void RunLoop::LogPendingEvents() {
  const base::MutexLock log_lock(log_mutex_);
  std::deque<broker::EmitEvent> pending;
  {
    const base::MutexLock lock(mutex_);
    pending.swap(pending_events_);
  }
  for (const broker::EmitEvent& news : pending) Execute(news);
}

void RunLoop::PostEvent(broker::Event event) {
  Post([this, event = std::move(event)] { Dispatch(event); });
}

bool RunLoop::AcquireQuota(const std::string& name, size_t bytes) {
  base::UniqueLock lock(mutex_);
  quota_released_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Reports& own = reports_of_[name];
    const bool own_fits = own.count == 0 || (own.count < kReportsMaxOfOne && own.bytes + bytes <= kReportBytesMaxOfOne);
    const bool fits = reports_.count < kReportsMax && reports_.bytes + bytes <= kReportBytesMax;
    return over_ || reports_.count == 0 || (fits && own_fits);
  });
  if (over_) return false;
  for (Reports* reports : {&reports_, &reports_of_[name]}) {
    ++reports->count;
    reports->bytes += bytes;
  }
  return true;
}

void RunLoop::ReleaseQuota(const std::string& name, size_t bytes) {
  const base::MutexLock lock(mutex_);
  for (Reports* reports : {&reports_, &reports_of_[name]}) {
    --reports->count;
    reports->bytes -= bytes;
  }
  if (reports_of_[name].count == 0) reports_of_.erase(name);
  quota_released_.notify_all();
}

void RunLoop::OnJoined(const v1::Hello& hello) {
  run_metrics_.Heard(hello.name());
  broker::ExecutorJoined event{.executor = ExecutorOf(hello), .epoch = hello.epoch()};
  if (const auto site = options_.site_of_device.find(hello.name()); site != options_.site_of_device.end())
    event.executor.site = site->second;
  if (const auto memory = options_.memory_of_device.find(hello.name()); memory != options_.memory_of_device.end()) {
    event.executor.memory_bytes = memory->second;
  }
  if (options_.shard_fetcher != nullptr && hello.holds_shards()) options_.shard_fetcher->Joined(hello.name(), event.executor.site);
  if (!AcquireQuota(hello.name(), 0)) return;
  Post([this, name = hello.name(), event = std::move(event)] {
    Dispatch(event);
    ReleaseQuota(name, 0);
  });
}

void RunLoop::OnLeft(const std::string& name, uint64_t incarnation, const std::string& why) {
  run_metrics_.Left(name);
  if (options_.shard_fetcher != nullptr) options_.shard_fetcher->Left(name);
  if (!AcquireQuota(name, 0)) return;
  Post([this, event = broker::ExecutorLeft{.name = name, .incarnation = incarnation, .why = why}] {
    Dispatch(event);
    ReleaseQuota(event.name, 0);
  });
}

void RunLoop::OnTransferProgress() {
  Post([this] { RenewTransferDeadline(); });
}

// Shards on their way, or parameters to a stage that loads, are the news that is waited for.
void RunLoop::RenewTransferDeadline() {
  const broker::Phase phase = state_.phase();
  const bool counts = phase == broker::Phase::kLoading || phase == broker::Phase::kRunning || phase == broker::Phase::kFinishing;
  if (counts && timer_.has_value()) timer_->deadline = std::chrono::steady_clock::now() + timer_->timeout;
}

void RunLoop::OnCheckpointUnusable(uint32_t epoch, const std::string& path, const absl::Status& why) {
  PostEvent(broker::CheckpointUnusable{.epoch = epoch, .path = path, .status = why});
}

void RunLoop::Stop() { PostEvent(broker::StopRequested{}); }

void RunLoop::OnMessage(const std::string& name, uint64_t incarnation, const v1::ExecutorMessage& message) {
  run_metrics_.Heard(name);
  // Also when the loop is over: what is collected then is collected of those who stay.
  if (message.has_leaving() && options_.shard_fetcher != nullptr) options_.shard_fetcher->Leaving(name);
  const size_t bytes = message.ByteSizeLong();
  if (!AcquireQuota(name, bytes)) return;
  switch (message.kind_case()) {
    case v1::ExecutorMessage::kCalibration:
      PostEvent(CalibratedOf(name, message.calibration()));
      break;
    case v1::ExecutorMessage::kLink:
      PostEvent(LinkProbedOf(name, message.link()));
      break;
    case v1::ExecutorMessage::kReady:
      Post([this, epoch = message.ready().epoch(), residuals = message.ready().residuals()] {
        if (epoch != state_.epoch()) return;
        for (const std::string& residual : residuals) residuals_left_.erase(residual);
      });
      PostEvent(StageReadyOf(name, message.ready()));
      break;
    case v1::ExecutorMessage::kStep:
      if (auto event = StepDoneOf(name, message.step(), options_.job.spec.training.steps)) PostEvent(*std::move(event));
      break;
    case v1::ExecutorMessage::kShard:
      Post([this, event = ShardWrittenOf(name, message.shard())] {
        const bool counts = event.status.ok() && state_.IsCurrent(event);
        if (counts && !Recorded(journal_.RecordShard(event))) return;
        if (counts) run_metrics_.ShardWritten(event.step, event.seconds);
        Dispatch(event);
      });
      break;
    case v1::ExecutorMessage::kEnded:
      Post([this, name, ended = message.ended(), event = StageEndedOf(name, message.ended())] {
        if (event.status.ok() && state_.IsCurrent(event) && !Recorded(journal_.RecordStageEnd(event))) return;
        TakeLastTraffic(name, ended);
        Dispatch(event);
      });
      break;
    case v1::ExecutorMessage::kTimes:
      if (IsSane(name, message.times())) Post([this, name, times = message.times()] { TakeTimes(name, times); });
      break;
    case v1::ExecutorMessage::kEvaluation:
      Post([this, name, report = message.evaluation()] { TakeEvaluation(name, report); });
      break;
    case v1::ExecutorMessage::kFetching:
      Post([this, name, fetching = message.fetching()] {
        if (fetching.epoch() != state_.epoch() || !IsInPlan(name)) return;
        if (fetching.retried().empty()) {
          RenewTransferDeadline();
        } else {
          EmitStoreRetried(name, fetching.retried());
        }
      });
      break;
    case v1::ExecutorMessage::kDataOpened:
      Post([this, name, incarnation, opened = message.data_opened()] {
        if (!IsInPlan(name)) return;
        const auto [reported, is_first] = data_reported_by_.try_emplace(name, incarnation);
        if (!is_first && reported->second == incarnation) return;  // each start of an executor opens its data once
        reported->second = incarnation;
        EmitDataOpened(opened);
      });
      break;
    case v1::ExecutorMessage::kLeaving:
    case v1::ExecutorMessage::kHello:
    case v1::ExecutorMessage::kHeartbeat:
    case v1::ExecutorMessage::KIND_NOT_SET:
      break;
  }
  // Behind what was posted above: a broker that dies before it has recorded a report must get it again in its next life.
  Post([this, name, incarnation, sequence = message.sequence(), bytes] {
    executor_sessions_->Acknowledge(name, incarnation, sequence);
    ReleaseQuota(name, bytes);
  });
}

void RunLoop::Dispatch(const broker::Event& event) {
  if (outcome_.has_value()) return;
  for (const broker::Action& action : state_.On(event)) {
    std::visit([this](const auto& a) { Execute(a); }, action);
    if (outcome_.has_value()) break;  // nothing may happen any more that the journal does not tell of
  }
  run_metrics_.State(state_);
}

RunOutcome RunLoop::Run(ExecutorSessions& attendance) {
  executor_sessions_ = &attendance;
  const auto gather_deadline = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                                      std::chrono::duration<double>(options_.join_timeout_seconds));
  bool gathering = options_.join_timeout_seconds > 0;
  Dispatch(broker::Started{});
  while (!outcome_.has_value()) {
    Work work;
    {
      base::UniqueLock lock(mutex_);
      auto deadline = std::chrono::steady_clock::now() + std::chrono::hours(24);
      if (timer_.has_value()) deadline = std::min(deadline, timer_->deadline);
      if (gathering) deadline = std::min(deadline, gather_deadline);
      news_.wait_until(lock, deadline, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !work_.empty(); });
      if (!work_.empty()) {
        work = std::move(work_.front());
        work_.pop_front();
      }
    }
    const auto now = std::chrono::steady_clock::now();
    if (work) {
      work();
    } else if (timer_.has_value() && now >= timer_->deadline) {
      const uint64_t id = timer_->id;
      timer_.reset();
      Dispatch(broker::TimerFired{.id = id});
    }
    if (gathering && now >= gather_deadline) {
      gathering = false;
      Dispatch(broker::JoinTimeout{});
    }
  }
  // A run may be over before the checkpoint that it has finished is looked through.
  for (const broker::CommitCheckpoint& action : to_commit_) Commit(action, CheckStaged(options_.checkpoint_directory, action));
  const base::MutexLock lock(mutex_);
  over_ = true;
  quota_released_.notify_all();
  return *outcome_;
}

bool RunLoop::IsInPlan(const std::string& name) const {
  const std::vector<std::string>& devices = state_.plan().devices;
  return std::find(devices.begin(), devices.end(), name) != devices.end();
}

void RunLoop::TakeEvaluation(const std::string& name, const v1::EvaluationReport& report) {
  if (report.epoch() != state_.epoch() || !RunsReplicaZero(name)) return;
  // One a step, in the order of steps. A later epoch may repeat some.
  if (report.epoch() != evaluated_epoch_) evaluated_step_ = -1;
  if (report.step() <= evaluated_step_ || report.step() > state_.total_steps()) return;
  if (report.has_accuracy() && !(report.accuracy() >= 0 && report.accuracy() <= 1)) return;
  evaluated_epoch_ = report.epoch();
  evaluated_step_ = report.step();
  log_.Evaluation(report);
}

// Evaluations are replica 0's.
bool RunLoop::RunsReplicaZero(const std::string& name) const {
  const broker::RunPlan& plan = state_.plan();
  const auto rank = std::find(plan.devices.begin(), plan.devices.end(), name);
  return rank != plan.devices.end() && plan.ReplicaOf(static_cast<int>(rank - plan.devices.begin())) == 0;
}

void RunLoop::RunInBackground(Work work) {
  std::erase_if(helpers_, [](Helper& helper) {
    const bool done = *helper.done;
    if (done) helper.thread.join();
    return done;
  });
  const auto done = std::make_shared<std::atomic<bool>>(false);
  helpers_.push_back({std::thread([work = std::move(work), done] {
                        work();
                        *done = true;
                      }),
                      done});
}

// A broker that cannot write its journal could not be replaced after a crash without lying about the past: end the run instead.
bool RunLoop::Recorded(const absl::Status& status) {
  if (!status.ok() && !outcome_.has_value()) {
    log_.Error(status, "JournalFailed");
    outcome_ = RunOutcome{.status = status};
  }
  return status.ok();
}

void RunLoop::TakeTimes(const std::string& name, v1::StageTimes times) {
  const std::vector<std::string>& devices = state_.plan().devices;
  if (times.epoch() != state_.epoch() || std::find(devices.begin(), devices.end(), name) == devices.end()) return;
  FilterLinksTo(devices, times);
  if (!times.spans().empty() && !MayTrace(name, times)) times.clear_spans();
  log_.StageTimes(name, times);
  run_metrics_.StageTimes(name, times);
  if (times.step() % kTrafficPeriod == 0 && !RecordTraffic(name, times)) return;
  Dispatch(StageMeasuredOf(name, times));
}

// An executor traces a few steps of an epoch (stage_host_epoch.cc), each with a few spans for a micro-batch. More would only fill the disk.
bool RunLoop::MayTrace(const std::string& name, const v1::StageTimes& times) {
  constexpr int kMaxTraces = 100;
  constexpr int64_t kMaxSpansPerMicroBatch = 8, kOtherSpans = 64, kUnknownMicroBatches = 4096;
  Traces& traces = traces_[name];
  if (traces.epoch != times.epoch()) traces = {.epoch = times.epoch()};
  const int64_t known = state_.plan().plan.micro_batches, micro_batches = known > 0 ? known : kUnknownMicroBatches;
  return ++traces.count <= kMaxTraces && times.spans_size() <= kMaxSpansPerMicroBatch * micro_batches + kOtherSpans;
}

void RunLoop::TakeLastTraffic(const std::string& name, const v1::StageEnded& ended) {
  if (ended.epoch() != state_.epoch()) return;
  for (const auto& [src, link] : LastTrafficOf(state_.plan().devices, name, ended)) {
    log_.Sent(src, link);
    run_metrics_.Sent(src, link);
  }
}

bool RunLoop::RecordTraffic(const std::string& name, const v1::StageTimes& times) {
  std::map<std::string, int64_t> bytes;
  for (const v1::LinkBytes& link : times.links()) bytes[link.peer()] = link.wire_bytes_sent();
  return Recorded(journal_.RecordTraffic(times.epoch(), name, bytes));
}

}  // namespace fusionllm::services
