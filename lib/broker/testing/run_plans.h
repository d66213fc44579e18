// Plans of a run for tests: as if a planner had made them on the devices that they name.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lib/broker/run_plan.h"

namespace fusionllm::broker::testing {

// Gives the plan stages on its devices, by its number of replicas. `busy_s`: of each rank; empty: not known.
inline void SetStages(RunPlan& run, const std::vector<double>& busy_s = {}, int64_t memory_bytes = 0) {
  run.plan.stages.assign(static_cast<size_t>(run.stages()), {});
  for (size_t rank = 0; rank < run.devices.size(); ++rank) {
    plan::Stage& stage = run.plan.stages[static_cast<size_t>(run.StageOf(static_cast<int>(rank)))];
    stage.index = run.StageOf(static_cast<int>(rank));
    stage.devices.push_back(run.devices[rank]);
    stage.by_replica.push_back({.compute_seconds = rank < busy_s.size() ? busy_s[rank] : 0, .memory_bytes = memory_bytes});
  }
}

inline RunPlan PlanOn(std::vector<std::string> devices, const std::vector<double>& busy_s = {}, int64_t memory_bytes = 0,
                      int replicas = 1) {
  RunPlan run{.document = "{}", .devices = std::move(devices)};
  run.plan.replicas = replicas;
  SetStages(run, busy_s, memory_bytes);
  return run;
}

// `link` with the ends that it has between two ranks.
inline plan::Link Between(const RunPlan& run, int src_rank, int dst_rank, plan::Link link = {}) {
  link.src = run.devices[static_cast<size_t>(src_rank)];
  link.dst = run.devices[static_cast<size_t>(dst_rank)];
  link.src_stage = run.StageOf(src_rank);
  link.dst_stage = run.StageOf(dst_rank);
  link.backward = link.src_stage > link.dst_stage;
  return link;
}

// By rank.
inline std::vector<double> BusySeconds(const RunPlan& run) {
  std::vector<double> seconds;
  for (int rank = 0; rank < static_cast<int>(run.devices.size()); ++rank) seconds.push_back(run.BusySecondsOf(rank));
  return seconds;
}

}  // namespace fusionllm::broker::testing
