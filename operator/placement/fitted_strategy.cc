#include "operator/placement/fitted_strategy.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fusionllm::op::placement {

std::string FitStrategy(job::Strategy& strategy, const std::vector<manifests::ExecutorSlot>& slots) {
  std::set<std::string> names;
  int64_t usable = 0;
  for (const manifests::ExecutorSlot& slot : slots) {
    const std::string& name = *names.insert(manifests::DeviceName(slot)).first;
    if (!slot.spare && std::find(strategy.exclude.begin(), strategy.exclude.end(), name) == strategy.exclude.end()) ++usable;
  }
  std::vector<std::string> changes, absent;
  for (const job::Pin& pin : strategy.pins) {
    if (!names.contains(pin.device) && std::find(absent.begin(), absent.end(), pin.device) == absent.end()) absent.push_back(pin.device);
  }
  std::erase_if(strategy.pins, [&](const job::Pin& pin) { return !names.contains(pin.device); });
  if (!absent.empty()) changes.push_back(absl::StrCat("what is pinned to ", absl::StrJoin(absent, ", "), " goes where it is fastest"));
  if (usable > 0 && strategy.replicas > 1 && strategy.MinExecutors() > usable) {
    changes.push_back(absl::StrCat("it has as many replicas as are fastest instead of ", strategy.replicas));
    strategy.replicas = 0;
  }
  if (usable > 0 && strategy.stages > usable) {
    changes.push_back(absl::StrCat("it has ", usable, " stages instead of ", strategy.stages));
    strategy.stages = usable;
  }
  return changes.empty() ? "" : absl::StrCat("This attempt lacks devices of spec.strategy: ", absl::StrJoin(changes, ", and "), ".");
}

}  // namespace fusionllm::op::placement
