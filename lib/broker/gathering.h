// For whom a run waits while no stages run: until enough executors have joined to measure them, for lost ones without which there is no
// plan, and for one with the training data after all of those were lost under a plan.
//
// Events in, verdicts out; its own orders are timers and what is reported of the wait. Not thread-safe.
//
// What is waited for:
//   state               event                                     next                verdict, action
//   kExecutors          executors changed, not enough             kExecutors          kWait; the timer of AwaitExecutors
//   kExecutors          executors changed, enough; Close          kExecutors          kMeasure
//   kExecutors          timer: others began to measure without    kExecutors          lost executors are given up; as "executors changed"
//   kExecutors          timer, otherwise                          kExecutors          kFail, or kWait for all that were lost (AwaitLost)
//   kExecutors          timer of the notice                       kExecutors          kWait; WaitingForData is reported
//   kExecutors          AwaitLost: lost ones may be back          kExecutors          true; lost_reason() is set until enough are there
//   kExecutors          AwaitData(then), none with the data       kData..             kWait, or kFail where nothing restarts them
//   kDataThenPlan       executors changed, one has the data       kExecutors          kMeasure
//   kDataThenRecovery   executors changed, one has the data       kExecutors          kRecover
//   kData..             executors changed, none has the data      kData..             kWait; the timer runs on
//   kData..             timer                                     kData..             kFail
//
// Enough: all expected executors that have not been given up, the number that an open run wants, or, after Close, one with the data.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "lib/broker/action_queue.h"
#include "lib/broker/executor_set.h"
#include "lib/broker/min_model_memory.h"
#include "lib/broker/run_options.h"

namespace fusionllm::broker {

// How far the run has come.
struct RunPosition {
  bool planned = false;  // there is a plan, in force or as the last one that was
  int64_t last_step = 0;
  int64_t checkpoint_step = 0;
  std::string checkpoint_path;  // empty: none
};

class Gathering {
 public:
  enum class State : uint8_t { kExecutors, kDataThenPlan, kDataThenRecovery };
  struct Verdict {
    enum class Kind : uint8_t { kWait, kMeasure, kRecover, kFail };
    Kind kind = Kind::kWait;
    absl::Status failure;  // kFail
  };

  explicit Gathering(const RunOptions& options);

  State state() const { return state_; }
  bool awaits_data() const { return state_ != State::kExecutors; }
  const std::string& lost_reason() const { return lost_reason_; }  // why no plan is possible without lost executors; empty: one may be

  void Begin() { begun_ = true; }   // to measure: enough have joined
  void Close() { closed_ = true; }  // no more are waited for, as the shell says; also where none has come yet

  bool IsComplete(const ExecutorSet& executors, bool planned) const;
  // Why none of those who are here can have the model, in a sentence; empty: nothing is known against it, or others may come.
  std::string InsufficientMemoryReason(const ExecutorSet& executors, bool planned) const;

  Verdict OnExecutorsChanged(const ExecutorSet& executors, const RunPosition& at, ActionQueue& queue);
  Verdict OnTimer(uint64_t id, ExecutorSet& executors, const RunPosition& at, ActionQueue& queue);

  // Starts the timer of what is missing, or none where it is waited for without a limit.
  void AwaitExecutors(const ExecutorSet& executors, const RunPosition& at, ActionQueue& queue);
  // Without the executors that were lost there is no plan, and they are started again. False: none is lost, or nothing starts them.
  bool AwaitLost(const std::string& why, ExecutorSet& executors, const RunPosition& at, ActionQueue& queue);
  // Where a device with the data is present: what comes then. kFail: those that had it are not started again.
  Verdict AwaitData(State then, const ExecutorSet& executors, const RunPosition& at, ActionQueue& queue);

 private:
  bool OnlyDataIsMissing(const ExecutorSet& executors, bool planned) const;  // none with the data has ever come
  void ReportMissingData(const ExecutorSet& executors, const RunPosition& at, ActionQueue& queue);
  void EmitWaitingForData(const std::string& how_long, const RunPosition& at, ActionQueue& queue) const;
  absl::Status DataLost(const RunPosition& at) const;

  std::set<std::string> expected_, data_devices_;
  int min_executors_ = 0;
  double data_timeout_s_ = 0, executor_timeout_s_ = 0;
  bool waits_for_executors_ = false;
  MinModelMemory min_model_memory_;

  State state_ = State::kExecutors;
  bool begun_ = false, closed_ = false;
  std::string lost_reason_;
  bool data_wait_reported_ = false;  // that one with the data is waited for before the first plan
  uint64_t data_notice_timer_ = 0;   // until that is reported; 0: none
};

}  // namespace fusionllm::broker
