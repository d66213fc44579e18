#include "services/broker/stage_tensors.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/status_macros.h"
#include "lib/plan/plan.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::services {

absl::StatusOr<StageTensors> StageTensors::Of(const opdag::Graph& forward, const std::string& plan_document) {
  FUSIONLLM_ASSIGN_OR_RETURN(const plan::PlanResult answer, wire::ParsePlan(plan_document));
  const auto* const plan = std::get_if<plan::Plan>(&answer);
  if (plan == nullptr) return absl::InvalidArgumentError("a refusal is no plan");
  StageTensors tensors;
  for (const opdag::Parameter& parameter : forward.parameters()) tensors.parameters_.insert(parameter.name);
  for (const plan::Stage& planned : plan->stages) {
    Stage& stage = tensors.stages_.emplace_back();
    for (const std::string& name : planned.ops) {
      const opdag::OpId op = forward.FindOp(name);
      if (op == opdag::kNone) return absl::InvalidArgumentError(absl::StrCat("the plan names an unknown op '", name, "'"));
      stage.ops.insert(name);
      for (const opdag::ParameterId id : forward.op(op).parameters) {
        const opdag::Parameter& parameter = forward.parameter(id);
        stage.parameters.insert(parameter.name);
        if (parameter.trainable) stage.trained.insert(parameter.name);
      }
    }
  }
  return tensors;
}

const StageTensors::Stage* StageTensors::Find(int stage) const {
  return stage < 0 || static_cast<size_t>(stage) >= stages_.size() ? nullptr : &stages_[static_cast<size_t>(stage)];
}

bool StageTensors::HoldsParameter(int stage, absl::string_view name) const {
  const Stage* const found = Find(stage);
  return found != nullptr && found->parameters.contains(name);
}

bool StageTensors::Holds(int stage, absl::string_view name) const {
  const Stage* const found = Find(stage);
  if (found == nullptr) return false;
  if (parameters_.contains(name)) return found->parameters.contains(name);
  if (absl::ConsumePrefix(&name, "residual:")) {
    // "PARAMETER@OP", of a gradient that the op adds to a shared parameter; or "PRODUCER:OUTPUT->READER:SHAPE". No op has a '@' or ':'.
    const size_t at = name.rfind('@');
    if (at != absl::string_view::npos) return found->ops.contains(name.substr(at + 1)) && found->trained.contains(name.substr(0, at));
    return found->ops.contains(name.substr(0, name.find(':')));
  }
  const size_t dot = name.rfind('.');
  return dot != absl::string_view::npos && found->trained.contains(name.substr(0, dot));
}

}  // namespace fusionllm::services
