// What a model takes at least, and whether executors can have it: known before anything is measured, so that none of them is killed over
// it.
//
// Pure functions. A lower bound: the planner knows more once the executors are measured, and may refuse what passes here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fusionllm::broker {

// Bytes of parameters, their gradients and the optimizer's state. 0: not known.
struct MinModelMemory {
  int64_t all_bytes = 0;      // of the whole model, in all its replicas
  int64_t largest_bytes = 0;  // of one op, which one executor runs
  std::string largest;        // that op
};

struct DeviceMemory {
  std::string name;
  int64_t bytes = 0;  // that it may use; 0: not known
};

// Why these devices cannot train the model, in a sentence that names them. Empty: nothing is known against it.
std::string DescribeInsufficientMemory(const MinModelMemory& required, const std::vector<DeviceMemory>& devices);

}  // namespace fusionllm::broker
