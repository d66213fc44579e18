// Whether it pays to leave a plan for another: the gain over the steps that are left against what the move costs, found twice in a row.
//
// Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace fusionllm::broker {

struct MigrationCase {
  double step_s = 0;        // of the plan in force, as measured now
  double loss_cost = 0;     // nats, of its codecs
  double other_step_s = 0;  // what the other plan promises, times `bias`
  double bias = 1;          // what promises are multiplied by, after those of this run
  double other_loss_cost = 0;
  int64_t steps_left = 0;
  double cost_s = 0;  // checkpoint, restart, restore, warming up
};

class MigrationJudge {
 public:
  enum class Verdict : uint8_t {
    kStay,
    kAskAgain,  // it would pay: find it once more before moving
    kMove,
  };
  explicit MigrationJudge(int confirmations = 2, double least_gain = 0.05) : confirmations_(confirmations), least_gain_(least_gain) {}

  // Plans are compared by the time to an equal loss (docs/adr/0003). *figures gets a phrase with the numbers.
  Verdict Judge(const MigrationCase& given, std::string* figures);
  void Reset() { in_a_row_ = 0; }

 private:
  int confirmations_;
  double least_gain_;  // of a step: less is noise
  int in_a_row_ = 0;
};

}  // namespace fusionllm::broker
