// What the broker tells of its run as metrics: progress, stages, links, plan, executors, checkpoints. docs/reference/metrics.md lists
// them.
//
// Fed by the run loop beside its log, and from attendance threads with who was heard; scraped on other threads. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/broker/run_state.h"
#include "lib/metrics/registry.h"
#include "services/broker/run_progress.h"
#include "services/messages_fwd.h"
#include "services/stage_metrics.h"

namespace fusionllm::services {

struct RunMetricsOptions {
  int64_t targets_per_step = 0;  // tokens, or samples of jobs without tokens
  int64_t samples_per_step = 0;
  int64_t total_steps = 0;
  bool text = true;                    // perplexity means something
  bool saves_checkpoints = false;      // every so many steps
  bool kept_elsewhere = false;         // a checkpoint counts, for who looks at the page, when it is in the store that the job names
  std::function<double()> now_s = {};  // a clock that only rises; default: the machine's
};

class RunMetrics {
 public:
  // `registry` must outlive it, and may be scraped only while it lives.
  RunMetrics(metrics::Registry& registry, RunMetricsOptions options);

  void Plan(const broker::RunPlan& plan);
  void Step(const broker::StepRecord& record);
  void StageTimes(const std::string& device, const v1::StageTimes& times);
  void Sent(const std::string& device, const v1::LinkBytes& link);  // as RunLog has it
  void Event(const broker::EmitEvent& event);
  void ShardWritten(int64_t step, double seconds);        // since the stage copied its tensors
  void CheckpointCommitted(int64_t step, int64_t bytes);  // whole in the run's folder
  // It is where the job keeps its checkpoints: what CheckpointCommitted says, too, unless they are kept elsewhere.
  void CheckpointKept(int64_t step);
  // The run goes on from one that is there: nothing was saved.
  void CheckpointFound(int64_t step);
  // After every event of the run.
  void State(const broker::RunState& state);
  void Heard(const std::string& device);
  void Left(const std::string& device);

  // The same in one object, for people; see run_progress.h.
  std::string ProgressJson() const { return progress_page_.Json(); }

 private:
  struct Stage {
    std::string device;
    int index = 0;  // of the stage; its replicas share it
    int64_t step = 0;
    double busy_seconds = 0;
  };

  double RecentStepSeconds() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Busy() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Kept(int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Ages();

  const RunMetricsOptions options_;
  const std::function<double()> now_s_;
  RunProgress progress_page_;
  StageMetrics stage_metrics_;

  // Progress.
  const metrics::Gauge loss_, perplexity_, tokens_per_second_, samples_per_second_, gradient_norm_, learning_rate_, progress_, eta_,
      step_age_;
  const metrics::Counter tokens_, ignored_tokens_;
  const metrics::Histogram step_seconds_;
  // Pipeline and plan.
  const metrics::Gauge busy_, bubble_, predicted_, drift_;
  const metrics::Counter replans_;
  // Executors and checkpoints.
  const metrics::Gauge nodes_, heartbeat_age_, checkpoint_age_, checkpoint_bytes_;
  const metrics::Counter recoveries_;
  const metrics::Histogram recovery_seconds_, checkpoint_seconds_;

  base::Mutex mutex_;
  std::vector<Stage> stages_ ABSL_GUARDED_BY(mutex_);  // of the plan in force, by rank
  double predicted_step_s_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t steps_of_plan_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<double> recent_s_ ABSL_GUARDED_BY(mutex_);  // seconds of the last steps of the plan, its first ones aside
  int64_t last_step_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t counted_to_ ABSL_GUARDED_BY(mutex_) = 0;    // the last step that tokens_ has
  double ignored_total_ ABSL_GUARDED_BY(mutex_) = 0;  // targets of its steps
  double last_step_s_ ABSL_GUARDED_BY(mutex_) = 0;
  double stepped_at_s_ ABSL_GUARDED_BY(mutex_);
  std::string replan_reason_ ABSL_GUARDED_BY(mutex_) = "other";  // of the next plan
  std::optional<double> trouble_since_s_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, double> shards_since_s_ ABSL_GUARDED_BY(mutex_);  // of checkpoints that are not whole yet, by step
  // The last one was kept then; before the first one: the first step was made.
  std::optional<double> no_checkpoint_since_s_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, double> heard_at_s_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::services
