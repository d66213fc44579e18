// Stages that hold parameters of given names, for the tests of who may have which.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/opdag/graph.h"
#include "lib/plan/plan.h"
#include "lib/wire/plan_json.h"
#include "services/broker/stage_tensors.h"

namespace fusionllm::services {

// Stage s has for each of its parameters p an op "sS.pP" that uses it; the same name in two stages is one parameter, which they share.
inline StageTensors Held(const std::vector<std::vector<std::string>>& parameters_by_stage) {
  opdag::Graph graph;
  opdag::Op input{.name = "x", .kind = opdag::OpKind::kPlaceholder};
  input.attributes = {{"role", std::string("images")}, {"dtype", std::string("f32")}, {"shape", std::vector<int64_t>{opdag::kBatch, 3}}};
  (void)*graph.AddOp(input);
  plan::Plan plan;
  for (size_t s = 0; s < parameters_by_stage.size(); ++s) {
    plan::Stage& stage = plan.stages.emplace_back();
    stage.index = static_cast<int>(s);
    stage.devices = {absl::StrCat("d", s)};
    for (size_t p = 0; p < parameters_by_stage[s].size(); ++p) {
      opdag::Op op{.name = absl::StrCat("s", s, ".p", p), .kind = opdag::OpKind::kLinear, .inputs = {0}};
      op.attributes = {{"out", int64_t{3}}, {"bias", false}};
      op.parameters = {*graph.AddParameter({parameters_by_stage[s][p], {tensor::DType::kF32, {3, 3}}, {}, true})};
      stage.ops.push_back(op.name);
      (void)*graph.AddOp(op);
    }
  }
  return *StageTensors::Of(graph, wire::PrintPlan(plan));
}

}  // namespace fusionllm::services
