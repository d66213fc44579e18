// Which tensors of a checkpoint each stage of a plan holds, by their names: parameters that its ops use, statistics of batch norms among
// them, the optimizer's state of those, and residuals of what its ops send. A parameter that several stages use is held by each of them.
// Where the tensors were stored, and by which stage of which plan, plays no part. Plain data; const access from several threads is safe.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/opdag/graph.h"

namespace fusionllm::services {

class StageTensors {
 public:
  StageTensors() = default;  // no stage holds anything

  // `forward`: of the job; need not be typed. `plan_document`: a plan of it. Errors: InvalidArgument for a document that is no plan, or one
  // with ops that the graph has not.
  static absl::StatusOr<StageTensors> Of(const opdag::Graph& forward, const std::string& plan_document);

  // False for a stage that the plan has not.
  bool HoldsParameter(int stage, absl::string_view name) const;
  // Of parameters, state and residuals (lib/runtime/parameter_store.h, stage_executor.h have the names).
  bool Holds(int stage, absl::string_view name) const;

 private:
  using Names = std::set<std::string, std::less<>>;
  struct Stage {
    Names ops, parameters, trained;
  };
  const Stage* Find(int stage) const;

  std::vector<Stage> stages_;
  Names parameters_;  // of all stages
};

}  // namespace fusionllm::services
