// From one plan to another: which ops change their device, what they take along, and how long the network is busy with it.
//
// Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/scheduler/assignment.h"
#include "lib/scheduler/problem.h"
#include "lib/scheduler/warm_start.h"

namespace fusionllm::scheduler::replan {

using RunningPlan = std::vector<NamedStage>;  // in pipeline order

struct MovedOp {
  std::string op;
  std::string from;  // empty: its device has gone, so its state comes from the checkpoint
  std::string to;
  int64_t bytes = 0;  // weights and optimizer state; 0 where the receiver has them already (a tied parameter) or there are none
  bool operator==(const MovedOp&) const = default;
};

struct Migration {
  std::vector<MovedOp> moved;  // in the order of ops
  int64_t bytes = 0;
  double transfer_s = 0;
  bool operator==(const Migration&) const = default;
};

// How the state of an op reaches a device that no link joins with the one it is on, or whose op has lost its device.
struct Restore {
  double bytes_per_s = 125e6;  // > 0; of each device that reads, all at once
  double latency_s = 0;
};

// What changes its device between a running plan and another one. Borrows the problem; const access from several threads is safe.
class MigrationModel {
 public:
  MigrationModel(const Problem& problem, const RunningPlan& running, const Restore& restore);

  // transfer_s: all transfers at once, each pair of devices at its own rate and each shared resource for the sum of what crosses it; the
  // busiest of them decides. Precondition: the assignment is one of the problem.
  Migration MigrationTo(const Assignment& assignment) const;
  // Its transfer_s alone: what a search asks for.
  double TransferSeconds(const Assignment& assignment) const;

 private:
  template <typename Visit>
  void ForEachMove(const Assignment& assignment, Visit visit) const;

  const Problem& problem_;
  const Restore restore_;
  std::vector<int> was_on_;                 // by op: its device, or kGone or kNowhere
  std::vector<std::vector<int>> tied_of_;   // by op
  std::vector<std::pair<int, int>> there_;  // (tied parameter, device), ascending
};

}  // namespace fusionllm::scheduler::replan
