#include "services/broker/run_loop.h"

#include <algorithm>
#include <utility>

#include "services/broker/executor_reports.h"

namespace fusionllm::services {
namespace {

// Steps between two notes of what a device has sent. What a note misses is missing from the summary only when both broker and epoch are
// lost before the next.
constexpr int64_t kTrafficPeriod = 16;

}  // namespace

RunLoop::RunLoop(RunLoopOptions options, broker::RunState state, Journal journal, RunLog log, PlanFunction plan, RunProbe& probe)
    : options_(std::move(options)),
      plan_(std::move(plan)),
      state_(std::move(state)),
      journal_(std::move(journal)),
      log_(std::move(log)),
      probe_(probe),
      first_sequence_(options_.first_sequence),
      contents_(options_.contents) {
  if (state_.epoch() > 0) {  // taken over
    probe_.Plan(state_.plan());
    // By the broker that has made these checkpoints.
    const std::string& folder = options_.checkpoint_directory;
    if (!folder.empty()) {
      const auto in_sites = checkpoint::SiteFoldersOf(folder);
      told_of_sites_ = in_sites.ok() && !in_sites->empty();
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
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  news_.notify_one();
}

void RunLoop::Tell(broker::Announce news) {
  {
    const std::lock_guard lock(mutex_);
    told_.push_back(std::move(news));
    if (!over_) {
      work_.push_back([this] { TellWaiting(); });
      news_.notify_one();
      return;
    }
  }
  TellWaiting();
}

void RunLoop::TellFailure(const absl::Status& status, const std::string& reason) {
  const std::lock_guard telling(telling_);
  log_.Error(status, reason);
}

void RunLoop::TellWaiting() {
  const std::lock_guard telling(telling_);
  std::deque<broker::Announce> told;
  {
    const std::lock_guard lock(mutex_);
    told.swap(told_);
  }
  for (const broker::Announce& news : told) Carry(news);
}

void RunLoop::PostEvent(broker::Event event) {
  Post([this, event = std::move(event)] { Feed(event); });
}

bool RunLoop::TakeRoom(const std::string& name, size_t bytes) {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] {
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

void RunLoop::GiveRoomBack(const std::string& name, size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (Reports* reports : {&reports_, &reports_of_[name]}) {
    --reports->count;
    reports->bytes -= bytes;
  }
  if (reports_of_[name].count == 0) reports_of_.erase(name);
  room_.notify_all();
}

void RunLoop::OnJoined(const v1::Hello& hello) {
  probe_.Heard(hello.name());
  broker::Joined event{.member = MemberOf(hello), .epoch = hello.epoch()};
  if (const auto site = options_.site_of_device.find(hello.name()); site != options_.site_of_device.end()) event.member.site = site->second;
  if (const auto memory = options_.memory_of_device.find(hello.name()); memory != options_.memory_of_device.end()) {
    event.member.memory_bytes = memory->second;
  }
  if (options_.recall != nullptr && hello.holds_shards()) options_.recall->Joined(hello.name(), event.member.site);
  if (!TakeRoom(hello.name(), 0)) return;
  Post([this, name = hello.name(), event = std::move(event)] {
    Feed(event);
    GiveRoomBack(name, 0);
  });
}

void RunLoop::OnLeft(const std::string& name, uint64_t incarnation, const std::string& why) {
  probe_.Left(name);
  if (options_.recall != nullptr) options_.recall->Left(name);
  if (!TakeRoom(name, 0)) return;
  Post([this, event = broker::Left{.name = name, .incarnation = incarnation, .why = why}] {
    Feed(event);
    GiveRoomBack(event.name, 0);
  });
}

void RunLoop::OnTransferProgress() {
  Post([this] { RenewTransferDeadline(); });
}

// Shards on their way, or parameters to a stage that loads, are the news that is waited for.
void RunLoop::RenewTransferDeadline() {
  const broker::Phase phase = state_.phase();
  const bool counts = phase == broker::Phase::kLoading || phase == broker::Phase::kRunning || phase == broker::Phase::kFinishing;
  if (counts && timer_.has_value()) timer_->deadline = std::chrono::steady_clock::now() + timer_->patience;
}

void RunLoop::OnCheckpointUnusable(uint32_t epoch, const std::string& path, const absl::Status& why) {
  PostEvent(broker::CheckpointUnusable{.epoch = epoch, .path = path, .status = why});
}

void RunLoop::Stop() { PostEvent(broker::StopAsked{}); }

void RunLoop::OnMessage(const std::string& name, uint64_t incarnation, const v1::ExecutorMessage& message) {
  probe_.Heard(name);
  // Also when the loop is over: what is collected then is collected of those who stay.
  if (message.has_leaving() && options_.recall != nullptr) options_.recall->Leaving(name);
  const size_t bytes = message.ByteSizeLong();
  if (!TakeRoom(name, bytes)) return;
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
      PostEvent(ReadyOf(name, message.ready()));
      break;
    case v1::ExecutorMessage::kStep:
      if (auto event = StepDoneOf(name, message.step(), options_.job.spec.training.steps)) PostEvent(*std::move(event));
      break;
    case v1::ExecutorMessage::kShard:
      Post([this, event = ShardWrittenOf(name, message.shard())] {
        const bool counts = event.status.ok() && state_.Believes(event);
        if (counts && !Recorded(journal_.RecordShard(event))) return;
        if (counts) probe_.ShardWritten(event.step, event.seconds);
        Feed(event);
      });
      break;
    case v1::ExecutorMessage::kEnded:
      Post([this, name, ended = message.ended(), event = EndedOf(name, message.ended())] {
        if (event.status.ok() && state_.Believes(event) && !Recorded(journal_.RecordStageEnd(event))) return;
        TakeLastTraffic(name, ended);
        Feed(event);
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
          TellOfRetry(name, fetching.retried());
        }
      });
      break;
    case v1::ExecutorMessage::kDataOpened:
      Post([this, name, incarnation, opened = message.data_opened()] {
        if (!IsInPlan(name)) return;
        const auto [told, is_first] = data_told_by_.try_emplace(name, incarnation);
        if (!is_first && told->second == incarnation) return;  // each start of an executor opens its data once
        told->second = incarnation;
        TellOfData(opened);
      });
      break;
    case v1::ExecutorMessage::kLeaving:
    case v1::ExecutorMessage::kHello:
    case v1::ExecutorMessage::kHeartbeat:
    case v1::ExecutorMessage::KIND_NOT_SET:
      break;
  }
  // Behind what was posted above: a broker that dies before it has recorded a report must be told it again in its next life.
  Post([this, name, incarnation, sequence = message.sequence(), bytes] {
    attendance_->Acknowledge(name, incarnation, sequence);
    GiveRoomBack(name, bytes);
  });
}

void RunLoop::Feed(const broker::Event& event) {
  if (outcome_.has_value()) return;
  for (const broker::Action& action : state_.On(event)) {
    std::visit([this](const auto& a) { Carry(a); }, action);
    if (outcome_.has_value()) break;  // nothing may happen any more that the journal does not tell of
  }
  probe_.State(state_);
}

RunOutcome RunLoop::Run(Attendance& attendance) {
  attendance_ = &attendance;
  const auto gather_deadline = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                                      std::chrono::duration<double>(options_.gather_seconds));
  bool gathering = options_.gather_seconds > 0;
  Feed(broker::Begun{});
  while (!outcome_.has_value()) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      auto deadline = std::chrono::steady_clock::now() + std::chrono::hours(24);
      if (timer_.has_value()) deadline = std::min(deadline, timer_->deadline);
      if (gathering) deadline = std::min(deadline, gather_deadline);
      news_.wait_until(lock, deadline, [this] { return !work_.empty(); });
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
      Feed(broker::Overdue{.id = id});
    }
    if (gathering && now >= gather_deadline) {
      gathering = false;
      Feed(broker::GatheringOver{});
    }
  }
  // A run may be over before the checkpoint that it has finished is looked through.
  for (const broker::CommitCheckpoint& action : to_commit_) Commit(action, CheckStaged(options_.checkpoint_directory, action));
  const std::lock_guard lock(mutex_);
  over_ = true;
  room_.notify_all();
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
  const broker::PlanSummary& plan = state_.plan();
  const auto seat = std::find(plan.devices.begin(), plan.devices.end(), name);
  return seat != plan.devices.end() && plan.ReplicaOf(static_cast<int>(seat - plan.devices.begin())) == 0;
}

void RunLoop::Help(Work work) {
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
  KeepLinksTo(devices, times);
  if (!times.spans().empty() && !MayTrace(name, times)) times.clear_spans();
  log_.StageTimes(name, times);
  probe_.StageTimes(name, times);
  if (times.step() % kTrafficPeriod == 0 && !RecordTraffic(name, times)) return;
  Feed(StageMeasuredOf(name, times));
}

// An executor traces a few steps of an epoch (stage_host_epoch.cc), each with a few spans for a micro-batch. More would only fill the disk.
bool RunLoop::MayTrace(const std::string& name, const v1::StageTimes& times) {
  constexpr int kMaxTraces = 100;
  constexpr int64_t kMaxSpansPerMicroBatch = 8, kOtherSpans = 64, kUnknownMicroBatches = 4096;
  Traces& traces = traces_[name];
  if (traces.epoch != times.epoch()) traces = {.epoch = times.epoch()};
  const int64_t known = state_.plan().micro_batches, micro_batches = known > 0 ? known : kUnknownMicroBatches;
  return ++traces.count <= kMaxTraces && times.spans_size() <= kMaxSpansPerMicroBatch * micro_batches + kOtherSpans;
}

void RunLoop::TakeLastTraffic(const std::string& name, const v1::StageEnded& ended) {
  if (ended.epoch() != state_.epoch()) return;
  for (const auto& [src, link] : LastTrafficOf(state_.plan().devices, name, ended)) {
    log_.Sent(src, link);
    probe_.Sent(src, link);
  }
}

bool RunLoop::RecordTraffic(const std::string& name, const v1::StageTimes& times) {
  std::map<std::string, int64_t> bytes;
  for (const v1::LinkBytes& link : times.links()) bytes[link.peer()] = link.wire_bytes_sent();
  return Recorded(journal_.RecordTraffic(times.epoch(), name, bytes));
}

}  // namespace fusionllm::services
