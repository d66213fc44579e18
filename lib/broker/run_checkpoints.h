// Shards of stages become checkpoints, and one of these is what the next plan epoch begins from.
//
// Events in, verdicts out; its orders are CommitCheckpoint, AbandonCheckpoint, ReplaceCheckpoint and what is reported of them. Not
// thread-safe.
//
// A step whose shards are saved:
//   state       event                                   next        action
//   none        Add                                     collecting
//   collecting  Add, the first one that failed          collecting  kFirstFailure: it will not be saved
//   collecting  CommitIfComplete, all shards are whole  committing  CommitCheckpoint
//   collecting  CommitIfComplete, one has failed        none        AbandonCheckpoint
//   collecting  OnCommitted of a later step             none        AbandonCheckpoint: what is missing of it will not be believed any more
//   collecting  BeginEpoch                              none
//   committing  OnCommitted, whole                      covered     CheckpointSaved; the next epoch begins here, if no later one is
//   committing  OnCommitted, an error                   none        CheckpointFailed; kLost or kFatal where it was the last one to be had
//   covered, committing
//               Add                                     unchanged   repeated to a broker that was restarted: ignored
//
// The checkpoint that the next epoch begins from:
//   kUsable     MarkUnusable                            kUnusable
//   kUnusable   Replace                                 kReplacing  ReplaceCheckpoint
//   kReplacing  Replace                                 kReplacing
//   kReplacing  OnReplaced                              kUsable     CheckpointUnusable, or an error, by which the run fails
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/broker/action_queue.h"
#include "lib/broker/executor_set.h"
#include "lib/broker/plan_epoch.h"
#include "lib/broker/run_options.h"

namespace fusionllm::broker {

// The report is about a stage of the plan in force, from its executor, and names what that stage may write where it may.
bool IsCurrentShard(const ShardWritten& event, const PlanEpoch& epoch, const ExecutorSet& executors);

class RunCheckpoints {
 public:
  enum class Restore : uint8_t { kUsable, kUnusable, kReplacing };
  enum class AddResult : uint8_t { kIgnored, kAccepted, kFirstFailure };
  // What an error of a commit means for the run.
  enum class Outcome : uint8_t {
    kContinues,  // it goes on
    kLost,       // the last checkpoint of the epoch cannot be saved: lost(), which fails the run once its stages have ended
    kFatal,      // as kLost, and they have
  };
  // The step of kLost may not have been reported yet, and the evaluation after it needs no disk.
  struct Lost {
    int64_t step = 0;
    absl::Status status;
  };
  // Of the run, for an error.
  struct CommitContext {
    bool is_last = false;  // nothing is left to try: in the middle of a run training goes on, the earlier checkpoints are whole
    bool runs = false;
    int64_t last_step = 0;
  };

  explicit RunCheckpoints(const RunOptions& options);
  // Reports of an adopted epoch.
  void Adopt(std::vector<ShardWritten> shards);

  int64_t step() const { return step_; }
  const std::string& path() const { return path_; }  // empty: the initial parameters
  // Of this step nothing is to be saved any more: a newer checkpoint is whole, or the one that was made of it.
  bool Covers(int64_t step) const { return !path_.empty() && step <= step_; }
  bool UnderWay() const { return !shards_.empty() || !committing_.empty(); }
  std::vector<int64_t> Collecting() const;  // steps
  const std::optional<Lost>& lost() const { return lost_; }
  double shard_s() const { return shard_s_; }  // of the newest one

  void BeginEpoch();
  AddResult Add(const ShardWritten& event);  // current, or an error of the stage
  // `commit` without step and files: what a run that goes on from it keeps. False: the step is abandoned.
  bool CommitIfComplete(int64_t step, int stages, CommitCheckpoint commit, ActionQueue& queue);
  Outcome OnCommitted(const CheckpointCommitted& event, const CommitContext& at, ActionQueue& queue);

  Restore restore() const { return restore_; }
  void MarkUnusable(const CheckpointUnusable& event) {
    restore_ = Restore::kUnusable;
    unusable_ = event;
  }
  void Replace(ActionQueue& queue);
  absl::Status OnReplaced(const CheckpointReplaced& event, ActionQueue& queue);  // kReplacing

 private:
  int64_t step_ = 0;
  std::string path_;
  std::map<int64_t, std::map<int, ShardWritten>> shards_;  // by step, stage
  std::set<int64_t> committing_;
  std::optional<Lost> lost_;
  Restore restore_ = Restore::kUsable;
  CheckpointUnusable unusable_;  // kUnusable, kReplacing
  double shard_s_ = 0;
};

}  // namespace fusionllm::broker
