// Feeds the run's state machine with what happens and carries out what it decides: the impure half of the broker.
//
// One thread runs Run(); every other thread posts. Blocking work (the scheduler's answer) happens on helper threads that post back.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/broker/run_state.h"
#include "lib/job/fusion_job.h"
#include "lib/objectstore/retry_report_throttle.h"
#include "lib/opdag/graph.h"
#include "services/broker/checkpoint_exchange.h"
#include "services/broker/checkpoints.h"
#include "services/broker/executor_sessions.h"
#include "services/broker/journal.h"
#include "services/broker/run_log.h"
#include "services/broker/run_metrics.h"
#include "services/broker/shard_fetcher.h"
#include "services/broker/stage_tensors.h"

namespace fusionllm::services {

// Asks the scheduler; blocks, until `stop` is requested at the latest. `profiles_document` as in scheduler.proto. The answer is a plan
// document (a plan or a refusal).
using PlanFunction =
    std::function<absl::StatusOr<std::string>(const std::string& profiles_document, const broker::RequestPlan& ask, std::stop_token stop)>;

// The newest checkpoint that is eligible; an empty path: none. Blocks, for as long as copies take to be fetched.
using FindFallbackFunction = std::function<absl::StatusOr<CheckpointFound>(const checkpoint::CheckpointFilter& eligible)>;

struct RunLoopOptions {
  job::FusionJob job;
  std::string checkpoint_directory;  // empty: the job keeps none
  int64_t first_sequence = 0;        // of the checkpoints there that this run may remove; see checkpoint::Manifest
  uint64_t job_hash = 0;
  std::map<std::string, int> order_of_device;         // as declared, which is the order the baselines plan in
  std::map<std::string, std::string> site_of_device;  // by the topology; other executors say theirs themselves
  std::map<std::string, int64_t> memory_of_device;    // by the topology, in bytes; that of others, as they say
  std::string profiles_file;                          // where what was measured is kept for other runs; empty: nowhere
  std::set<std::string> data_devices;                 // have the training data; empty: all have it
  double join_timeout_seconds = 0;                    // > 0: plan with those who have joined by then
  // Called for each whole checkpoint, on the loop's thread; may be empty.
  std::function<void(const std::string& folder, int64_t step)> on_checkpoint;
  // What the job's files hold: those that the broker sees now, and the data of the run that made the checkpoint it goes on from.
  workload::InputFingerprints contents;
  bool events_in_log = true;               // as well as in the record
  CheckpointExchange* exchange = nullptr;  // gets which plan epoch it serves; null: none
  ShardFetcher* shard_fetcher = nullptr;   // gets which executors hold shards of their sites; null: none
  FindFallbackFunction find_fallback;      // set where checkpoints may have files in sites
  // Of the job, which says what its stages may have of a checkpoint; where it cannot be built no one is given anything.
  absl::StatusOr<opdag::Graph> graph = absl::UnknownError("no graph was built");
};

struct RunOutcome {
  absl::Status status;
  bool interrupted = false;
  std::string refusal_reason;
};

class RunLoop {
 public:
  // `run_metrics` must outlive the loop.
  RunLoop(RunLoopOptions options, broker::RunState state, Journal journal, RunLog log, PlanFunction plan, RunMetrics& run_metrics);
  ~RunLoop();

  // Reports that may wait for the loop at a time.
  static constexpr size_t kReportsMax = 4096;
  static constexpr size_t kReportsMaxOfOne = 1024;  // executor: the others are heard whatever it says
  static constexpr size_t kReportBytesMax = 256 << 20;
  static constexpr size_t kReportBytesMaxOfOne = 64 << 20;  // or one report, as large as a message can be

  // From attendance threads. Block while the loop has so much to do that there is no room for another; what comes when the run has ended is
  // dropped.
  void OnJoined(const v1::Hello& hello);
  void OnMessage(const std::string& name, uint64_t incarnation, const v1::ExecutorMessage& message);
  void OnLeft(const std::string& name, uint64_t incarnation, const std::string& why);
  void OnTransferProgress();                                                                    // from threads of the exchange
  void OnCheckpointUnusable(uint32_t epoch, const std::string& path, const absl::Status& why);  // likewise
  void Stop();                                                                                  // from a signal thread

  // An event that somebody else saw, from any thread: logged by the loop, or at once when that has ended. Does not block for long.
  void LogEvent(broker::EmitEvent news);
  // What the loop was given and had no time to log. For the thread of Run, after it.
  void LogPendingEvents();
  // Likewise: a failure behind the end of the run.
  void LogFailure(const absl::Status& status, const std::string& reason);

  // Runs `work` on the loop's thread, behind what is there already; never when the loop has ended.
  void Post(std::function<void()> work);

  // Returns when the run has ended. `attendance` must outlive the call.
  RunOutcome Run(ExecutorSessions& attendance);

 private:
  using Work = std::function<void()>;
  void PostEvent(broker::Event event);
  // Room for a report of so many bytes until it is given back; blocks. False: the run has ended. Never on the loop's thread.
  bool AcquireQuota(const std::string& name, size_t bytes);
  void ReleaseQuota(const std::string& name, size_t bytes);
  void Dispatch(const broker::Event& event);

  void Execute(const broker::StartCalibration& action);
  void Execute(const broker::StartLinkProbe& action);
  void Execute(const broker::RequestPlan& action);
  void Execute(const broker::SendAssign& action);
  void Execute(const broker::SendStart& action);
  void Execute(const broker::SendAbort& action);
  void Execute(const broker::Reject& action);
  void Execute(const broker::SendStop& action);
  void Execute(const broker::SendCodecLimit& action);
  void Execute(const broker::CommitCheckpoint& action);
  void Execute(const broker::AbandonCheckpoint& action);
  void Execute(const broker::ReplaceCheckpoint& action);
  void Execute(const broker::EmitEvent& action);
  void Execute(const broker::PublishPlan& action);
  void Execute(const broker::PublishStep& action);
  void Execute(const broker::StartTimer& action);
  void Execute(const broker::Finish& action);
  // Tells executors that hold shards which of those up to this step are in checkpoints.
  void SendRetention(int64_t step);
  void EmitDataOpened(const v1::DataOpened& opened);
  void EmitStoreRetried(const std::string& name, const std::string& sentence);
  void RenewTransferDeadline();
  void TakeEvaluation(const std::string& name, const v1::EvaluationReport& report);
  bool IsInPlan(const std::string& name) const;
  bool RunsReplicaZero(const std::string& name) const;
  void CheckNextCommit();
  void Commit(const broker::CommitCheckpoint& action, const absl::Status& staged);
  void EmitShardsInSites(const broker::CommitCheckpoint& action);
  // `work` on a thread of its own, which posts what it finds.
  void RunInBackground(Work work);
  void OpenExchange(uint32_t epoch, const std::string& restore_from);
  StageTensors TensorsOfStages() const;
  void CloseExchange();
  std::vector<std::string> InOrder(std::vector<std::string> devices, const std::string& first = "") const;
  void SaveProfiles() const;
  void FindResiduals(const std::string& checkpoint);
  void EmitResidualsDropped();
  struct Traces {
    int64_t epoch = 0;
    int count = 0;
  };
  void TakeTimes(const std::string& name, v1::StageTimes times);
  bool MayTrace(const std::string& name, const v1::StageTimes& times);
  // Of a stage that has ended: what was sent after its last step, and what of the others' had not been sent yet when they reported.
  void TakeLastTraffic(const std::string& name, const v1::StageEnded& ended);
  bool RecordTraffic(const std::string& name, const v1::StageTimes& times);
  bool Recorded(const absl::Status& status);

  const RunLoopOptions options_;
  const PlanFunction plan_;
  broker::RunState state_;
  Journal journal_;
  RunLog log_;
  RunMetrics& run_metrics_;
  ExecutorSessions* executor_sessions_ = nullptr;

  base::Mutex mutex_;
  std::condition_variable news_;
  std::deque<Work> work_ ABSL_GUARDED_BY(mutex_);
  std::condition_variable quota_released_;
  struct Reports {
    size_t count = 0, bytes = 0;
  };
  Reports reports_ ABSL_GUARDED_BY(mutex_);                            // that wait, or are being worked on
  std::map<std::string, Reports> reports_of_ ABSL_GUARDED_BY(mutex_);  // by executor
  bool over_ ABSL_GUARDED_BY(mutex_) = false;                          // no executor works any more
  std::deque<broker::EmitEvent> pending_events_ ABSL_GUARDED_BY(mutex_);
  base::Mutex log_mutex_;  // of log_, when the loop has ended
  // Below: the loop's thread only.
  struct Timer {
    uint64_t id = 0;
    std::chrono::steady_clock::duration timeout;
    std::chrono::steady_clock::time_point deadline;
  };
  std::optional<Timer> timer_;
  uint32_t exchanging_ = 0;  // the plan epoch that the exchange serves
  uint32_t evaluated_epoch_ = 0;
  int64_t evaluated_step_ = -1;  // the last one in that epoch whose evaluation was taken
  std::optional<RunOutcome> outcome_;
  std::deque<broker::CommitCheckpoint> to_commit_;  // in order; the files of the first are being read
  int64_t first_sequence_ = 0;                      // of checkpoints that are of this run
  std::set<std::string> unusable_;                  // checkpoints whose files in sites could not be had
  bool sites_reported_ = false;
  workload::InputFingerprints contents_;                             // for manifests
  std::string data_summary_;                                         // as last reported; several executors may read the same
  std::map<std::string, uint64_t> data_reported_by_;                 // by device in plans: the start of it that has reported its data
  std::map<std::string, Traces> traces_;                             // by device in plans: those of the newest epoch that it has sent
  std::string not_tidied_;                                           // why, as reported; empty: sites know what to keep
  std::map<std::string, objectstore::RetryReportThrottle> retries_;  // of devices in plans, whatever they say how often
  std::set<std::string> residuals_left_;  // of the checkpoint that is being restored: those that no stage has taken up yet
  std::stop_source stop_helpers_;         // their answers are not waited for any more
  struct Helper {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> done;
  };
  std::vector<Helper> helpers_;  // asking the scheduler, looking for a checkpoint
};

}  // namespace fusionllm::services
