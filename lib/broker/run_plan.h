// The plan of a run: what the planner said, and what the run knows besides. Plain data.
//
// A rank is what one device does: a stage of a replica. Ranks are numbered replica by replica, so that with one replica they are its
// stages.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/plan/plan.h"

namespace fusionllm::broker {

struct RunPlan {
  std::string document;              // as it was answered: what executors are assigned and the journal keeps
  std::vector<std::string> devices;  // by rank: of now, where spares have taken ranks over. Their number is a multiple of plan.replicas
  // Executors that it was made over, and those that the run trains on when none is missing. 0: not known.
  int executors = 0;
  int desired_executors = 0;
  // As it was made, on the devices of then. Micro-batches and their size may be 0, not known, and stages be fewer than there are ranks,
  // where its document was another build's.
  plan::Plan plan{.micro_batches = 0, .micro_batch_size = 0};

  int stages() const { return static_cast<int>(devices.size()) / plan.replicas; }
  int StageOf(int rank) const { return rank % stages(); }
  int ReplicaOf(int rank) const { return rank / stages(); }
  int RankOf(const std::string& device) const;  // -1: it runs no stage
  bool Uses(const std::string& device) const { return RankOf(device) >= 0; }
  int64_t MicroBatchesOf(int rank) const;    // of a step, of the rank's replica; 0: not known
  int64_t MemoryBytesOf(int rank) const;     // 0: not known
  std::vector<int64_t> MemoryBytes() const;  // by rank
  double BusySecondsOf(int rank) const;      // of a step; 0: not known, as for a spare that was not measured
  std::string Describe(int rank) const;      // "stage 1", "stage 1 of replica 0"
  // The ranks at the ends of one of the plan's links; both -1: none is there.
  std::pair<int, int> RanksOf(const plan::Link& link) const;
};

// Of a plan that was made on the devices of now.
std::vector<std::string> DevicesByRank(const plan::Plan& plan);

}  // namespace fusionllm::broker
