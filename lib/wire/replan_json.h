// The answer to a question for a new plan: what `fusionctl plan --running` prints and the scheduler service's Replan gives. JSON, one line:
//
//   {"decision": "stay" | "move" | "must-move", "reason": "...", "running_step_seconds": 2.1 | null, "gain_seconds": 310.5,
//    "plan": {as lib/wire/plan_json.h}, "migration": {"bytes": .., "transfer_seconds": .., "moved": [{"op", "from" | null, "to",
//    "bytes"}]}}
//
// or a refusal as in plan_json.h. Plain structs; equal structs give equal bytes; reading trusts nothing. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/plan/plan.h"

namespace fusionllm::wire {

struct MovedOp {
  std::string op;
  std::string from;  // empty: its device has gone, the checkpoint has its state
  std::string to;
  int64_t bytes = 0;  // weights and optimizer state
  bool operator==(const MovedOp&) const = default;
};

enum class ReplanDecision {
  kStay,
  kMove,      // it pays
  kMustMove,  // the running plan cannot go on
};
// "stay", "move", "must-move".
absl::string_view Name(ReplanDecision decision);

struct ReplanDocument {
  ReplanDecision decision = ReplanDecision::kStay;
  std::string reason;
  std::optional<double> running_step_seconds;  // none: the running plan cannot go on
  double gain_seconds = 0;                     // over the steps that are left, the move subtracted
  plan::Plan plan;                             // to run from now on
  std::vector<MovedOp> moved;                  // in the order of the job's ops
  int64_t moved_bytes = 0;
  double transfer_seconds = 0;
  bool operator==(const ReplanDocument&) const = default;
};

using ReplanResult = std::variant<ReplanDocument, plan::PlanError>;

std::string PrintReplan(const ReplanResult& answer);
// Errors: InvalidArgument naming the field.
absl::StatusOr<ReplanResult> ParseReplan(absl::string_view text);

}  // namespace fusionllm::wire
