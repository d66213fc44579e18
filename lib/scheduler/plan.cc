#include "lib/scheduler/plan.h"

#include "absl/strings/string_view.h"

namespace fusionllm::scheduler {

absl::string_view Name(Schedule schedule) {
  switch (schedule) {
    case Schedule::kGPipe:
      return "gpipe";
    case Schedule::k1F1B:
      return "1f1b";
    default:
      return "auto";
  }
}

}  // namespace fusionllm::scheduler
