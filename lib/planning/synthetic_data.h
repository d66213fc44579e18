// Data for measuring a graph where its own is not at hand: ids and labels spread over their whole range, other numbers in [-1, 1).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lib/opdag/graph.h"
#include "lib/runtime/stage_executor.h"

namespace fusionllm::planning {

// Not thread-safe.
class SyntheticData final : public runtime::BatchSource {
 public:
  // Reads from the graph how many different ids each placeholder may hold.
  explicit SyntheticData(const opdag::Graph& graph);
  absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override;

 private:
  std::map<std::string, int64_t> classes_;  // by placeholder
};

}  // namespace fusionllm::planning
