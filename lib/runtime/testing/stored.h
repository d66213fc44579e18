// What a checkpoint holds of a stage, for tests that write or read it by hand.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lib/runtime/stage_executor.h"

namespace fusionllm::runtime::testing {

// By name.
using Stored = std::map<std::string, std::vector<std::byte>>;

inline void ForEachStored(StageExecutor& executor, const std::function<void(const std::string&, tensor::TensorView)>& visit) {
  executor.store().ForEachParameter(visit, /*owned_only=*/false);
  executor.store().ForEachState(visit, /*owned_only=*/false);
  for (const std::string& name : executor.residual_names()) visit(name, executor.residual(name));
}

}  // namespace fusionllm::runtime::testing
