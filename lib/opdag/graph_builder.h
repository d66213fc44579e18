// Builds a graph op by op, making the parameters that each op's schema asks for: for model builders, the text parser and tests.
//
// Shapes of parameters follow from the types of an op's inputs, so the builder infers types as it goes, with `probe_batch` for the symbolic
// batch (parameters must not depend on it). The first error sticks: later calls do nothing and Finish returns it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/opdag/graph.h"

namespace fusionllm::opdag {

// What a caller may choose about a parameter; empty fields take defaults: "<op>.<schema's name>" and initializers.h. A name that exists
// already shares that parameter and keeps its start.
struct ParameterOverride {
  std::string name;
  std::optional<Initializer> initializer;
  std::optional<bool> trainable;
};

class GraphBuilder {
 public:
  explicit GraphBuilder(absl::string_view graph_name, int64_t probe_batch = 1);

  // Appends an op and returns its first output; kNone after an error. `parameters`: none, or one for each the op has.
  ValueId Add(absl::string_view name, absl::string_view type, std::vector<ValueId> inputs, Attributes attributes = {},
              const std::vector<ParameterOverride>& parameters = {});
  // Further outputs of the op that produced `first`.
  ValueId Output(ValueId first, int index) const;
  ValueId Placeholder(absl::string_view name, absl::string_view role, absl::string_view dtype, std::vector<int64_t> shape);

  const absl::Status& status() const { return status_; }
  const Graph& graph() const { return graph_; }

  // The verified graph, untyped (batch() == 0) and ready for InferTypes. The builder is empty afterwards.
  absl::StatusOr<Graph> Finish(ValueId loss);

 private:
  absl::StatusOr<ValueId> TryAdd(Op op, const std::vector<ParameterOverride>& choices);
  absl::StatusOr<std::vector<ParameterId>> MakeParameters(const Op& op, const std::vector<ParameterOverride>& choices);

  Graph graph_;
  absl::Status status_;
};

}  // namespace fusionllm::opdag
