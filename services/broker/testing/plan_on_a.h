// A planner for tests of a run: one stage, on executor a, whatever it is asked.
#pragma once

#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "lib/broker/events.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::services {

inline absl::StatusOr<std::string> PlanOnA(const std::string&, const broker::RequestPlan&, std::stop_token) {
  return wire::PrintPlan(plan::Plan{.stages = {{.devices = {"a"}, .ops = {"loss"}, .memory_bytes = 1}}});
}

}  // namespace fusionllm::services
