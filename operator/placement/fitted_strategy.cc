#include "operator/placement/fitted_strategy.h"

#include <algorithm>
#include <cstdint>
#include <set>

namespace fusionllm::op {

std::vector<std::string> KeepWhatFits(job::Strategy& strategy, const std::vector<ExecutorSlot>& slots) {
  std::set<std::string> names;
  for (const ExecutorSlot& slot : slots) names.insert(DeviceName(slot));
  std::vector<std::string> absent;
  for (const job::Pin& pin : strategy.pins) {
    if (!names.contains(pin.device) && std::find(absent.begin(), absent.end(), pin.device) == absent.end()) absent.push_back(pin.device);
  }
  std::erase_if(strategy.pins, [&](const job::Pin& pin) { return !names.contains(pin.device); });
  strategy.stages = std::min(strategy.stages, Training(slots));
  return absent;
}

}  // namespace fusionllm::op
