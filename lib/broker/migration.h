// Whether it pays to leave a plan for another: the gain over the steps that are left against what the move costs, found twice in a row.
//
// Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "lib/broker/events.h"

namespace fusionllm::broker {

inline constexpr double kMinImprovement = 0.05;  // of a step: less is noise

// Plans are compared by the time to an equal loss (docs/design/adr/0003).
// Nats, of its codecs: the mean over micro-batches of what the links of their replica cost, as the planner has it.
double LossCost(const RunPlan& plan);
double SecondsToEqualLoss(double step_s, double loss_cost);

struct MigrationEstimate {
  double step_s = 0;        // of the plan in force, as measured now
  double loss_cost = 0;     // nats, of its codecs
  double other_step_s = 0;  // what the other plan promises, times `bias`
  double bias = 1;          // what promises are multiplied by, after those of this run
  double other_loss_cost = 0;
  int64_t steps_left = 0;
  double cost_s = 0;  // checkpoint, restart, restore, warming up
};

class MigrationPolicy {
 public:
  enum class Decision : uint8_t {
    kStay,
    kAskAgain,  // it would pay: find it once more before moving
    kMove,
  };
  explicit MigrationPolicy(int confirmations = 2, double min_improvement = kMinImprovement)
      : confirmations_(confirmations), min_improvement_(min_improvement) {}

  // *figures gets a phrase with the numbers.
  Decision Decide(const MigrationEstimate& given, std::string* figures);
  void Reset() { in_a_row_ = 0; }

 private:
  int confirmations_;
  double min_improvement_;
  int in_a_row_ = 0;
};

}  // namespace fusionllm::broker
